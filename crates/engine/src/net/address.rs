//! Where to connect.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use base::error::AgentError;
use mysql::Endpoint;

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

    /// The same, where a name without an address ends the program.
    ///
    /// # Errors
    /// It has none.
    pub fn found(endpoint: &Endpoint) -> Result<Self, AgentError> {
        Self::of(endpoint)
            .map_err(|error| AgentError::Unreachable(format!("cannot find {endpoint}: {error}")))
    }

    /// A socket for it, not connected.
    pub fn socket(&self, flags: SocketFlags) -> io::Result<OwnedFd> {
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

    /// A socket that does not block, on its way to be connected.
    pub fn connect(&self) -> io::Result<OwnedFd> {
        let fd = self.socket(SocketFlags::NONBLOCK)?;
        let result = match self {
            Address::Unix(path) => connect(&fd, &SocketAddrUnix::new(path)?),
            Address::Tcp(address) => connect(&fd, address),
        };
        match result {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
            Err(error) => Err(error.into()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "{}", path.display()),
            Address::Tcp(address) => write!(f, "{address}"),
        }
    }
}
