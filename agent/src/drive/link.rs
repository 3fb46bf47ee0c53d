//! A connection's socket: non-blocking, plain or encrypted.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::net::sockopt::{set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use rustls::ClientConnection;

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
                let none = || io::Error::new(ErrorKind::NotFound, "the name has no address");
                first.map(Address::Tcp).ok_or_else(none)
            }
        }
    }
}

/// One socket. What could not be sent at once waits here.
pub struct Link {
    socket: OwnedFd,
    tls: Option<Box<ClientConnection>>,
    unsent: Vec<u8>,
}

/// What a read found.
pub enum Received {
    Bytes(usize),
    Nothing,
    Closed,
}

impl Link {
    /// Begins to connect; the socket is writable when that has ended, well or not (`connect_error`).
    pub fn connect(address: &Address) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, result) = match address {
            Address::Unix(path) => {
                let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                let result = connect(&socket, &SocketAddrUnix::new(path)?);
                (socket, result)
            }
            Address::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                set_tcp_nodelay(&socket, true)?;
                let result = connect(&socket, address);
                (socket, result)
            }
        };
        match result {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(Self { socket, tls: None, unsent: Vec::new() }),
            Err(error) => Err(error.into()),
        }
    }

    /// Why connecting failed, once it has ended.
    pub fn connect_error(&self) -> io::Result<()> {
        Ok(socket_error(&self.socket)??)
    }

    pub fn encrypt(&mut self, session: Box<ClientConnection>) {
        self.tls = Some(session);
    }

    /// Whether something waits until the socket takes it.
    pub fn is_blocked(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends all of it, or keeps what the socket does not take yet.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            session.writer().write_all(bytes)?;
            return self.send_encrypted();
        }
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return self.flush();
        }
        let count = send_now(&self.socket, bytes)?;
        self.unsent.extend_from_slice(&bytes[count..]);
        Ok(())
    }

    /// Sends more of what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        let count = send_now(&self.socket, &self.unsent)?;
        self.unsent.drain(..count);
        Ok(())
    }

    fn send_encrypted(&mut self) -> io::Result<()> {
        if let Some(session) = &mut self.tls {
            while session.wants_write() {
                session.write_tls(&mut self.unsent)?;
            }
        }
        self.flush()
    }

    /// Reads what has come, as far as `buffer` goes. Encrypted, `plain` gets what it means.
    pub fn receive(&mut self, buffer: &mut [u8], plain: &mut Vec<u8>) -> io::Result<Received> {
        let count = match recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Ok(Received::Closed),
            Ok((count, _)) => count,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        let Some(session) = &mut self.tls else { return Ok(Received::Bytes(count)) };
        plain.clear();
        let mut wire = &buffer[..count];
        while !wire.is_empty() {
            if session.read_tls(&mut wire)? == 0 {
                break;
            }
            let state = session.process_new_packets().map_err(io::Error::other)?;
            let start = plain.len();
            plain.resize(start + state.plaintext_bytes_to_read(), 0);
            session.reader().read_exact(&mut plain[start..])?;
        }
        self.send_encrypted()?;
        Ok(if plain.is_empty() { Received::Nothing } else { Received::Bytes(plain.len()) })
    }

    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// How much of it the socket took.
fn send_now(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match send(socket, &bytes[sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(count) => sent += count,
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}
