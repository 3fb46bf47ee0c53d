//! Answers requests, and says over a connection of its own what its counters are.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;

use super::batch::{Batch, shared};
use super::ends::{Counters, interface_of};
use super::message::{Head, Token};
use super::output::write;
use super::pair;
use super::spec::Spec;
use base::stop::StopSignal;

/// How often a thread that gets nothing looks whether it should end.
const LOOK: Duration = Duration::from_millis(100);
/// A client asks at least this often: after every step.
const SILENCE: Duration = Duration::from_secs(700);
const PORTS: usize = 20;

#[derive(Serialize)]
struct Listening<'a> {
    kind: &'static str,
    port: u16,
    interface: &'a str,
}

pub fn serve(spec: &Spec) -> anyhow::Result<()> {
    let stop = StopSignal::install()?;
    if spec.is_inside {
        pair::set_up(pair::SERVER, &spec.rps)?;
    }
    let interface = interface_of(spec.address)
        .with_context(|| format!("no interface of this host has the address {}", spec.address))?;
    let (listener, sockets) = listen(spec)?;
    write(&Listening { kind: "listening", port: listener.local_addr()?.port(), interface: &interface })?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .enumerate()
            .map(|(number, socket)| {
                let is_over = &is_over;
                scope.spawn(move || {
                    spec.server.settle(number)?;
                    answer(socket, spec.token, is_over)
                })
            })
            .collect();
        let served = tell(spec, &listener, &interface, &stop, || threads.iter().any(|t| t.is_finished()));
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("a thread of the server panicked")?;
        }
        served
    })
}

/// The port for counters, and as many sockets of the same number as there are threads.
fn listen(spec: &Spec) -> anyhow::Result<(TcpListener, Vec<UdpSocket>)> {
    let mut last = None;
    // A free port of TCP need not be free for UDP.
    for _ in 0..PORTS {
        let listener = TcpListener::bind((spec.address, spec.port))
            .with_context(|| format!("cannot listen on {}", spec.address))?;
        let address = listener.local_addr()?;
        match (0..spec.server.threads).map(|_| shared(address)).collect::<Result<Vec<_>, _>>() {
            Ok(sockets) => return Ok((listener, sockets)),
            Err(error) => last = Some(error),
        }
    }
    Err(last.expect("several attempts")).with_context(|| format!("cannot receive on {}", spec.address))
}

/// Replies to every request that has the token.
fn answer(socket: &UdpSocket, token: Token, is_over: &AtomicBool) -> anyhow::Result<()> {
    socket.set_read_timeout(Some(LOOK))?;
    let mut batch = Batch::new(true);
    while !is_over.load(Ordering::Relaxed) {
        let count = batch.receive(socket, libc::MSG_WAITFORONE)?;
        let mut replies = 0;
        for at in 0..count {
            if let Some(head) = Head::read(token, batch.received(at)) {
                batch.swap(replies, at);
                batch.set_length(replies, head.reply_length());
                replies += 1;
            }
        }
        let mut sent = 0;
        while sent < replies {
            match batch.send(socket, sent, replies)? {
                // What the kernel has no room for is lost, as it would be on the wire: the client counts it.
                0 => break,
                more => sent += more,
            }
        }
    }
    Ok(())
}

/// Waits for the client, and answers it until it leaves.
fn tell(
    spec: &Spec,
    listener: &TcpListener,
    interface: &str,
    stop: &StopSignal,
    has_failed: impl Fn() -> bool,
) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs_f64(spec.most_s);
    while !stop.is_set() && !has_failed() && Instant::now() < end {
        let mut files =
            [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        if poll(&mut files, Some(&wait)).unwrap_or(0) == 0 || files[0].revents().is_empty() {
            continue;
        }
        let (stream, from) = listener.accept()?;
        // Somebody else's connection is closed, and the client may still come.
        if is_ours(&stream, spec.token) {
            return talk(stream, from, interface, stop);
        }
    }
    Ok(())
}

fn is_ours(stream: &TcpStream, token: Token) -> bool {
    let mut line = String::new();
    stream.set_read_timeout(Some(Duration::from_secs(5))).is_ok()
        && BufReader::new(std::io::Read::take(stream, 33)).read_line(&mut line).is_ok()
        && Token::try_from(line.trim_end().to_owned()) == Ok(token)
}

/// One line of counters for every line that comes; a stop ends it, too.
fn talk(stream: TcpStream, from: SocketAddr, interface: &str, stop: &StopSignal) -> anyhow::Result<()> {
    let mut counters = Counters::new(interface);
    let mut writer = stream.try_clone()?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    loop {
        let mut files =
            [PollFd::new(&stream, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        let silence = Timespec { tv_sec: SILENCE.as_secs().cast_signed(), tv_nsec: 0 };
        if poll(&mut files, Some(&silence)).unwrap_or(0) == 0 || stop.is_set() {
            return Ok(());
        }
        line.clear();
        if reader.read_line(&mut line).with_context(|| format!("the client at {from}"))? == 0 {
            return Ok(());
        }
        let mut text = serde_json::to_vec(&counters.read())?;
        text.push(b'\n');
        writer.write_all(&text)?;
    }
}
