//! The socket of the blocking client: frames over it, plain or encrypted, with a deadline.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustls::{ClientConnection, StreamOwned};

use super::error::Error;
use super::frames::{Frames, encode};
use super::options::{Endpoint, Options};
use super::tls;

/// Answers to our queries are far smaller; a server that sends more would fill the memory.
pub const LARGEST_ANSWER: usize = 64 << 20;

/// Frames over a socket, with a deadline for the current exchange.
pub struct Wire {
    stream: Stream,
    frames: Frames,
    out: Vec<u8>,
    limit: Duration,
    deadline: Instant,
    is_limited_in_total: bool,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

pub enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Wire {
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let socket = Socket::connect(options)
            .map_err(|cause| Error::Connect { place: options.endpoint.to_string(), cause })?;
        Ok(Self {
            stream: Stream::Plain(socket),
            frames: Frames::default(),
            out: Vec::new(),
            limit: options.connect_timeout,
            deadline: Instant::now() + options.connect_timeout,
            is_limited_in_total: false,
        })
    }

    /// Continues over TLS. The handshake happens with the first bytes that are sent.
    pub fn encrypt(self, options: &Options) -> Result<Self, Error> {
        if self.frames.has_rest() {
            return Err(Error::Malformed("there are bytes between the greeting and TLS"));
        }
        let Stream::Plain(socket) = self.stream else { unreachable!("encrypted once") };
        let stream = StreamOwned::new(tls::session(options)?, socket);
        Ok(Self { stream: Stream::Tls(Box::new(stream)), ..self })
    }

    pub fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.out.clear();
        encode(payload, &mut self.frames.sequence, &mut self.out);
        let written = match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(&self.out),
            Stream::Tls(stream) => stream.write_all(&self.out).and_then(|()| stream.flush()),
        };
        written.map_err(|cause| self.explain(cause))
    }

    /// A new exchange: its packets are numbered from 0, and it has to be over within `limit`.
    pub fn begin(&mut self, limit: Duration) {
        self.frames.sequence = 0;
        if !self.is_limited_in_total {
            self.frames.allow(LARGEST_ANSWER);
        }
        self.allow(limit);
    }

    /// From now on the exchange may take `limit`.
    pub fn allow(&mut self, limit: Duration) {
        self.limit = limit;
        self.deadline = Instant::now() + limit;
    }

    pub fn limit_in_total(&mut self) {
        self.frames.allow(LARGEST_ANSWER);
        self.is_limited_in_total = true;
    }

    /// Who keeps the answer needs `bytes` of memory more than it has on the wire.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        self.frames.charge(bytes)
    }

    pub fn socket(&self) -> &Socket {
        match &self.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        }
    }

    /// The next payload.
    pub fn read(&mut self) -> Result<&[u8], Error> {
        while !self.frames.has_payload()? {
            let space = self.frames.space();
            let count = match &mut self.stream {
                Stream::Plain(socket) => socket.read(space),
                Stream::Tls(stream) => stream.read(space),
            };
            match count {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => self.frames.advance(count),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.explain(cause)),
            }
            // The socket's own timeout is for one read; a server that drips bytes is as bad as a silent one.
            if Instant::now() > self.deadline {
                return Err(Error::Timeout(self.limit));
            }
        }
        Ok(self.frames.payload())
    }

    /// The payload that `read` returned last.
    pub fn payload(&self) -> &[u8] {
        self.frames.payload()
    }

    fn explain(&self, cause: io::Error) -> Error {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(self.limit),
            ErrorKind::UnexpectedEof => Error::Closed,
            _ if cause.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
                Error::Tls(cause.to_string())
            }
            _ => Error::Broken(cause),
        }
    }
}

impl Socket {
    /// Connected; a read or write of the login may take as long as the connect.
    fn connect(options: &Options) -> io::Result<Self> {
        let limit = options.connect_timeout;
        match &options.endpoint {
            Endpoint::Socket(path) => {
                let stream = connect_unix(path, limit)?;
                let socket = Socket::Unix(stream);
                socket.limit(limit)?;
                Ok(socket)
            }
            Endpoint::Tcp { host, port } => {
                let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, limit) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            let socket = Socket::Tcp(stream);
                            socket.limit(limit)?;
                            return Ok(socket);
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

/// The queue of a stalled server fills up, and then a plain connect would block forever.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

impl Socket {
    /// From now on a read or a write may take so long.
    pub fn limit(&self, limit: Duration) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_read_timeout(Some(limit))?,
            Socket::Tcp(stream) => stream.set_read_timeout(Some(limit))?,
        }
        self.limit_writes(limit)
    }

    /// From now on a write may take so long.
    pub fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        match self {
            Socket::Unix(stream) => stream.set_write_timeout(Some(limit)),
            Socket::Tcp(stream) => stream.set_write_timeout(Some(limit)),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(buffer),
            Socket::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(buffer),
            Socket::Tcp(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
