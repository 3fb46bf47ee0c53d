//! The beginning of a connection where the proxy ends encryption, adds it, or takes the offer of it away. Packets are
//! numbered, and a request for TLS is one more: where only one leg has it, the numbers of the login are moved by one.
//! What a plugin says is passed on as it is.

use crate::stream::Side;
use crate::wire::{BalancerHeader, HeaderStep};
use mysql::frames::HEADER;

/// Bytes of a request for TLS, and of what is before the user of a login.
const FIXED: usize = 32;
/// CLIENT_SSL in the second byte of the flags.
const SSL: u8 = 0x08;
/// No packet of a login is longer than this: nonces, certificates of plugins, attributes.
const LONGEST: usize = 256 * 1024;

/// What the proxy does to connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// There is a certificate: clients may encrypt.
    pub ends_tls: bool,
    /// Clients are told that the server cannot encrypt.
    pub hides_tls: bool,
    /// The way to the server is encrypted.
    pub server_tls: bool,
}

impl Rules {
    pub fn touch_logins(self) -> bool {
        self.ends_tls || self.hides_tls || self.server_tls
    }
}

/// One thing to do, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Act {
    Send(Side, Vec<u8>),
    /// The decoder sees what the client sees and says, without the request for TLS.
    Record(Side, Vec<u8>),
    /// From here on this leg is encrypted; the bytes came behind the request for it.
    Encrypt(Side, Vec<u8>),
    /// Nothing is changed from here on; the bytes came behind what was looked at.
    Over(Side, Vec<u8>),
    Refuse(&'static str),
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Greeting,
    Hello,
    Login,
}

#[derive(Debug)]
pub struct Login {
    rules: Rules,
    stage: Stage,
    /// What a balancer may say before the server speaks; None when it is over, or was none.
    header: Option<BalancerHeader>,
    /// What may still be the beginning of it.
    begun: Vec<u8>,
    from_client: Held,
    from_server: Held,
    /// What to add to a number on its way to the server.
    shift: u8,
}

impl Login {
    pub fn new(rules: Rules) -> Self {
        Login {
            rules,
            stage: Stage::default(),
            header: Some(BalancerHeader::default()),
            begun: Vec::new(),
            from_client: Held::default(),
            from_server: Held::default(),
            shift: 0,
        }
    }

    /// Takes what one side said.
    pub fn take(&mut self, from: Side, bytes: &[u8]) -> Vec<Act> {
        let mut acts = Vec::new();
        let used = if from == Side::Client { self.take_header(bytes, &mut acts) } else { 0 };
        let bytes = &bytes[used..];
        let held = match from {
            Side::Client => &mut self.from_client,
            Side::Server => &mut self.from_server,
        };
        held.add(bytes);
        loop {
            let held = match from {
                Side::Client => &mut self.from_client,
                Side::Server => &mut self.from_server,
            };
            let Some(packet) = held.packet() else {
                if held.len() > LONGEST {
                    acts.push(Act::Refuse("a packet of the login is too long"));
                }
                return acts;
            };
            match (&self.stage, from) {
                (Stage::Greeting, Side::Server) => self.greeting(packet, &mut acts),
                (Stage::Hello, Side::Client) => self.hello(packet, &mut acts),
                (Stage::Login, _) => self.step(from, packet, &mut acts),
                _ => acts.push(Act::Refuse("a packet of the login is out of order")),
            }
            if matches!(acts.last(), Some(Act::Over(..) | Act::Encrypt(..) | Act::Refuse(_))) {
                return acts;
            }
        }
    }

    /// The length of a balancer's header, which is passed on unchanged for the server to read.
    fn take_header(&mut self, bytes: &[u8], acts: &mut Vec<Act>) -> usize {
        let Some(header) = self.header.as_mut().filter(|_| self.stage == Stage::Greeting) else {
            if !self.begun.is_empty() {
                self.from_client.add(&std::mem::take(&mut self.begun));
            }
            return 0;
        };
        let used = match header.take(bytes) {
            HeaderStep::More => {
                self.begun.extend_from_slice(bytes);
                return bytes.len();
            }
            HeaderStep::Done(used) => used,
            // It was none, and so what a client says.
            HeaderStep::Other => {
                self.header = None;
                self.from_client.add(&std::mem::take(&mut self.begun));
                return 0;
            }
        };
        self.header = None;
        let mut whole = std::mem::take(&mut self.begun);
        whole.extend_from_slice(&bytes[..used]);
        acts.push(Act::Record(Side::Client, whole.clone()));
        acts.push(Act::Send(Side::Server, whole));
        used
    }

