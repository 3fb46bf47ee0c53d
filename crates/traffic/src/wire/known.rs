//! What a server says of the connections that a capture joins in their middle.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

/// Servers cut the texts that they keep for `performance_schema` at 1,024 bytes; `MySQL` leaves out a character that would
/// be cut in two, so that one that was cut may be three bytes shorter.
const WHOLE_BELOW: usize = 1024 - 3;

/// One connection, as it stood just before the capture began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub connection: u64,
    pub user: Vec<u8>,
    pub database: Vec<u8>,
    /// Its prepared statements by their numbers.
    pub statements: Vec<(u32, Vec<u8>)>,
}

/// By the client's address. A client that the server knows by a name, or through a proxy, is not found: nothing is guessed.
/// Each is given out once: of a connection that was forgotten and comes again it is out of date.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<Mutex<HashMap<SocketAddr, Standing>>>);

impl Known {
    #[must_use]
    pub fn new(sessions: HashMap<SocketAddr, Standing>) -> Self {
        Known(Arc::new(Mutex::new(sessions)))
    }

    pub fn take(&self, client: SocketAddr) -> Option<Standing> {
        let (ip, port) = (client.ip().to_canonical(), client.port());
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A server calls both loopback addresses localhost.
        let other = ip.is_loopback().then_some(IpAddr::from([127, 0, 0, 1]));
        let found = sessions.remove(&SocketAddr::new(ip, port));
        found.or_else(|| sessions.remove(&SocketAddr::new(other?, port)))
    }
}

/// How many parameters a statement has; None where that cannot be told from its text.
pub fn parameters(text: &[u8]) -> Option<u16> {
    if text.len() >= WHOLE_BELOW {
        return None;
    }
    let count = sql::kept_placeholders(text).len();
    // In doubt none is found.
    (count > 0 || !text.contains(&b'?')).then_some(u16::try_from(count).ok()?)
}

#[cfg(test)]
mod tests {
    use super::parameters;

    #[test]
    fn parameters_are_counted_where_the_text_is_whole() {
        assert_eq!(parameters(b"select a from t where b = ? and c in (?, ?)"), Some(3));
        assert_eq!(parameters(b"commit"), Some(0));
        assert_eq!(parameters(b"select 'open ?"), None);
        assert_eq!(parameters(&[b'x'; 1024]), None);
        // MySQL 8.0 cuts so: 340 characters of three bytes, after two of one byte.
        assert_eq!(parameters(&[&b"x?"[..], "日".repeat(340).as_bytes()].concat()), None);
        assert_eq!(parameters(&[b'x'; 1020]), Some(0));
    }
}
