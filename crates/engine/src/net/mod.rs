//! The sockets of a thread, and what happens on them: by io_uring if the kernel has and permits it, otherwise, and for
//! a few connections, by epoll.
//!
//! Measured in a closed loop of prepared point selects over loopback TCP, Linux 6.18, in interleaved rounds (`make bench`
//! repeats it with `HEADRACE_IO`): with 8 connections io_uring spends 0.94 of epoll's CPU per operation, with 2,000 as
//! much, with two or three an eighth more. One system call submits every request and takes every reply of a round, where
//! epoll needs two for each and one more. Sends by a system call of their own, or as soon as the server has a CPU without
//! a request, took more CPU or more calls, without more throughput. Multishot receives with shared buffers gained nothing
//! more.

mod address;
mod epoll;
mod happened;
mod stamps;
mod uring;

use std::io;

pub use self::address::Address;
use self::epoll::EpollNet;
pub use self::epoll::send_now;
pub use self::happened::Happened;
use self::uring::UringNet;
use base::error::AgentError;

/// With so few connections, a round rarely has more than one request and one reply, and epoll is cheaper.
const FEW: usize = 3;

/// The connections of one thread, each under its client's place.
pub enum Net {
    Epoll(EpollNet),
    Uring(Box<UringNet>),
}

impl Net {
    /// For this many clients; `is_stamped`: with the kernel's stamp of each reply, over epoll only. `HEADRACE_IO` may
    /// demand `epoll` or `uring`.
    pub fn open(clients: usize, is_stamped: bool) -> anyhow::Result<Self> {
        match std::env::var("HEADRACE_IO").as_deref() {
            Ok("epoll") => Ok(Net::Epoll(EpollNet::open(clients, is_stamped)?)),
            Ok("uring") => Ok(Net::Uring(Box::new(UringNet::open(clients)?))),
            Ok(other) => {
                Err(AgentError::Input(format!("HEADRACE_IO={other}: there are epoll and uring")).into())
            }
            Err(_) if is_stamped || (1..=FEW).contains(&clients) => {
                Ok(Net::Epoll(EpollNet::open(clients, is_stamped)?))
            }
            // An old kernel lacks it, and a container or an administrator may forbid it.
            Err(_) => match UringNet::open(clients) {
                Ok(net) => Ok(Net::Uring(Box::new(net))),
                Err(_) => Ok(Net::Epoll(EpollNet::open(clients, is_stamped)?)),
            },
        }
    }

    /// For more clients than at first.
    pub fn make_room(&mut self, clients: usize) {
        match self {
            Net::Epoll(net) => net.make_room(clients),
            Net::Uring(net) => net.make_room(clients),
        }
    }

    /// Starts to connect; `Connected` or `Broken` reports the result.
    pub fn connect(&mut self, place: usize, address: &Address) -> io::Result<()> {
        match self {
            Net::Epoll(net) => net.connect(place, address),
            Net::Uring(net) => net.connect(place, address),
        }
    }

    /// Sends all of it eventually, in order. io_uring queues it until `submit` or `wait`.
    pub fn send(&mut self, place: usize, bytes: &[u8]) -> io::Result<()> {
        match self {
            Net::Epoll(net) => net.send(place, bytes),
            Net::Uring(net) => net.send(place, bytes),
        }
    }

    /// Whether `send` only queues what it is given.
    pub fn queues(&self) -> bool {
        matches!(self, Net::Uring(_))
    }

    /// Whether the queue is full.
    pub fn is_full(&self) -> bool {
        match self {
            Net::Epoll(_) => false,
            Net::Uring(net) => net.is_full(),
        }
    }

    /// Sends what is queued.
    pub fn submit(&mut self) {
        if let Net::Uring(net) = self {
            net.submit();
        }
    }

    /// When the last `wait` returned: all that `pop` returns after it had arrived by then. The time spent on earlier
    /// events is the driver's.
    pub fn came_ns(&self) -> u64 {
        match self {
            Net::Epoll(net) => net.came_ns(),
            Net::Uring(net) => net.came_ns(),
        }
    }

    /// When the last `Received` bytes arrived: the kernel's stamp, or `came_ns` without one.
    pub fn arrived_ns(&self) -> u64 {
        match self {
            Net::Epoll(net) => net.stamped_ns().unwrap_or(net.came_ns()),
            Net::Uring(net) => net.came_ns(),
        }
    }

    /// Whether the last `Received` has the kernel's stamp.
    pub fn is_stamped(&self) -> bool {
        matches!(self, Net::Epoll(net) if net.stamped_ns().is_some())
    }

    /// How long before `came_ns` it may have arrived, while the driver was busy with earlier events. 0 if it waited.
    pub fn longest_unseen_ns(&self) -> u64 {
        match self {
            Net::Epoll(net) => net.longest_unseen_ns(),
            Net::Uring(net) => net.longest_unseen_ns(),
        }
    }

    /// Closes the connection; it has no more events.
    pub fn close(&mut self, place: usize) {
        match self {
            Net::Epoll(net) => net.close(place),
            Net::Uring(net) => net.close(place),
        }
    }

    /// Waits until something happens, or until this instant of the driver's clock.
    pub fn wait(&mut self, until_ns: u64) {
        match self {
            Net::Epoll(net) => net.wait(until_ns),
            Net::Uring(net) => net.wait(until_ns),
        }
    }

    /// The next event, without waiting.
    pub fn pop(&mut self) -> Option<(usize, Happened)> {
        match self {
            Net::Epoll(net) => net.pop(),
            Net::Uring(net) => net.pop(),
        }
    }

