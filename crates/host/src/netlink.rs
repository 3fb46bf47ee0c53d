//! Questions to the kernel by netlink whose answer is a list: netlink(7).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

const HEADER_BYTES: usize = 16;
const REQUEST_DUMP: u16 = 0x301;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Of an attribute's kind: that it holds others, and that its number is in network byte order.
const FLAGS: u16 = 0xc000;

/// After an error the rest of an answer may still be in the socket: open a new one.
pub struct Netlink(OwnedFd);

impl Netlink {
    /// rtnetlink is number 0, for which rustix has `None`.
    pub fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(1)))?;
        Ok(Self(socket))
    }

    /// Asks for a list, and calls `each` with the kind and the body of each message of the answer.
    pub fn dump(&self, kind: u16, body: &[u8], mut each: impl FnMut(u16, &[u8])) -> io::Result<()> {
        let mut request = vec![0_u8; HEADER_BYTES];
        let length = (HEADER_BYTES + body.len()) as u32;
        request[..4].copy_from_slice(&length.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
        request.extend_from_slice(body);
        send(&self.0, &request, SendFlags::empty())?;
        let mut buffer = [0_u8; 32768];
        loop {
            let (length, _) = recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            if parse(&buffer[..length], &mut each)? {
                return Ok(());
            }
        }
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Calls `each` with the messages of a part of an answer; true at the end of the last part.
fn parse(mut answer: &[u8], each: &mut impl FnMut(u16, &[u8])) -> io::Result<bool> {
    while answer.len() >= HEADER_BYTES {
        let length = number(answer, 0) as usize;
        let Some(body) = answer.get(HEADER_BYTES..length) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        match u16::from_ne_bytes([answer[4], answer[5]]) {
            DONE => return Ok(true),
            ERROR if body.len() >= 4 => {
                return Err(io::Error::from_raw_os_error((number(body, 0) as i32).wrapping_neg()));
            }
            kind => each(kind, body),
        }
        answer = answer.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(false)
}

/// The attributes of a message, or of another attribute: kind and content. What is cut short ends them.
pub fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes([*rest.first()?, *rest.get(1)?]));
        let kind = u16::from_ne_bytes([*rest.get(2)?, *rest.get(3)?]);
        let content = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !FLAGS, content))
    })
}

/// Panics where there are no four bytes.
#[must_use]
pub fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::{attributes, parse};
    use proptest::prelude::{any, proptest};

    #[test]
    fn attributes_end_where_one_is_cut_short() {
        let bytes = [6, 0, 1, 0, b'h', b'i', 0, 0, 5, 0, 2, 0xc0, 7, 0, 0, 0, 9, 0, 3, 0, 1];
        let found: Vec<_> = attributes(&bytes).collect();
        assert_eq!(found, [(1, &b"hi"[..]), (2, &[7][..])]);
    }

    proptest! {
        #[test]
        fn no_answer_can_break_the_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300), length in 0..300_u32) {
            let mut bytes = bytes;
            if bytes.len() > 4 {
                bytes[..4].copy_from_slice(&length.max(16).to_ne_bytes());
            }
            let _ = parse(&bytes, &mut |_, body| assert!(attributes(body).count() <= body.len()));
        }
    }
}
