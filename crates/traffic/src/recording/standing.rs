//! Asks a server which connections it has, so that a capture that joins them knows who they are and what they prepared.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use mysql::{Connection, Row};

use crate::wire::{Known, Standing};

const CONNECTIONS: &str = "SELECT ID, USER, HOST, DB FROM information_schema.PROCESSLIST";
/// `MySQL` finds no row whose name is NULL when it is asked for those.
const STATEMENTS: &str = "SELECT t.PROCESSLIST_ID, s.STATEMENT_ID, s.SQL_TEXT, s.STATEMENT_NAME \
    FROM performance_schema.prepared_statements_instances s \
    JOIN performance_schema.threads t ON t.THREAD_ID = s.OWNER_THREAD_ID";

/// What the login may see of them. A server without `performance_schema` tells no statements.
#[must_use]
pub fn ask(connection: &mut Connection) -> Known {
    let mut by_id: HashMap<u64, (Client, Standing)> = HashMap::new();
    // Without the privilege PROCESS these are the login's own, and a list that breaks off is none.
    let listed = connection.query(CONNECTIONS, |_, row| {
        let Some(id) = number(row, 0) else { return };
        let host = String::from_utf8_lossy(row.get(2).unwrap_or_default()).into_owned();
        let Some(client) = client(&host) else { return };
        let text = |column| row.get(column).unwrap_or_default().to_vec();
        let standing = Standing { connection: id, user: text(1), database: text(3), ..Standing::default() };
        by_id.insert(id, (client, standing));
    });
    if listed.is_err() {
        return Known::default();
    }
    let _ = connection.query(STATEMENTS, |_, row| {
        let (Some(id), Some(statement)) = (number(row, 0), number(row, 1)) else { return };
        let (Some((_, standing)), Ok(statement)) = (by_id.get_mut(&id), u32::try_from(statement)) else {
            return;
        };
        // One with a name was prepared by PREPARE: no client executes it by its number.
        if let (Some(text), true) = (row.get(2), row.get(3).is_none_or(<[u8]>::is_empty)) {
            standing.statements.push((statement, text.to_vec()));
        }
    });
    let (mut by_address, mut named) = (HashMap::new(), Vec::new());
    for (client, standing) in by_id.into_values() {
        match client {
            Client::At(address) => {
                by_address.insert(address, standing);
            }
            Client::Named(port) => named.push((port, standing)),
        }
    }
    Known::new(by_address, named)
}

/// How a server names a client: by its address, or by a host name, and then only the port tells clients apart.
#[derive(Debug, PartialEq, Eq)]
enum Client {
    At(SocketAddr),
    Named(u16),
}

fn number(row: &Row<'_>, column: usize) -> Option<u64> {
    std::str::from_utf8(row.get(column)?).ok()?.parse().ok()
}

/// `10.0.0.7:51234`, `[::1]:51234` or `::1:51234`, and `localhost:51234`; None for sockets.
fn client(host: &str) -> Option<Client> {
    let (host, port) = host.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let ip = if host == "localhost" {
        IpAddr::from([127, 0, 0, 1])
    } else {
        let Ok(ip) = host.parse::<IpAddr>() else { return Some(Client::Named(port)) };
        ip
    };
    Some(Client::At(SocketAddr::new(ip.to_canonical(), port)))
}

#[cfg(test)]
mod tests {
    use super::{Client, client};

    #[test]
    fn clients_by_address() {
        for (host, expected) in [
            ("10.0.0.7:51234", Some("10.0.0.7:51234")),
            ("localhost:5", Some("127.0.0.1:5")),
            ("::1:5", Some("[::1]:5")),
            ("[2001:db8::7]:5", Some("[2001:db8::7]:5")),
            ("::ffff:10.0.0.7:5", Some("10.0.0.7:5")),
            ("localhost", None),
            ("10.0.0.7", None),
        ] {
            assert_eq!(client(host), expected.map(|text| Client::At(text.parse().unwrap())), "{host}");
        }
        assert_eq!(client("db-client.example:5"), Some(Client::Named(5)));
    }
}
