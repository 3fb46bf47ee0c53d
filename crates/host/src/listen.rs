//! Accept queues: connections that wait for `accept`, and the limit, for every listening TCP socket.
//!
//! By sock_diag, which is asked for listening sockets only: /proc/net/tcp lists every connection of the host.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::Context;
use rustix::net::netlink;

use super::netlink::{Netlink, number};
use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;

pub const LISTEN: Kind = Kind::host(
    "listen",
    "accept queue and its limit of each listening TCP socket; label address:port (sock_diag)",
    |host: &Host| Box::new(Listening { is_live: host.root.as_os_str() == "/", socket: None }),
);

const BY_FAMILY: u16 = 20;
const TCP: u8 = 6;
const STATE_LISTEN: u32 = 1 << 10;
const FAMILIES: [u8; 2] = [2, 10];

struct Listening {
    is_live: bool,
    socket: Option<Netlink>,
}

/// Address and port -> waiting connections, and their limit. Sockets that share a port (SO_REUSEPORT) are summed.
type Queues = BTreeMap<String, (u64, u64)>;

impl Sample for Listening {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if !self.is_live {
            let message = "a saved host has no sockets";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message).into());
        }
        let mut queues = Queues::new();
        // After an error the rest of an answer may still be in the socket: the next tick opens a new one.
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => open().context("cannot open a socket for sock_diag")?,
        };
        for family in FAMILIES {
            ask(&socket, family, &mut queues).context("sock_diag does not tell listening sockets")?;
        }
        self.socket = Some(socket);
        let rows: Vec<_> =
            queues.into_iter().map(|(label, (waiting, limit))| (label, [waiting, limit])).collect();
        values.table(&["queue", "queue_limit"], &rows);
        Ok(())
    }
}

fn open() -> io::Result<Netlink> {
    Netlink::open(Some(netlink::SOCK_DIAG))
}

fn ask(socket: &Netlink, family: u8, queues: &mut Queues) -> io::Result<()> {
    let mut request = [0_u8; 56];
    request[0] = family;
    request[1] = TCP;
    request[4..8].copy_from_slice(&STATE_LISTEN.to_ne_bytes());
    socket.dump(BY_FAMILY, &request, |kind, body| add(kind, body, queues))
}

fn add(kind: u16, body: &[u8], queues: &mut Queues) {
    if kind == BY_FAMILY && body.len() >= 72 {
        let queue = queues.entry(label(body)).or_default();
        // For a listening socket the kernel reports its backlog here, not bytes.
        *queue = (queue.0 + u64::from(number(body, 56)), queue.1 + u64::from(number(body, 60)));
    }
}

fn label(body: &[u8]) -> String {
    let port = u16::from_be_bytes([body[4], body[5]]);
    let mut address = [0_u8; 16];
    address.copy_from_slice(&body[8..24]);
    if body[0] == FAMILIES[0] {
        format!("{}:{port}", Ipv4Addr::from([address[0], address[1], address[2], address[3]]))
    } else {
        format!("[{}]:{port}", Ipv6Addr::from(address))
    }
}

#[cfg(test)]
mod tests {
    use super::{FAMILIES, Queues, add, ask, open};
    use proptest::prelude::{any, proptest};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_that_nobody_accepts_stands_in_the_queue() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let queue = || {
            let mut queues = Queues::new();
            let socket = open().unwrap();
            FAMILIES.iter().for_each(|family| ask(&socket, *family, &mut queues).unwrap());
            queues[&address.to_string()]
        };
        assert_eq!(queue().0, 0);
        assert!(queue().1 >= 128);
        let _waiting: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        assert_eq!(queue().0, 3);
        listener.accept().unwrap();
        assert_eq!(queue().0, 2);
    }

    proptest! {
        #[test]
        fn no_answer_can_break_the_parser(body in proptest::collection::vec(any::<u8>(), 0..100), kind in 19..22_u16) {
            add(kind, &body, &mut Queues::new());
        }
    }
}
