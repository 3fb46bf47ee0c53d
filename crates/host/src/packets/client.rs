//! Sends requests, step after step at rising rates, and counts what comes back.

use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::event::{Timespec, epoll};
use serde::Serialize;
use serde_json::Value;

use super::batch::{Batch, MOST, connected};
use super::ends::{Counters, interface_of};
use super::interrupt::round_trip_ns;
use super::message::{Head, Token};
use super::output::write;
use super::spec::Spec;
use base::clock::now_ns;
use base::histogram::{Histogram, Sparse};
use base::stop::StopSignal;

const SECOND_NS: f64 = 1e9;
/// Replies that are later than this do not come.
const LOST_NS: u64 = 20_000_000;
/// A step waits this long for its last replies.
const DRAIN_NS: u64 = 100_000_000;
/// Share of a step that comes before it and is not counted.
const WARM_UP: f64 = 0.2;
const CONNECT: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Start { client: &'a str, server: &'a str, cpus: usize, interrupt_ns: Option<u64> },
    Step(Box<Step>),
    End { elapsed_s: f64 },
}

/// One rate for one pair of sizes. `offered_s` is null where requests followed replies without a limit.
#[derive(Serialize)]
struct Step {
    request_bytes: usize,
    reply_bytes: usize,
    share: Option<f64>,
    offered_s: Option<f64>,
    seconds: f64,
    sent: u64,
    answered: u64,
    latency: Sparse,
    client: [Value; 2],
    server: [Value; 2],
}

pub fn run(spec: &Spec) -> anyhow::Result<()> {
    measure(spec, &StopSignal::install()?)
}

pub fn measure(spec: &Spec, stop: &StopSignal) -> anyhow::Result<()> {
    let begun = now_ns();
    let to = SocketAddr::from((spec.address, spec.port));
    let mut far = Far::connect(to, spec.token)?;
    let mut threads: Vec<Thread> =
        (0..spec.client.threads).map(|_| Thread::new(to, spec)).collect::<anyhow::Result<_>>()?;
    let interface = threads[0].interface().unwrap_or_default();
    let mut near = Counters::new(&interface);
    let first = far.ask()?;
    let own = spec.client.cpus.first().copied().unwrap_or(0);
    write(&Line::Start {
        client: &interface,
        server: first["interface"].as_str().unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        interrupt_ns: spec.interrupt.and_then(|far| round_trip_ns(own, far)),
    })?;
    let mut number = 0;
    for (request_bytes, reply_bytes) in &spec.sizes {
        let mut most_s = None;
        for share in std::iter::once(None).chain(spec.shares.iter().copied().map(Some)) {
            if stop.is_set() {
                bail!("stopped before the end; nothing is left behind");
            }
            let order = Order {
                number,
                request_bytes: *request_bytes,
                reply_bytes: *reply_bytes,
                offered_s: share.and_then(|share| most_s.map(|most: f64| share * most)),
                window: spec.window,
                token: spec.token,
            };
            let warm = spec.step_s * WARM_UP;
            together(&mut threads, spec, order, warm)?;
            let before = (near.read(), far.ask()?);
            let (seconds, found) =
                together(&mut threads, spec, Order { number: number + 1, ..order }, spec.step_s)?;
            let after = (near.read(), far.ask()?);
            number += 2;
            let answered: u64 = found.iter().map(|each| each.answered).sum();
            if answered == 0 {
                bail!("{to} answers no request: is UDP to this port let through?");
            }
            most_s = most_s.or(Some(answered as f64 / seconds));
            let mut latency = Sparse::default();
            found.iter().for_each(|each| latency.add(&each.latency));
            write(&Line::Step(Box::new(Step {
                request_bytes: *request_bytes,
                reply_bytes: *reply_bytes,
                share,
                offered_s: order.offered_s,
                seconds,
                sent: found.iter().map(|each| each.sent).sum(),
                answered,
                latency,
                client: [before.0, after.0],
                server: [before.1, after.1],
            })))?;
        }
    }
    write(&Line::End { elapsed_s: (now_ns() - begun) as f64 / SECOND_NS })
}

