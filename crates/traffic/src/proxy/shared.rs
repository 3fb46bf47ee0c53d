//! What all threads of the proxy share.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use engine::net::Address;
use mysql::frames::encode;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::login::Rules;

/// What all threads know.
pub struct Settings {
    pub server: Address,
    pub server_name: ServerName<'static>,
    pub rules: Rules,
    pub client_tls: Option<Arc<ServerConfig>>,
    pub server_tls: Option<Arc<ClientConfig>>,
    /// From the clock that does not jump to ns since 1970.
    pub offset_ns: i64,
}

impl Settings {
    pub fn epoch(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed(self.offset_ns)
    }
}

#[derive(Default)]
pub struct Totals {
    /// When everything must be over, by the clock that does not jump; 0 before a stop was requested.
    pub stop_ns: AtomicU64,
    pub sessions: AtomicU64,
    pub active: AtomicUsize,
    pub refused: AtomicU64,
    pub unreachable: AtomicU64,
    /// From clients, from the server.
    pub bytes: [AtomicU64; 2],
}

/// As a server at its limit does.
pub fn refuse(mut socket: &TcpStream) {
    let _ = socket.write_all(&error_packet(1040, "08004", "Too many connections"));
}

/// An error as a server would send it in place of its greeting.
pub fn error_packet(code: u16, state: &str, message: &str) -> Vec<u8> {
    let mut payload = vec![0xFF];
    payload.extend_from_slice(&code.to_le_bytes());
    payload.push(b'#');
    payload.extend_from_slice(state.as_bytes());
    payload.extend_from_slice(message.as_bytes());
    let (mut packet, mut sequence) = (Vec::new(), 0);
    encode(&payload, &mut sequence, &mut packet);
    packet
}
