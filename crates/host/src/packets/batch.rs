//! Datagrams by the dozen: one system call sends or receives up to `MOST` of them.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd};

use super::message::LARGEST;

pub const MOST: usize = 32;
/// As much as a burst of small packets takes while the other end waits for a core.
const BUFFER_BYTES: libc::c_int = 8 << 20;

/// Buffers of `MOST` packets, and what the kernel has to know of them.
pub struct Batch {
    packets: Box<[[u8; LARGEST]; MOST]>,
    addresses: Box<[libc::sockaddr_storage; MOST]>,
    vectors: Box<[libc::iovec; MOST]>,
    headers: Box<[libc::mmsghdr; MOST]>,
}

// SAFETY: its pointers point into boxes that it owns; moving it does not move their contents.
unsafe impl Send for Batch {}

impl Batch {
    /// `with_addresses`: who sent a packet is kept, so that `send` answers it.
    pub fn new(with_addresses: bool) -> Self {
        // SAFETY: all zeros is a valid value of each: null pointers and lengths of 0.
        let mut batch = unsafe {
            Self {
                packets: Box::new([[0; LARGEST]; MOST]),
                addresses: Box::new(std::mem::zeroed()),
                vectors: Box::new(std::mem::zeroed()),
                headers: Box::new(std::mem::zeroed()),
            }
        };
        for at in 0..MOST {
            batch.vectors[at].iov_base = batch.packets[at].as_mut_ptr().cast();
            batch.vectors[at].iov_len = LARGEST;
            let header = &mut batch.headers[at].msg_hdr;
            header.msg_iov = &raw mut batch.vectors[at];
            header.msg_iovlen = 1;
            if with_addresses {
                header.msg_name = (&raw mut batch.addresses[at]).cast();
            }
        }
        batch
    }

    pub fn packet(&mut self, at: usize) -> &mut [u8; LARGEST] {
        &mut self.packets[at]
    }

    pub fn set_length(&mut self, at: usize, bytes: usize) {
        self.vectors[at].iov_len = bytes.min(LARGEST);
    }

    /// Packet `to` is sent to where packet `from` came from, with its content.
    pub fn swap(&mut self, to: usize, from: usize) {
        if to != from {
            self.packets.swap(to, from);
            self.addresses.swap(to, from);
            self.headers.swap(to, from);
            for at in [to, from] {
                // Lengths go with the packet; pointers stay.
                let header = &mut self.headers[at].msg_hdr;
                header.msg_iov = &raw mut self.vectors[at];
                if !header.msg_name.is_null() {
                    header.msg_name = (&raw mut self.addresses[at]).cast();
                }
            }
        }
    }

    /// How many came; 0 if there are none now. Waits for the first as long as the socket says, unless `flags` say not.
    pub fn receive(&mut self, socket: &UdpSocket, flags: libc::c_int) -> io::Result<usize> {
        for at in 0..MOST {
            self.vectors[at].iov_len = LARGEST;
            let header = &mut self.headers[at].msg_hdr;
            if !header.msg_name.is_null() {
                header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            }
        }
        // SAFETY: `MOST` headers, whose pointers lead to buffers of ours of the lengths they say.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                MOST as libc::c_uint,
                flags as _,
                std::ptr::null_mut(),
            )
        };
        done(count)
    }

    /// The bytes of the packet at `at`, as received.
    pub fn received(&self, at: usize) -> &[u8] {
        &self.packets[at][..(self.headers[at].msg_len as usize).min(LARGEST)]
    }

    /// How many of those from `first` to `end` the kernel took; 0 if it has no room now.
    pub fn send(&mut self, socket: &UdpSocket, first: usize, end: usize) -> io::Result<usize> {
        let headers = &mut self.headers[first..end];
        // SAFETY: as above; the kernel only reads the buffers.
        let taken = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        done(taken)
    }
}

/// A refused packet is that of an earlier one, and says nothing about this call.
fn done(count: libc::c_int) -> io::Result<usize> {
    if count >= 0 {
        return Ok(count as usize);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR | libc::ENOBUFS | libc::ECONNREFUSED) => Ok(0),
        _ => Err(error),
    }
}

/// A socket on an address that others of this process share: the kernel spreads flows over them.
pub fn shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: a plain system call; the descriptor is ours alone.
    let socket = unsafe {
        let fd = libc::socket(family, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        UdpSocket::from_raw_fd(fd)
    };
    set(&socket, libc::SO_REUSEPORT, 1)?;
    widen(&socket);
    // SAFETY: all zeros is a valid value of both; the kernel reads as many bytes as it is told.
    let bound = unsafe {
        match address {
            SocketAddr::V4(address) => {
                let mut raw: libc::sockaddr_in = std::mem::zeroed();
                raw.sin_family = libc::AF_INET as u16;
                raw.sin_port = address.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
                let length = size_of_val(&raw) as libc::socklen_t;
                libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length)
            }
            SocketAddr::V6(address) => {
                let mut raw: libc::sockaddr_in6 = std::mem::zeroed();
                raw.sin6_family = libc::AF_INET6 as u16;
                raw.sin6_port = address.port().to_be();
                raw.sin6_addr.s6_addr = address.ip().octets();
                raw.sin6_scope_id = address.scope_id();
                let length = size_of_val(&raw) as libc::socklen_t;
                libc::bind(socket.as_raw_fd(), (&raw const raw).cast(), length)
            }
        }
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// A socket of the client: one flow.
pub fn connected(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: IpAddr = if to.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    widen(&socket);
    Ok(socket)
}

/// Losses in a buffer that is too small would hide the limit of the path. Above the system's limit only root may go.
fn widen(socket: &UdpSocket) {
    for (forced, name) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set(socket, forced, BUFFER_BYTES).is_err() {
            let _ = set(socket, name, BUFFER_BYTES);
        }
    }
}

fn set(socket: &UdpSocket, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads an int that lives for the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
