//! Decodes payloads. Everything here takes untrusted bytes: it returns an error, never panics.

use std::ops::Range;

use mysql_common::constants::{CapabilityFlags, MariadbCapabilities};
use mysql_common::io::ParseBuf;
use mysql_common::packets::{AuthPlugin, HandshakePacket, HandshakeResponse, SslRequest};
use mysql_common::proto::MySerialize;

use super::error::Error;

const COMMAND_QUERY: u8 = 0x03;
const NULL: u8 = 0xFB;
/// The largest payload that the client accepts. The server does not check it for results.
const LARGEST_PACKET: u32 = 1 << 30;
const UTF8MB4_GENERAL_CI: u8 = 45;

/// The server's greeting, its first packet.
pub struct Greeting {
    pub version: String,
    /// The connection's number on the server.
    pub connection: u32,
    pub capabilities: CapabilityFlags,
    pub plugin: Vec<u8>,
    pub nonce: Vec<u8>,
    /// Whether it executes a prepared statement for many rows at once (MariaDB's COM_STMT_BULK_EXECUTE).
    pub can_bulk: bool,
}

pub fn parse_greeting(payload: &[u8]) -> Result<Greeting, Error> {
    check_not_error(payload)?;
    // mysql_common computes the length of the nonce from this byte in 8 bits, and would overflow.
    let version_end = payload.iter().skip(1).position(|byte| *byte == 0).map(|position| position + 2);
    let nonce_length = version_end.and_then(|end| payload.get(end + 20));
    if nonce_length.is_none_or(|length| *length > 0x7F) {
        return Err(Error::Malformed("the greeting"));
    }
    let packet: HandshakePacket =
        ParseBuf(payload).parse(()).map_err(|_| Error::Malformed("the greeting"))?;
    if packet.protocol_version() != 10 {
        return Err(Error::Malformed("the greeting is not of protocol 10"));
    }
    // MariaDB before 11 puts a prefix for old replicas before its real version.
    let version = packet.server_version_str();
    let version = version.strip_prefix("5.5.5-").unwrap_or(&version).to_owned();
    Ok(Greeting {
        version,
        connection: packet.connection_id(),
        capabilities: packet.capabilities(),
        plugin: packet.auth_plugin_name_ref().unwrap_or(b"mysql_native_password").to_vec(),
        nonce: packet.nonce(),
        can_bulk: packet
            .mariadb_ext_capabilities()
            .contains(MariadbCapabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS),
    })
}

/// Our capabilities, limited to the server's. The TLS request and the login after it must have the same ones: servers
/// parse the login by the flags of the request.
pub fn capabilities(greeting: &Greeting, uses_tls: bool, has_database: bool) -> CapabilityFlags {
    let mut wanted = CapabilityFlags::CLIENT_PROTOCOL_41
        | CapabilityFlags::CLIENT_SECURE_CONNECTION
        | CapabilityFlags::CLIENT_LONG_PASSWORD
        | CapabilityFlags::CLIENT_TRANSACTIONS
        | CapabilityFlags::CLIENT_PLUGIN_AUTH
        | CapabilityFlags::CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA
        | CapabilityFlags::CLIENT_MULTI_RESULTS
        | CapabilityFlags::CLIENT_PS_MULTI_RESULTS
        | CapabilityFlags::CLIENT_CONNECT_ATTRS;
    wanted.set(CapabilityFlags::CLIENT_SSL, uses_tls);
    wanted.set(CapabilityFlags::CLIENT_CONNECT_WITH_DB, has_database);
    // CLIENT_LONG_PASSWORD means "not MariaDB" in MariaDB's greeting, but is always right in our answer.
    wanted & (greeting.capabilities | CapabilityFlags::CLIENT_LONG_PASSWORD)
}

pub fn ssl_request(capabilities: CapabilityFlags) -> Vec<u8> {
    let mut payload = Vec::new();
    SslRequest::new(capabilities, LARGEST_PACKET, UTF8MB4_GENERAL_CI)
        .with_mariadb_capabilities(mariadb_capabilities(capabilities))
        .serialize(&mut payload);
    payload
}

/// Without CLIENT_LONG_PASSWORD a client speaks MariaDB's dialect, where reserved bytes are capabilities. Ours has
/// only one reason to.
fn mariadb_capabilities(capabilities: CapabilityFlags) -> MariadbCapabilities {
    if capabilities.contains(CapabilityFlags::CLIENT_LONG_PASSWORD) {
        MariadbCapabilities::empty()
    } else {
        MariadbCapabilities::MARIADB_CLIENT_STMT_BULK_OPERATIONS
    }
}

