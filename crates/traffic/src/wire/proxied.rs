//! The PROXY protocol: what a balancer says of its client before the connection's first byte of MySQL.
//!
//! Source: haproxy's `doc/proxy-protocol.txt`, versions 1 (a line of text) and 2 (binary, with TLVs). A header counts
//! only if all of it is as it should be: a server refuses any other one as well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const LINE: &[u8] = b"PROXY ";
/// The longest line, with its end.
const LONGEST_LINE: usize = 107;
const FIXED: usize = 16;
/// Of what follows only the two addresses of IPv6 are looked at; paths of sockets and TLVs are passed over.
const ADDRESSES: usize = 32;

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub kind: &'static str,
    /// The client's host; None if the header names none (a balancer's own checks).
    pub host: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// All bytes belong to it, and more of it is to come.
    More,
    /// It ends after this many of the bytes.
    Done(usize),
    /// These bytes and those before are no header.
    Other,
}

/// Reads a header that comes in pieces.
#[derive(Debug, Default)]
pub struct Header {
    held: Vec<u8>,
    /// What is still to come and is not looked at.
    skip: usize,
    named: Option<Named>,
}

impl Header {
    /// Takes the client's next bytes.
    pub fn take(&mut self, bytes: &[u8]) -> Step {
        let mut at = 0;
        while self.named.is_none() {
            match read(&self.held) {
                Read::Missing(missing) => {
                    let here = missing.min(bytes.len() - at);
                    if here == 0 {
                        return Step::More;
                    }
                    self.held.extend_from_slice(&bytes[at..at + here]);
                    at += here;
                }
                Read::Header(named, skip) => (self.named, self.skip) = (Some(named), skip),
                Read::Other => return Step::Other,
            }
        }
        let passed = self.skip.min(bytes.len() - at);
        self.skip -= passed;
        if self.skip > 0 { Step::More } else { Step::Done(at + passed) }
    }

    /// Bytes that were taken for the beginning of one.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// What it says, once it is whole.
    pub fn named(&self) -> Option<&Named> {
        self.named.as_ref().filter(|_| self.skip == 0)
    }
}

enum Read {
    /// At least so many bytes more are needed.
    Missing(usize),
    /// A header, and how many bytes of it follow that are not looked at.
    Header(Named, usize),
    Other,
}

fn read(held: &[u8]) -> Read {
    let is_begin_of = |whole: &[u8]| whole.starts_with(&held[..held.len().min(whole.len())]);
    if held.len() < LINE.len() && is_begin_of(LINE) || held.starts_with(LINE) {
        return match held.strip_suffix(b"\n") {
            Some(line) => {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                line_of(line).map_or(Read::Other, |named| Read::Header(named, 0))
            }
            None if held.len() >= LONGEST_LINE => Read::Other,
            // Its end is searched for byte by byte, so that nothing behind it is taken.
            None => Read::Missing(1),
        };
    }
    if !is_begin_of(SIGNATURE) {
        return Read::Other;
    }
    let Some(fixed) = held.first_chunk::<FIXED>() else { return Read::Missing(FIXED - held.len()) };
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    let wanted = FIXED + length.min(ADDRESSES);
    if held.len() < wanted {
        return Read::Missing(wanted - held.len());
    }
    binary(fixed[12], fixed[13], &held[FIXED..wanted])
        .map_or(Read::Other, |named| Read::Header(named, FIXED + length - wanted))
}

/// `PROXY TCP4 192.0.2.1 192.0.2.2 40000 3306`, or `PROXY UNKNOWN` and anything.
fn line_of(line: &[u8]) -> Option<Named> {
    let text = std::str::from_utf8(line.strip_prefix(LINE)?).ok()?;
    let mut words = text.split(' ');
    let family = words.next()?;
    if family == "UNKNOWN" {
        return Some(Named { kind: "PROXY v1 UNKNOWN", host: None });
    }
    let (from, to) = (words.next()?, words.next()?);
    let ports = [words.next()?, words.next()?];
    let is_port = |port: &&str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    if words.next().is_some() || !ports.iter().all(is_port) {
        return None;
    }
    let address: IpAddr = match family {
        "TCP4" => {
            to.parse::<Ipv4Addr>().ok()?;
            from.parse::<Ipv4Addr>().ok()?.into()
        }
        "TCP6" => {
            to.parse::<Ipv6Addr>().ok()?;
            from.parse::<Ipv6Addr>().ok()?.into()
        }
        _ => return None,
    };
    Some(named("PROXY v1", address))
}

