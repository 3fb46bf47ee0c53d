//! What a connection speaks if it is not MySQL's protocol, by how its first bytes look.
//!
//! To take MySQL for something else is the worse fault. So one side's bytes are believed only where the connection was
//! seen to begin: a client of MySQL never speaks first, and a server begins with its greeting. Elsewhere both sides must
//! speak the same protocol, and no answer may ever have fitted a request of MySQL.

use crate::stream::Side;

/// So many bytes of a side are looked at.
pub const LOOKED_AT: usize = 64;
pub const UNKNOWN: &str = "an unknown protocol";
pub const TLS: &str = "TLS from the first byte";
pub const X_PROTOCOL: &str = "MySQL's X protocol";

/// The protocol that a side speaks with these bytes at the start of a message.
pub fn protocol(from: Side, bytes: &[u8]) -> Option<&'static str> {
    let bytes = &bytes[..bytes.len().min(LOOKED_AT)];
    let found = match from {
        Side::Client => CLIENTS.iter().find(|(_, is)| is(bytes)),
        Side::Server => SERVERS.iter().find(|(_, is)| is(bytes)),
    };
    found.map(|(name, _)| *name)
}

type Looks = (&'static str, fn(&[u8]) -> bool);

const CLIENTS: [Looks; 16] = [
    (TLS, is_client_hello),
    ("HTTP/2", |bytes| bytes.starts_with(b"PRI * HTTP/2.0\r\n")),
    ("HTTP", is_http_request),
    ("SSH", is_ssh),
    ("Redis", is_redis_request),
    ("PostgreSQL", is_postgres_start),
    ("memcached", is_memcached_request),
    ("MongoDB", |bytes| is_mongo(bytes, &[2013, 2012, 2010, 2004])),
    ("SQL Server (TDS)", is_tds),
    ("Kafka", is_kafka),
    ("PostgreSQL", is_postgres_message),
    ("Cassandra (CQL)", |bytes| is_cassandra(bytes, 0)),
    ("Oracle (TNS)", |bytes| is_oracle(bytes, &[1])),
    ("Db2 (DRDA)", is_drda),
    ("AMQP", |bytes| bytes.starts_with(b"AMQP")),
    (X_PROTOCOL, |bytes| is_x(bytes, is_x_request)),
];

const SERVERS: [Looks; 12] = [
    ("SSH", is_ssh),
    ("HTTP", |bytes| bytes.starts_with(b"HTTP/1.") || bytes.starts_with(b"HTTP/0.9")),
    ("HTTP/2", |bytes| matches!(bytes, [0, _, _, 4, 0, 0, 0, 0, 0, ..])),
    ("Redis", is_redis_answer),
    ("memcached", is_memcached_answer),
    ("MongoDB", |bytes| is_mongo(bytes, &[2013, 2012, 2011, 1])),
    ("SQL Server (TDS)", |bytes| is_tds_message(bytes, &[4])),
    ("PostgreSQL", is_postgres_answer),
    ("Cassandra (CQL)", |bytes| is_cassandra(bytes, 0x80)),
    ("Oracle (TNS)", |bytes| is_oracle(bytes, &[2, 4, 5, 11])),
    ("Db2 (DRDA)", is_drda),
    (X_PROTOCOL, |bytes| is_x(bytes, is_x_answer)),
];

/// A handshake's record with a hello in it.
fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [0x16, 3, 0..=4, _, _, 1, 0, ..])
}

fn is_http_request(bytes: &[u8]) -> bool {
    const VERBS: [&[u8]; 9] = [
        b"GET /",
        b"POST /",
        b"HEAD /",
        b"PUT /",
        b"DELETE /",
        b"OPTIONS ",
        b"PATCH /",
        b"CONNECT ",
        b"TRACE /",
    ];
    VERBS.iter().any(|verb| bytes.starts_with(verb)) && bytes.iter().all(|byte| is_line(*byte))
}

fn is_line(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\r' | b'\n' | b'\t')
}

fn is_ssh(bytes: &[u8]) -> bool {
    bytes.starts_with(b"SSH-2.0-") || bytes.starts_with(b"SSH-1.")
}