pub fn login(
    capabilities: CapabilityFlags,
    user: &str,
    database: Option<&str>,
    plugin: &[u8],
    answer: &[u8],
) -> Vec<u8> {
    let attributes = capabilities
        .contains(CapabilityFlags::CLIENT_CONNECT_ATTRS)
        .then(|| [("program_name".to_owned(), "headrace-agent".to_owned())].into());
    let plugin =
        capabilities.contains(CapabilityFlags::CLIENT_PLUGIN_AUTH).then(|| AuthPlugin::from_bytes(plugin));
    let mut payload = Vec::new();
    // The version decides only whether the collation is utf8mb4, which all have since 5.5.3.
    HandshakeResponse::new(
        Some(answer),
        (5, 5, 3),
        Some(user.as_bytes()),
        database.map(str::as_bytes),
        plugin,
        capabilities,
        attributes,
        LARGEST_PACKET,
    )
    .with_mariadb_ext_capabilities(mariadb_capabilities(capabilities))
    .serialize(&mut payload);
    payload
}

pub fn query(sql: &str) -> Vec<u8> {
    let mut payload = Vec::with_capacity(1 + sql.len());
    payload.push(COMMAND_QUERY);
    payload.extend_from_slice(sql.as_bytes());
    payload
}

/// The server's packets during a login.
#[derive(Debug, PartialEq)]
pub enum LoginStep<'a> {
    Done,
    /// More data for the current plugin.
    Challenge(&'a [u8]),
    /// Start again with another plugin.
    Switch {
        plugin: &'a [u8],
        challenge: &'a [u8],
    },
}

pub fn parse_login_step(payload: &[u8]) -> Result<LoginStep<'_>, Error> {
    check_not_error(payload)?;
    match payload {
        [0x00, ..] => Ok(LoginStep::Done),
        [0x01, challenge @ ..] => Ok(LoginStep::Challenge(challenge)),
        [0xFE] => Ok(LoginStep::Switch { plugin: b"mysql_old_password", challenge: &[] }),
        [0xFE, rest @ ..] => {
            let end = rest.iter().position(|byte| *byte == 0).ok_or(Error::Malformed("a change of login"))?;
            let (plugin, challenge) = (&rest[..end], &rest[end + 1..]);
            // The nonces of MySQL's own plugins end with a NUL that is not part of them.
            let challenge = match challenge.split_last() {
                Some((0, nonce)) if nonce.len() == 20 => nonce,
                _ => challenge,
            };
            Ok(LoginStep::Switch { plugin, challenge })
        }
        _ => Err(Error::Malformed("a step of the login")),
    }
}

/// The first payload after a statement.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// It has no rows.
    Done,
    Columns(usize),
}

pub fn parse_answer(payload: &[u8]) -> Result<Answer, Error> {
    check_not_error(payload)?;
    match payload {
        [0x00, ..] => Ok(Answer::Done),
        [NULL, ..] => Err(Error::Malformed("a request for a file of ours")),
        _ => {
            let mut position = 0;
            let count =
                read_length(payload, &mut position).ok_or(Error::Malformed("the number of columns"))?;
            // MySQL's own limit is 4096.
            if position != payload.len() || !(1..=4096).contains(&count) {
                return Err(Error::Malformed("the number of columns"));
            }
            Ok(Answer::Columns(count))
        }
    }
}

/// The name of a column, from its definition.
pub fn parse_column_name(payload: &[u8]) -> Result<String, Error> {
    let mut position = 0;
    let mut name = None;
    // Catalog, schema, table, original table, name.
    for _ in 0..5 {
        name = read_bytes(payload, &mut position);
    }
    let name = name.ok_or(Error::Malformed("the definition of a column"))?;
    Ok(String::from_utf8_lossy(&payload[name]).into_owned())
}

/// Whether this payload ends a list (of columns, of rows); a row that looks like it is at least 16 MiB long.
pub fn is_end(payload: &[u8]) -> bool {
    payload.first() == Some(&0xFE) && payload.len() < 9
}

/// The cells of a row, in a buffer that is reused for every row.
#[derive(Default)]
pub struct Cells(Vec<Option<Range<usize>>>);

/// One row of a result; `None` is NULL.
pub struct Row<'a> {
    payload: &'a [u8],
    cells: &'a Cells,
}

impl<'a> Row<'a> {
    /// The bytes of a column, counted from 0. Also None if there is no such column.
    pub fn get(&self, column: usize) -> Option<&'a [u8]> {
        self.cells.0.get(column)?.clone().map(|cell| &self.payload[cell])
    }

    #[cfg(test)]
    pub fn to_vec(&self) -> Vec<Option<Vec<u8>>> {
        (0..self.cells.0.len()).map(|column| self.get(column).map(<[u8]>::to_vec)).collect()
    }
}