    fn greeting(&mut self, mut packet: Vec<u8>, acts: &mut Vec<Act>) {
        if packet.get(HEADER) == Some(&10) {
            // Version, number of the thread, nonce, a NUL, then the lower half of the flags.
            let version = packet[HEADER + 1..].iter().position(|byte| *byte == 0);
            let flags = version.and_then(|length| packet.get_mut(HEADER + 1 + length + 1 + 4 + 8 + 1 + 1));
            let Some(flags) = flags else {
                return acts.push(Act::Refuse("the server's greeting is malformed"));
            };
            if self.rules.server_tls && *flags & SSL == 0 {
                return acts.push(Act::Refuse("the server does not offer TLS"));
            }
            *flags = if self.rules.ends_tls { *flags | SSL } else { *flags & !SSL };
            self.stage = Stage::Hello;
            acts.push(Act::Record(Side::Server, packet.clone()));
            return acts.push(Act::Send(Side::Client, packet));
        }
        // An error: too many connections.
        acts.push(Act::Record(Side::Server, packet.clone()));
        acts.push(Act::Send(Side::Client, packet));
        acts.push(Act::Over(Side::Server, self.from_server.rest()));
    }

    fn hello(&mut self, packet: Vec<u8>, acts: &mut Vec<Act>) {
        let length = packet.len() - HEADER;
        let wants_tls = packet.get(HEADER + 1).is_some_and(|flags| flags & SSL != 0);
        if length == FIXED && wants_tls {
            if self.rules.ends_tls {
                return acts.push(Act::Encrypt(Side::Client, self.from_client.rest()));
            }
            return acts.push(Act::Refuse("encryption was not offered"));
        }
        if length < FIXED {
            return acts.push(Act::Refuse("the login is malformed"));
        }
        acts.push(Act::Record(Side::Client, packet.clone()));
        let client_sequence = packet[3];
        let mut login = packet;
        if self.rules.server_tls {
            login[HEADER + 1] |= SSL;
            login[3] = 2;
            let mut request = vec![FIXED as u8, 0, 0, 1];
            request.extend_from_slice(&login[HEADER..HEADER + FIXED]);
            acts.push(Act::Send(Side::Server, request));
            acts.push(Act::Encrypt(Side::Server, Vec::new()));
        } else {
            login[HEADER + 1] &= !SSL;
            login[3] = 1;
        }
        self.shift = login[3].wrapping_sub(client_sequence);
        acts.push(Act::Send(Side::Server, login));
        self.stage = Stage::Login;
        if self.shift == 0 {
            acts.push(Act::Over(Side::Client, self.from_client.rest()));
        }
    }

    fn step(&mut self, from: Side, mut packet: Vec<u8>, acts: &mut Vec<Act>) {
        match from {
            Side::Client => {
                acts.push(Act::Record(Side::Client, packet.clone()));
                packet[3] = packet[3].wrapping_add(self.shift);
                acts.push(Act::Send(Side::Server, packet));
            }
            Side::Server => {
                packet[3] = packet[3].wrapping_sub(self.shift);
                let is_last = matches!(packet.get(HEADER), Some(0x00 | 0xFF));
                acts.push(Act::Record(Side::Server, packet.clone()));
                acts.push(Act::Send(Side::Client, packet));
                if is_last {
                    acts.push(Act::Over(Side::Server, self.from_server.rest()));
                }
            }
        }
    }
}

/// What came from one side and is not looked at yet. A packet is taken by moving on: a megabyte of empty ones would
/// be moved as often as there are any.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    taken: usize,
}