/// An array of bulk strings, or PING as people type it.
fn is_redis_request(bytes: &[u8]) -> bool {
    let Some(rest) = bytes.strip_prefix(b"*") else { return bytes.eq_ignore_ascii_case(b"PING\r\n") };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    digits > 0 && rest[digits..].starts_with(b"\r\n$")
}

fn is_redis_answer(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let has_end = bytes.get(line.len()..line.len() + 2) == Some(b"\r\n");
    match line {
        [b'+' | b'-', text @ ..] => {
            !text.is_empty()
                && (has_end || bytes.len() == LOOKED_AT)
                && text.iter().all(|byte| is_line(*byte))
        }
        [b':' | b'$' | b'*', digits @ ..] => {
            let digits = digits.strip_prefix(b"-").unwrap_or(digits);
            has_end && !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        }
        _ => false,
    }
}

/// A start of protocol 3, or a request for TLS, GSSAPI or to cancel: all big-endian.
fn is_postgres_start(bytes: &[u8]) -> bool {
    match bytes {
        [0, 0, 0, 8, 4, 0xd2, 0x16, 0x2f | 0x30] | [0, 0, 0, 16, 4, 0xd2, 0x16, 0x2e, ..] => true,
        [0, 0, _, _, 0, 3, 0, 0..=9, name @ ..] => {
            name.is_empty() || name.iter().take(4).all(|byte| byte.is_ascii_lowercase() || *byte == b'_')
        }
        _ => false,
    }
}

/// A query or a step of the extended protocol that is all of what came.
fn is_postgres_message(bytes: &[u8]) -> bool {
    matches!(bytes, [b'Q' | b'P', 0, _, _, _, text @ ..]
        if !text.is_empty() && text.iter().all(|byte| is_line(*byte) || *byte == 0))
        && is_framed(bytes)
}

fn is_postgres_answer(bytes: &[u8]) -> bool {
    matches!(bytes, [b'R' | b'T' | b'C' | b'E' | b'1' | b'Z' | b'S', 0, 0, _, _, ..]) && is_framed(bytes)
}

/// A letter and a big-endian length that counts itself.
fn is_framed(bytes: &[u8]) -> bool {
    let length = bytes.get(1..5).and_then(|length| length.try_into().ok()).map_or(0, u32::from_be_bytes);
    let end = length as usize + 1;
    length >= 4
        && (bytes.len() == LOOKED_AT
            || bytes.len() == end
            || bytes.get(end).is_some_and(u8::is_ascii_alphanumeric))
}

fn is_memcached_request(bytes: &[u8]) -> bool {
    const VERBS: [&[u8]; 14] = [
        b"get ",
        b"gets ",
        b"set ",
        b"add ",
        b"replace ",
        b"cas ",
        b"delete ",
        b"incr ",
        b"decr ",
        b"touch ",
        b"mg ",
        b"ms ",
        b"stats\r\n",
        b"version\r\n",
    ];
    let is_text = VERBS.iter().any(|verb| bytes.starts_with(verb))
        && bytes.iter().take_while(|byte| **byte != b'\r').all(|byte| is_line(*byte))
        && (bytes.len() == LOOKED_AT || bytes.windows(2).any(|end| end == b"\r\n"));
    // Binary: magic, a command, and a reserved field.
    is_text || matches!(bytes, [0x80, 0..=0x22, _, _, _, 0, 0, 0, _, _, _, _, _, ..] if bytes.len() >= 24)
}

fn is_memcached_answer(bytes: &[u8]) -> bool {
    const ANSWERS: [&[u8]; 12] = [
        b"VALUE ",
        b"END\r\n",
        b"STORED\r\n",
        b"NOT_STORED\r\n",
        b"DELETED\r\n",
        b"NOT_FOUND\r\n",
        b"STAT ",
        b"VERSION ",
        b"ERROR\r\n",
        b"CLIENT_ERROR ",
        b"SERVER_ERROR ",
        b"HD ",
    ];
    ANSWERS.iter().any(|answer| bytes.starts_with(answer))
        || matches!(bytes, [0x81, 0..=0x22, _, _, _, 0, 0, 0..=0x86, ..] if bytes.len() >= 24)
}

