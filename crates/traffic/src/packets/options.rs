//! Which packets count: the servers' ports and addresses, and the limits of memory.

use std::net::IpAddr;

use super::segment::{ACK, Endpoint, SYN, Segment};

/// What is looked for, and how much memory it may take.
#[derive(Clone, Debug)]
pub struct PacketOptions {
    /// Ports of the servers.
    pub ports: Vec<u16>,
    /// Their addresses; empty for any.
    pub addresses: Vec<IpAddr>,
    /// With more connections the one that was silent longest is closed; each costs about 400 bytes.
    pub max_connections: usize,
    /// Bytes that wait for others before them, in all.
    pub max_held_bytes: usize,
}

impl Default for PacketOptions {
    fn default() -> Self {
        Self { ports: vec![3306], addresses: Vec::new(), max_connections: 65_536, max_held_bytes: 32 << 20 }
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
