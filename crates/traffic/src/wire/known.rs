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

/// By the client's address; where the server knows it by a name, by its port, if no other connection has that. One through
/// a proxy is not found: nothing is guessed. Each is given out once: of a connection that was forgotten and comes again it is
/// out of date.
#[derive(Clone, Debug, Default)]
pub struct Known(Arc<Mutex<Sessions>>);

#[derive(Debug, Default)]
struct Sessions {
    by_address: HashMap<SocketAddr, Standing>,
    by_port: HashMap<u16, Standing>,
}

impl Known {
    /// `named` are those whose clients have names, by their ports.
    #[must_use]
    pub fn new(by_address: HashMap<SocketAddr, Standing>, named: Vec<(u16, Standing)>) -> Self {
        let mut uses: HashMap<u16, u32> = HashMap::new();
        let ports = by_address.keys().map(SocketAddr::port).chain(named.iter().map(|(port, _)| *port));
        ports.for_each(|port| *uses.entry(port).or_default() += 1);
        let by_port = named.into_iter().filter(|(port, _)| uses[port] == 1).collect();
        Known(Arc::new(Mutex::new(Sessions { by_address, by_port })))
    }

    pub fn take(&self, client: SocketAddr) -> Option<Standing> {
        let (ip, port) = (client.ip().to_canonical(), client.port());
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A server calls both loopback addresses localhost.
        let other = ip.is_loopback().then_some(IpAddr::from([127, 0, 0, 1]));
        let found = sessions.by_address.remove(&SocketAddr::new(ip, port));
        let found = found.or_else(|| sessions.by_address.remove(&SocketAddr::new(other?, port)));
        found.or_else(|| sessions.by_port.remove(&port))
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
    use super::{Known, Standing, parameters};

    #[test]
    fn a_client_with_a_name_is_known_by_its_port_where_no_other_has_that() {
        let standing = |connection| Standing { connection, ..Standing::default() };
        let known = Known::new(
            [("10.0.0.7:3".parse().unwrap(), standing(1))].into(),
            vec![(1, standing(2)), (2, standing(3)), (2, standing(4)), (3, standing(5))],
        );
        let take = |client: &str| known.take(client.parse().unwrap()).map(|standing| standing.connection);
        assert_eq!((take("10.0.0.8:1"), take("10.0.0.8:1")), (Some(2), None));
        // Two have this port, by name or by address.
        assert_eq!((take("10.0.0.8:2"), take("10.0.0.8:3"), take("10.0.0.7:3")), (None, None, Some(1)));
    }

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