fn binary(version_command: u8, family: u8, addresses: &[u8]) -> Option<Named> {
    match version_command {
        0x20 => return Some(Named { kind: "PROXY v2 LOCAL", host: None }),
        0x21 => {}
        _ => return None,
    }
    Some(match family {
        0x11 | 0x12 => match addresses.first_chunk::<4>().filter(|_| addresses.len() >= 12) {
            Some(from) => named("PROXY v2", Ipv4Addr::from(*from).into()),
            None => Named { kind: "PROXY v2 without its addresses", host: None },
        },
        0x21 | 0x22 => match addresses.first_chunk::<16>().filter(|_| addresses.len() >= 32) {
            Some(from) => named("PROXY v2", Ipv6Addr::from(*from).into()),
            None => Named { kind: "PROXY v2 without its addresses", host: None },
        },
        // As servers name who comes by a socket of the system.
        0x31 | 0x32 => Named { kind: "PROXY v2 UNIX", host: Some("localhost".to_owned()) },
        _ => Named { kind: "PROXY v2 UNSPEC", host: None },
    })
}

fn named(kind: &'static str, address: IpAddr) -> Named {
    let address = address.to_canonical();
    // The address that stands for any names nobody.
    Named { kind, host: (!address.is_unspecified()).then(|| address.to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(version_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = (body.len() as u16).to_be_bytes();
        [SIGNATURE, &[version_command, family], &length, body].concat()
    }

    fn v6(from: &str, to: &str) -> Vec<u8> {
        let octets = |text: &str| text.parse::<Ipv6Addr>().unwrap().octets();
        [&octets(from)[..], &octets(to), &[0x9c, 0x40, 0x0c, 0xea]].concat()
    }

    /// What a header says in pieces of every size, with a login behind it.
    fn said(header: &[u8]) -> Option<(&'static str, Option<String>)> {
        let whole = [header, b"T\0\0\x01"].concat();
        let mut answers = Vec::new();
        for size in 1..=whole.len() {
            let mut reader = Header::default();
            let mut used = None;
            let mut at = 0;
            for piece in whole.chunks(size) {
                match reader.take(piece) {
                    Step::More => at += piece.len(),
                    Step::Done(count) => {
                        used = Some(at + count);
                        break;
                    }
                    Step::Other => break,
                }
            }
            assert!(used.is_none_or(|used| used == header.len()), "{size}: {used:?} of {}", header.len());
            answers.push(used.and(reader.named().cloned()));
        }
        assert!(answers.windows(2).all(|pair| pair[0] == pair[1]), "{answers:?}");
        answers[0].clone().map(|named| (named.kind, named.host))
    }

    #[test]
    fn every_kind_of_header_names_its_client() {
        let host = |host: &str| Some(host.to_owned());
        let long = vec![7; 3000];
        for (header, expected) in [
            (b"PROXY TCP4 203.0.113.9 127.0.0.1 45678 3306\r\n".to_vec(), ("PROXY v1", host("203.0.113.9"))),
            (b"PROXY TCP6 2001:db8::9 ::1 45678 3306\r\n".to_vec(), ("PROXY v1", host("2001:db8::9"))),
            (b"PROXY TCP6 ::ffff:192.0.2.7 ::1 1 3306\r\n".to_vec(), ("PROXY v1", host("192.0.2.7"))),
            (b"PROXY UNKNOWN\r\n".to_vec(), ("PROXY v1 UNKNOWN", None)),
            (b"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n".to_vec(), ("PROXY v1 UNKNOWN", None)),
            (v2(0x21, 0x11, &[203, 0, 113, 9, 127, 0, 0, 1, 1, 2, 3, 4]), ("PROXY v2", host("203.0.113.9"))),
            (v2(0x21, 0x21, &v6("2001:db8::9", "::1")), ("PROXY v2", host("2001:db8::9"))),
            (
                v2(0x21, 0x11, &[&[203, 0, 113, 9, 127, 0, 0, 1, 1, 2, 3, 4][..], &long].concat()),
                ("PROXY v2", host("203.0.113.9")),
            ),
            (v2(0x21, 0x31, &[b'/'; 216]), ("PROXY v2 UNIX", host("localhost"))),
            (v2(0x20, 0, &[]), ("PROXY v2 LOCAL", None)),
            (v2(0x20, 0x11, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]), ("PROXY v2 LOCAL", None)),
            (v2(0x21, 0, &[]), ("PROXY v2 UNSPEC", None)),
            (v2(0x21, 0x11, &[]), ("PROXY v2 without its addresses", None)),
            (v2(0x21, 0x11, &[0; 12]), ("PROXY v2", None)),
        ] {
            assert_eq!(said(&header), Some(expected), "{header:?}");
        }
    }

    #[test]
    fn what_is_no_header_is_none() {
        let without_end = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 200]].concat();
        for other in [
            b"PROXY TCP4 203.0.113 127.0.0.1 45678 3306\r\n".to_vec(),
            b"PROXY TCP4 203.0.113.9 127.0.0.1 45678 99999\r\n".to_vec(),
            b"PROXY TCP4 203.0.113.9 127.0.0.1 45678\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 45678 3306\r\n".to_vec(),
            b"PROXY UDP4 203.0.113.9 127.0.0.1 45678 3306\r\n".to_vec(),
            b"POST / HTTP/1.1\r\n".to_vec(),
            b"\r\n\r\n\0\r\nQUIX".to_vec(),
            v2(0x31, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            without_end,
        ] {
            assert_eq!(said(&other), None, "{other:?}");
        }
    }
}