pub fn parse_row<'a>(payload: &'a [u8], columns: usize, cells: &'a mut Cells) -> Result<Row<'a>, Error> {
    check_not_error(payload)?;
    cells.0.clear();
    let mut position = 0;
    for _ in 0..columns {
        if payload.get(position) == Some(&NULL) {
            position += 1;
            cells.0.push(None);
        } else {
            let cell = read_bytes(payload, &mut position).ok_or(Error::Malformed("a row"))?;
            cells.0.push(Some(cell));
        }
    }
    if position != payload.len() {
        return Err(Error::Malformed("a row with more columns than announced"));
    }
    Ok(Row { payload, cells })
}

fn check_not_error(payload: &[u8]) -> Result<(), Error> {
    if payload.first() == Some(&0xFF) { Err(Error::from_packet(payload)) } else { Ok(()) }
}

fn read_bytes(payload: &[u8], position: &mut usize) -> Option<Range<usize>> {
    let length = read_length(payload, position)?;
    let end = position.checked_add(length).filter(|end| *end <= payload.len())?;
    let range = *position..end;
    *position = end;
    Some(range)
}

/// A length-encoded integer.
fn read_length(payload: &[u8], position: &mut usize) -> Option<usize> {
    let first = *payload.get(*position)?;
    let size = match first {
        0..=0xFA => {
            *position += 1;
            return Some(first.into());
        }
        0xFC => 2,
        0xFD => 3,
        0xFE => 8,
        _ => return None,
    };
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(payload.get(*position + 1..*position + 1 + size)?);
    *position += 1 + size;
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, proptest};

    #[test]
    fn errors_with_and_without_a_state() {
        let error = parse_answer(b"\xff\x28\x04#42000You have an error").unwrap_err();
        assert_eq!(error.code(), Some(1064));
        assert_eq!(error.to_string(), "You have an error (server error 1064, SQLSTATE 42000)");
        let error = parse_greeting(b"\xff\x10\x04Too many connections").err().unwrap();
        assert_eq!(error.to_string(), "Too many connections (server error 1040, SQLSTATE HY000)");
        assert!(matches!(parse_answer(b"\xff\x28"), Err(Error::Malformed(_))));
    }

    #[test]
    fn steps_of_a_login() {
        assert_eq!(parse_login_step(b"\x00\x00\x00\x02\x00").unwrap(), LoginStep::Done);
        assert_eq!(parse_login_step(b"\x01\x04").unwrap(), LoginStep::Challenge(&[4]));
        let nonce = [7; 20];
        let mut payload = b"\xfecaching_sha2_password\0".to_vec();
        payload.extend_from_slice(&nonce);
        payload.push(0);
        let step = parse_login_step(&payload).unwrap();
        assert_eq!(step, LoginStep::Switch { plugin: b"caching_sha2_password", challenge: &nonce });
        assert!(parse_login_step(b"\xfeno end").is_err());
        assert!(parse_login_step(b"").is_err());
    }

    #[test]
    fn rows_have_null_and_long_cells() {
        let mut cells = Cells::default();
        let mut payload = vec![NULL, 0, 2, b'a', b'b', 0xFC, 0x2C, 0x01];
        payload.extend([b'x'; 300]);
        let row = parse_row(&payload, 4, &mut cells).unwrap();
        assert_eq!(row.to_vec(), [None, Some(vec![]), Some(b"ab".to_vec()), Some(vec![b'x'; 300])]);
        assert_eq!(row.get(9), None);
        assert!(parse_row(&payload, 3, &mut cells).is_err());
        assert!(parse_row(&payload, 5, &mut cells).is_err());
        assert!(parse_row(&payload[..100], 4, &mut cells).is_err());
    }

    #[test]
    fn a_nonce_of_impossible_length_is_refused() {
        let mut payload = b"\x0a8.0.31\0".to_vec();
        payload.extend([0; 4 + 8 + 1 + 2 + 1 + 2 + 2]);
        payload.push(0x80);
        payload.extend([0; 100]);
        assert!(parse_greeting(&payload).is_err());
    }

    proptest! {
        #[test]
        fn no_payload_can_break_a_parser(payload in proptest::collection::vec(any::<u8>(), 0..200), head in 0..8_usize) {
            let mut payload = payload;
            // Most random bytes fail immediately; a plausible start gets further.
            let start: &[u8] = [
                &b""[..], b"\x0a8.0.31\0", b"\x0a5.5.5-10.11.6-MariaDB\0", b"\xfe", b"\xff", b"\x01", b"\xfc", b"\xfb",
            ][head];
            payload.splice(0..0, start.iter().copied());
            let _ = parse_greeting(&payload);
            let _ = parse_login_step(&payload);
            let _ = parse_answer(&payload);
            let _ = parse_column_name(&payload);
            let _ = is_end(&payload);
            for columns in 0..5 {
                let _ = parse_row(&payload, columns, &mut Cells::default());
            }
        }
    }
}
