//! The sockets of a thread, and what happens on them: by io_uring where the kernel has it and lets us, by epoll
//! elsewhere.
//!
//! Measured on one thread in a closed loop of prepared point selects over loopback TCP, Linux 6.18, in interleaved
//! rounds: io_uring spends a fifth to a quarter less CPU an operation than epoll with 8 connections, and a third less
//! with 2,000 (`make bench` repeats it with `HEADRACE_IO`). One system call submits every request and takes every
//! reply of a round, where epoll needs two for each and one more. Multishot receives with shared buffers brought
//! nothing beyond that.

mod epoll;
mod uring;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use self::epoll::EpollNet;
use self::uring::UringNet;
use crate::error::AgentError;
use crate::mysql::Endpoint;

/// Where to connect: a name is looked up once, before the load begins.
#[derive(Clone, Debug)]
pub enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Address {
    /// The first address of the name.
    pub fn of(endpoint: &Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Socket(path) => Ok(Address::Unix(path.clone())),
            Endpoint::Tcp { host, port } => {
                let first = (host.as_str(), *port).to_socket_addrs()?.next();
                let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
                first.map(Address::Tcp).ok_or_else(none)
            }
        }
    }

    /// A socket for it, not connected.
    fn socket(&self, flags: SocketFlags) -> io::Result<OwnedFd> {
        let family = match self {
            Address::Unix(_) => AddressFamily::UNIX,
            Address::Tcp(SocketAddr::V4(_)) => AddressFamily::INET,
            Address::Tcp(SocketAddr::V6(_)) => AddressFamily::INET6,
        };
        let socket = socket_with(family, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)?;
        if family != AddressFamily::UNIX {
            set_tcp_nodelay(&socket, true)?;
        }
        Ok(socket)
    }
}

/// What happened on a connection; `Net::bytes` has what was received.
#[derive(Debug)]
pub enum Happened {
    Connected,
    Received,
    Closed,
    Broken(io::Error),
}

/// The connections of one thread, each under the place of its client.
pub enum Net {
    Epoll(EpollNet),
    Uring(UringNet),
}

impl Net {
    /// For so many clients. `HEADRACE_IO` may demand `epoll` or `uring`.
    pub fn open(clients: usize) -> anyhow::Result<Self> {
        match std::env::var("HEADRACE_IO").as_deref() {
            Ok("epoll") => Ok(Net::Epoll(EpollNet::open(clients)?)),
            Ok("uring") => Ok(Net::Uring(UringNet::open(clients)?)),
            Ok(other) => {
                Err(AgentError::Input(format!("HEADRACE_IO={other}: there are epoll and uring")).into())
            }
            // An old kernel has none, and a container or an administrator may forbid it.
            Err(_) => match UringNet::open(clients) {
                Ok(net) => Ok(Net::Uring(net)),
                Err(_) => Ok(Net::Epoll(EpollNet::open(clients)?)),
            },
        }
    }

    /// Begins to connect; `Connected` or `Broken` tells how it ended.
    pub fn connect(&mut self, place: usize, address: &Address) -> io::Result<()> {
        match self {
            Net::Epoll(net) => net.connect(place, address),
            Net::Uring(net) => net.connect(place, address),
        }
    }

    /// Sends all of it in the end; bytes keep their order. io_uring sends at the next `wait`.
    pub fn send(&mut self, place: usize, bytes: &[u8]) -> io::Result<()> {
        match self {
            Net::Epoll(net) => net.send(place, bytes),
            Net::Uring(net) => net.send(place, bytes),
        }
    }

    /// Closes the connection; nothing of it happens any more.
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

    /// The next thing that happened, without waiting.
    pub fn next(&mut self) -> Option<(usize, Happened)> {
        match self {
            Net::Epoll(net) => net.next(),
            Net::Uring(net) => net.next(),
        }
    }

    /// What came with the last `Received`.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Net::Epoll(net) => net.bytes(),
            Net::Uring(net) => net.bytes(),
        }
    }
}