/// Little-endian length, numbers of the message and of what it answers, an operation.
fn is_mongo(bytes: &[u8], operations: &[u32]) -> bool {
    let word =
        |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(0, u32::from_le_bytes);
    operations.contains(&word(12)) && (21..=48_000_000).contains(&word(0)) && bytes.len() >= 21
}

/// Its first packet, or a login: a type, all of it, a big-endian length. Later, a batch, a call or a transaction.
fn is_tds(bytes: &[u8]) -> bool {
    let is_login = matches!(bytes, [0x12, 1, _, _, 0, 0, 0 | 1, 0, 0, 0, ..])
        && usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) >= 26;
    is_login || is_tds_message(bytes, &[1, 3, 14])
}

/// A type, whether it is the last of a message, a big-endian length that what came does not exceed, a window that is not used.
fn is_tds_message(bytes: &[u8], kinds: &[u8]) -> bool {
    let [kind, 0 | 1, high, low, _, _, _, 0, ..] = bytes else { return false };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    kinds.contains(kind) && length >= bytes.len().max(8)
}

/// A version, flags, a number, an operation, and a big-endian length that what came does not exceed.
fn is_cassandra(bytes: &[u8], direction: u8) -> bool {
    let [version, 0..=0x1F, _, _, 0..=0x10, 0, a, b, c, ..] = bytes else { return false };
    let length = 9 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
    (direction | 3..=direction | 5).contains(version) && length >= bytes.len()
}

/// A big-endian length that what came does not exceed, a sum that is not used, a type.
fn is_oracle(bytes: &[u8], kinds: &[u8]) -> bool {
    let [high, low, 0, 0, kind, _, 0, 0, ..] = bytes else { return false };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    kinds.contains(kind) && length >= bytes.len().max(8)
}

/// A length, the mark of a message, its format; the length and code of what is in it.
fn is_drda(bytes: &[u8]) -> bool {
    let [high, low, 0xD0, _, _, _, inner_high, inner_low, ..] = bytes else { return false };
    let length = u16::from_be_bytes([*high, *low]);
    length >= 10 && u16::from_be_bytes([*inner_high, *inner_low]) == length - 6
}

/// A request by its length, which comes first: a known call, a name of a client.
fn is_kafka(bytes: &[u8]) -> bool {
    let [0, 0, _, _, 0, 3 | 18 | 17, 0, 0..=15, _, _, _, _, 0, length, name @ ..] = bytes else {
        return false;
    };
    let name = &name[..name.len().min((*length).into())];
    *length > 0 && !name.is_empty() && name.iter().all(|byte| byte.is_ascii_graphic())
}

/// Messages whose lengths, little-endian and in four bytes, fill what came. MySQL numbers its packets in the fourth
/// byte, so an answer never begins with a zero there.
fn is_x(bytes: &[u8], is_known: fn(&[u8]) -> bool) -> bool {
    let mut rest = bytes;
    while let [a, b, c, 0, body @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
        if length == 0 || !is_known(&body[..length.min(body.len())]) {
            return false;
        }
        if body.len() <= length {
            return body.len() == length || bytes.len() == LOOKED_AT;
        }
        rest = &body[length..];
    }
    false
}

/// Answers without content, and others that begin with the tag of a field.
fn is_x_answer(body: &[u8]) -> bool {
    matches!(body, [0 | 4 | 14..=18] | [0..=4 | 11..=13 | 19, 0x08 | 0x0A | 0x12 | 0x1A, ..])
}

/// Requests without content, and others that begin with the tag of a field; no command of MySQL looks like the latter.
fn is_x_request(body: &[u8]) -> bool {
    matches!(body, [1 | 3 | 6 | 7] | [2 | 4 | 5 | 6 | 12 | 17..=20, 0x08 | 0x0A | 0x12 | 0x1A, ..])
}

/// A client's login of MySQL, or its request for TLS in place of it: the server's greeting came before and was not seen.
pub fn is_login(bytes: &[u8]) -> bool {
    matches!(bytes, [_, _, 0, 1, _, flags, ..] if flags & 0x02 != 0)
        && bytes.len() >= 36
        && bytes[13..32].iter().all(|byte| *byte == 0)
}