/// All threads for one step; the time that it lasted, without the wait for last replies.
fn together(
    threads: &mut [Thread],
    spec: &Spec,
    order: Order,
    seconds: f64,
) -> anyhow::Result<(f64, Vec<Counted>)> {
    let count = threads.len() as f64;
    let order = Order { offered_s: order.offered_s.map(|rate| rate / count), ..order };
    let start = now_ns();
    let end = start + (seconds * SECOND_NS) as u64;
    let found = std::thread::scope(|scope| {
        let running: Vec<_> = threads
            .iter_mut()
            .enumerate()
            .map(|(number, thread)| {
                scope.spawn(move || {
                    spec.client.settle(number)?;
                    thread.step(order, start, end)
                })
            })
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("a thread of the client panicked"))
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(((end - start) as f64 / SECOND_NS, found))
}

#[derive(Clone, Copy)]
struct Order {
    number: u32,
    request_bytes: usize,
    reply_bytes: usize,
    offered_s: Option<f64>,
    window: u64,
    token: Token,
}

struct Counted {
    sent: u64,
    answered: u64,
    latency: Sparse,
}

/// The flows of one thread.
struct Thread {
    sockets: Vec<UdpSocket>,
    ready: OwnedFd,
    outgoing: Batch,
    incoming: Batch,
}

impl Thread {
    fn new(to: SocketAddr, spec: &Spec) -> anyhow::Result<Self> {
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let sockets: Vec<UdpSocket> = (0..spec.flows)
            .map(|_| connected(to).with_context(|| format!("no way to {to}")))
            .collect::<Result<_, _>>()?;
        for (number, socket) in sockets.iter().enumerate() {
            epoll::add(&ready, socket, epoll::EventData::new_u64(number as u64), epoll::EventFlags::IN)?;
        }
        let (outgoing, incoming) = (Batch::new(false), Batch::new(false));
        Ok(Self { sockets, ready, outgoing, incoming })
    }

    fn interface(&self) -> Option<String> {
        interface_of(self.sockets[0].local_addr().ok()?.ip())
    }

    fn step(&mut self, order: Order, start: u64, end: u64) -> anyhow::Result<Counted> {
        let (mut sent, mut answered, mut given_up) = (0, 0_u64, 0_u64);
        let mut latency = Histogram::default();
        let (mut flow, mut heard) = (0, now_ns());
        loop {
            let now = now_ns();
            let is_over = now >= end;
            let waiting = u64::saturating_sub(sent, answered + given_up);
            if is_over && (waiting == 0 || now >= end + DRAIN_NS) {
                break;
            }
            if !is_over && waiting >= order.window && order.offered_s.is_none() && now > heard + LOST_NS {
                // They were dropped somewhere: others go in their place.
                given_up += waiting;
                heard = now;
                continue;
            }
            let due = if is_over { 0 } else { order.due(now - start, sent, waiting) };
            if due > 0 {
                for at in 0..due {
                    let intended_ns = order.intended(start, sent + at as u64).unwrap_or(now);
                    let head =
                        Head { intended_ns, step: order.number, reply_bytes: order.reply_bytes as u16 };
                    head.write(order.token, self.outgoing.packet(at));
                    self.outgoing.set_length(at, order.request_bytes);
                }
                sent += self.outgoing.send(&self.sockets[flow], 0, due)? as u64;
                flow = (flow + 1) % self.sockets.len();
            }
            let next =
                if is_over { end + DRAIN_NS } else { order.intended(start, sent).unwrap_or(end).min(end) };
            let patience = if due == MOST { 0 } else { next.saturating_sub(now_ns()).min(LOST_NS) };
            let more = self.receive(order, patience, end, &mut latency)?;
            if more.0 > 0 {
                heard = now_ns();
            }
            answered += more.1;
        }
        Ok(Counted { sent, answered, latency: latency.take() })
    }

    /// How many replies came at all, and how many of this step before its end.
    fn receive(
        &mut self,
        order: Order,
        patience_ns: u64,
        end: u64,
        latency: &mut Histogram,
    ) -> anyhow::Result<(u64, u64)> {
        let wait = Timespec { tv_sec: 0, tv_nsec: patience_ns.cast_signed() };
        let mut room = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let events: &[epoll::Event] = match epoll::wait(self.ready.as_fd(), &mut room, Some(&wait)) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => &[],
            Err(error) => return Err(error).context("cannot wait for replies"),
        };
        let (mut all, mut ours) = (0, 0);
        for event in events {
            let socket = &self.sockets[event.data.u64() as usize];
            let count = self.incoming.receive(socket, libc::MSG_DONTWAIT)?;
            let now = now_ns();
            for at in 0..count {
                all += 1;
                let head = Head::read(order.token, self.incoming.received(at));
                if let Some(head) = head.filter(|head| head.step == order.number && now <= end + DRAIN_NS) {
                    ours += 1;
                    latency.record(now.saturating_sub(head.intended_ns));
                }
            }
        }
        Ok((all, ours))
    }
}

impl Order {
    /// How many requests should be sent now.
    fn due(&self, elapsed_ns: u64, sent: u64, waiting: u64) -> usize {
        let due = match self.offered_s {
            Some(rate) => ((rate * elapsed_ns as f64 / SECOND_NS) as u64 + 1).saturating_sub(sent),
            None => self.window.saturating_sub(waiting),
        };
        due.min(MOST as u64) as usize
    }

    /// When request `number` of a step should be sent; None without a rate.
    fn intended(&self, start: u64, number: u64) -> Option<u64> {
        self.offered_s.map(|rate| start + (number as f64 * SECOND_NS / rate) as u64)
    }
}

/// The counters of the other end.
struct Far {
    reader: BufReader<TcpStream>,
}

impl Far {
    fn connect(to: SocketAddr, token: Token) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect_timeout(&to, CONNECT)
            .with_context(|| format!("{to} does not answer: is TCP to this port let through?"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(format!("{}\n", String::from(token)).as_bytes())?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    fn ask(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.reader.get_mut().write_all(b"counters\n")?;
        if self.reader.read_line(&mut line).context("the server's counters")? == 0 {
            bail!("the server ended the connection");
        }
        serde_json::from_str(&line).context("the server's counters")
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Token};

    fn order(offered_s: Option<f64>) -> Order {
        let token = Token::try_from("0".repeat(32)).unwrap();
        Order { number: 1, request_bytes: 64, reply_bytes: 64, offered_s, window: 40, token }
    }

    #[test]
    fn a_rate_does_not_wait_for_replies() {
        let order = order(Some(1000.0));
        assert_eq!(order.due(0, 0, 0), 1);
        assert_eq!(order.due(10_000_000, 5, 1_000_000), 6);
        assert_eq!(order.due(10_000_000, 11, 0), 0);
        // What a late client owes is sent by the batch, and timed from when it should have been sent.
        assert_eq!(order.due(1_000_000_000, 0, 0), 32);
        assert_eq!(order.intended(500, 2), Some(2_000_500));
    }

    #[test]
    fn without_a_rate_replies_make_room() {
        let order = order(None);
        assert_eq!((order.due(0, 0, 0), order.due(0, 40, 40), order.due(0, 100, 37)), (32, 0, 3));
        assert_eq!(order.intended(500, 2), None);
    }
}
