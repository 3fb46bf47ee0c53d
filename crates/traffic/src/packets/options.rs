//! Which packets count: the servers' ports and addresses, and the limits of memory.

use std::net::IpAddr;

use super::segment::{ACK, Endpoint, SYN, Segment};

/// What is looked for, and how much memory it may take.
#[derive(Clone, Debug)]
pub struct PacketOptions {
    /// Ports of the servers.
    pub ports: Vec<u16>,
    /// Without a packet of these, the first port on which a server greets.
    pub finds_port: bool,
    /// Their addresses; empty for any.
    pub addresses: Vec<IpAddr>,
    /// With more connections the one that was silent longest is closed; each costs about 400 bytes.
    pub max_connections: usize,
    /// Bytes that wait for others before them, in all.
    pub max_held_bytes: usize,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self {
            ports: vec![3306],
            finds_port: false,
            addresses: Vec::new(),
            max_connections: 65_536,
            max_held_bytes: 32 << 20,
        }
    }
}

impl PacketOptions {
    /// The ports that were asked for; without any the usual one, or the first on which a server greets.
    #[must_use]
    pub fn on(asked: &[u16]) -> Self {
        let usual = Self::default();
        if asked.is_empty() {
            return Self { finds_port: true, ..usual };
        }
        Self { ports: asked.to_vec(), ..usual }
    }
}

/// Who is a server.
pub struct Servers {
    ports: Vec<u16>,
    addresses: Vec<IpAddr>,
}

impl Servers {
    pub fn new(options: &PacketOptions) -> Self {
        Self { ports: options.ports.clone(), addresses: options.addresses.clone() }
    }

    pub fn add(&mut self, port: u16) {
        self.ports.push(port);
    }

    pub fn has(&self, end: Endpoint) -> bool {
        self.ports.contains(&end.port) && (self.addresses.is_empty() || self.addresses.contains(&end.ip()))
    }

    /// Client and server: the handshake tells, else the server's port.
    pub fn roles(&self, segment: &Segment<'_>) -> (Endpoint, Endpoint) {
        let (source, destination) = (segment.source, segment.destination);
        let is_from_server = match (segment.has(SYN), segment.has(ACK)) {
            (true, is_answer) => is_answer,
            _ => self.has(source) && !self.has(destination),
        };
        if is_from_server { (destination, source) } else { (source, destination) }
    }
}