    /// The bytes of the last `Received`.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Net::Epoll(net) => net.bytes(),
            Net::Uring(net) => net.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Address, EpollNet, Happened, Net, UringNet};
    use base::clock::now_ns;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::Duration;

    const SECOND: u64 = 1_000_000_000;
    const CLIENTS: usize = 40;

    /// Both, where the kernel has both; a kernel without io_uring cannot try it.
    fn nets() -> Vec<Net> {
        let epoll = |is_stamped| Net::Epoll(EpollNet::open(CLIENTS, is_stamped).unwrap());
        let uring = UringNet::open(CLIENTS).map(|net| Net::Uring(Box::new(net)));
        [Ok(epoll(false)), Ok(epoll(true)), uring].into_iter().flatten().collect()
    }

    /// A server on loopback that plays `play` on each connection.
    fn serve(play: fn(TcpStream)) -> Address {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || play(stream.unwrap()));
            }
        });
        Address::Tcp(address)
    }

    fn echo(mut stream: TcpStream) {
        let mut buffer = vec![0; 10_000];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
    }

    /// Takes what happens until `done` says so, or panics after some seconds.
    fn until(net: &mut Net, mut done: impl FnMut(&mut Net, usize, Happened) -> bool) {
        let deadline = now_ns() + 20 * SECOND;
        while now_ns() < deadline {
            net.wait(now_ns() + SECOND / 10);
            while let Some((place, happened)) = net.pop() {
                if done(net, place, happened) {
                    return;
                }
            }
        }
        panic!("it did not happen");
    }

    #[test]
    fn what_is_sent_comes_back_in_order() {
        let address = serve(echo);
        // Larger than the socket's buffers: both ends have to wait for each other.
        let message: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
        for mut net in nets() {
            net.connect(0, &address).unwrap();
            let mut received = Vec::new();
            until(&mut net, |net, place, happened| {
                assert_eq!(place, 0);
                match happened {
                    // In two pieces: the second is queued behind the first.
                    Happened::Connected => {
                        net.send(0, &message[..1_000_000]).unwrap();
                        net.send(0, &message[1_000_000..]).unwrap();
                    }
                    Happened::Received => received.extend_from_slice(net.bytes()),
                    other => panic!("{other:?}"),
                }
                received.len() >= message.len()
            });
            assert!(received == message);
        }
    }

    #[test]
    fn many_connections_come_and_go() {
        let address = serve(echo);
        for mut net in nets() {
            let mut rounds = [0; CLIENTS];
            for place in 0..CLIENTS {
                net.connect(place, &address).unwrap();
            }
            until(&mut net, |net, place, happened| {
                match happened {
                    Happened::Connected => net.send(place, &[place as u8]).unwrap(),
                    Happened::Received => {
                        assert_eq!(net.bytes(), [place as u8], "another connection's bytes");
                        rounds[place] += 1;
                        // A new connection in the old one's place, while the old one's receive is still out.
                        if rounds[place] % 2 == 0 {
                            net.close(place);
                            net.connect(place, &address).unwrap();
                        } else {
                            net.send(place, &[place as u8]).unwrap();
                        }
                    }
                    other => panic!("{other:?}"),
                }
                rounds.iter().all(|rounds| *rounds >= 10)
            });
        }
    }

    #[test]
    fn one_wait_sends_and_brings_the_reply() {
        let address = serve(echo);
        for mut net in nets() {
            net.connect(0, &address).unwrap();
            until(&mut net, |_, _, happened| matches!(happened, Happened::Connected));
            for round in 0..50 {
                net.send(0, &[round]).unwrap();
                net.wait(now_ns() + 20 * SECOND);
                let mut received = false;
                while let Some((_, happened)) = net.pop() {
                    received |= matches!(happened, Happened::Received) && net.bytes() == [round];
                }
                assert!(received, "it returned with nothing but its own send");
            }
        }
    }

    #[test]
    fn a_reply_that_waited_has_the_time_of_its_arrival() {
        let address = serve(echo);
        let mut net = Net::Epoll(EpollNet::open(1, true).unwrap());
        net.connect(0, &address).unwrap();
        until(&mut net, |_, _, happened| matches!(happened, Happened::Connected));
        // The kernel begins to stamp some time after it was first asked.
        for _ in 0..20 {
            let sent_ns = now_ns();
            net.send(0, &[1]).unwrap();
            thread::sleep(Duration::from_millis(300));
            until(&mut net, |_, _, happened| matches!(happened, Happened::Received));
            if net.is_stamped() {
                assert!(net.arrived_ns() >= sent_ns);
                assert!(net.arrived_ns() + 10_000_000 < net.came_ns(), "the time at which it was read");
                return;
            }
            assert_eq!(net.arrived_ns(), net.came_ns());
        }
        panic!("no reply was stamped");
    }

    #[test]
    fn the_other_end_goes_away() {
        let address = serve(drop);
        for mut net in nets() {
            net.connect(3, &address).unwrap();
            until(&mut net, |_, place, happened| {
                assert_eq!(place, 3);
                matches!(happened, Happened::Closed | Happened::Broken(_))
            });
        }
    }

    #[test]
    fn nobody_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        drop(listener);
        for mut net in nets() {
            // Refused at once or a little later.
            if net.connect(0, &address).is_err() {
                continue;
            }
            until(&mut net, |_, _, happened| matches!(happened, Happened::Broken(_)));
        }
    }

    #[test]
    fn a_wait_ends_in_time() {
        for mut net in nets() {
            for delay_ns in [0, 300_000, 5_000_000] {
                let until_ns = now_ns() + delay_ns;
                net.wait(until_ns);
                assert!(net.pop().is_none());
                assert!(now_ns() >= until_ns, "too early");
                // Wide: the machine may be busy. A wait that knew only its housekeeping would take far longer.
                assert!(now_ns() < until_ns + SECOND);
            }
        }
    }
}