impl Held {
    fn add(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// The first whole packet, with its header.
    fn packet(&mut self) -> Option<Vec<u8>> {
        let held = &self.bytes[self.taken..];
        let [a, b, c, _, ..] = *held else { return None };
        let packet = held.get(..HEADER + u32::from_le_bytes([a, b, c, 0]) as usize)?.to_vec();
        self.taken += packet.len();
        Some(packet)
    }

    /// All that is left.
    fn rest(&mut self) -> Vec<u8> {
        let rest = self.bytes.split_off(self.taken);
        *self = Held::default();
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::{Act, Login, Rules};
    use crate::stream::Side;

    const GREETING: &[u8] = b"\x19\0\0\0\x0a8\0\x01\0\0\0abcdefgh\0\xff\xff\x2d\x02\0\xff\xff\x15";

    fn hello(sequence: u8, flags: u8) -> Vec<u8> {
        let mut packet = vec![40, 0, 0, sequence, 0x0D, flags];
        packet.extend([0; 38]);
        packet
    }

    fn sent(acts: &[Act], to: Side) -> Vec<Vec<u8>> {
        let bytes = |act: &Act| match act {
            Act::Send(side, bytes) if *side == to => Some(bytes.clone()),
            _ => None,
        };
        acts.iter().filter_map(bytes).collect()
    }

    #[test]
    fn numbers_are_moved_where_only_the_client_encrypts() {
        let mut login = Login::new(Rules { ends_tls: true, ..Rules::default() });
        let mut greeting = GREETING.to_vec();
        let end = greeting.len() - HEADER_BYTES;
        greeting[0] = end as u8;
        assert_eq!(sent(&login.take(Side::Server, &greeting), Side::Client).len(), 1);
        let mut request = hello(1, 0x08);
        request.truncate(36);
        request[0] = 32;
        request.extend(b"\x16\x03");
        assert_eq!(login.take(Side::Client, &request), [Act::Encrypt(Side::Client, b"\x16\x03".to_vec())]);
        let acts = login.take(Side::Client, &hello(2, 0x08));
        let to_server = &sent(&acts, Side::Server)[0];
        assert_eq!((to_server[3], to_server[5] & 0x08), (1, 0));
        let acts = login.take(Side::Server, b"\x02\0\0\x02\x01\x04\x01\0\0\x03\0");
        assert_eq!(sent(&acts, Side::Client), [b"\x02\0\0\x03\x01\x04".to_vec(), b"\x01\0\0\x04\0".to_vec()]);
        assert_eq!(acts.last(), Some(&Act::Over(Side::Server, Vec::new())));
    }

    const HEADER_BYTES: usize = 4;

    #[test]
    fn a_balancers_header_goes_on_as_it_is() {
        let mut login = Login::new(Rules { hides_tls: true, ..Rules::default() });
        let header = b"PROXY TCP4 203.0.113.9 127.0.0.1 45678 3306\r\n";
        assert_eq!(login.take(Side::Client, &header[..7]), []);
        assert_eq!(
            login.take(Side::Client, &header[7..]),
            [Act::Record(Side::Client, header.to_vec()), Act::Send(Side::Server, header.to_vec())]
        );
        let mut greeting = GREETING.to_vec();
        greeting[0] = (greeting.len() - HEADER_BYTES) as u8;
        assert_eq!(sent(&login.take(Side::Server, &greeting), Side::Client).len(), 1);
        assert_eq!(sent(&login.take(Side::Client, &hello(1, 0)), Side::Server), [hello(1, 0)]);
        // What only looks like one is refused as before.
        let mut login = Login::new(Rules { hides_tls: true, ..Rules::default() });
        assert!(matches!(login.take(Side::Client, b"POST / HTTP/1.1\r\n\r\n")[..], [] | [Act::Refuse(_)]));
        let in_pieces = |pieces: &[&[u8]]| {
            let mut login = Login::new(Rules { hides_tls: true, ..Rules::default() });
            pieces.iter().flat_map(|piece| login.take(Side::Client, piece)).collect::<Vec<_>>()
        };
        assert_eq!(in_pieces(&[b"\r", b"\0\0\x01no"]), in_pieces(&[b"\r\0\0\x01no"]));
    }

    #[test]
    fn nothing_is_moved_where_nobody_encrypts_and_the_offer_is_gone() {
        let mut login = Login::new(Rules { hides_tls: true, ..Rules::default() });
        let mut greeting = GREETING.to_vec();
        greeting[0] = (greeting.len() - HEADER_BYTES) as u8;
        let shown = &sent(&login.take(Side::Server, &greeting), Side::Client)[0];
        assert_eq!(shown[HEADER_BYTES + 17] & 0x08, 0);
        let acts = login.take(Side::Client, &hello(1, 0));
        assert_eq!(sent(&acts, Side::Server), [hello(1, 0)]);
        assert_eq!(acts.last(), Some(&Act::Over(Side::Client, Vec::new())));
    }
}
