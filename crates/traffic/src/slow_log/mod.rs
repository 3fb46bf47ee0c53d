//! Slow query logs of MySQL, Percona Server and MariaDB.
//!
//! An event is its header (`# Time:`, `# User@Host:`, `# Key: value` lines, `use db;`, `SET timestamp=1;`) and its
//! statement, which ends with `;` at the end of a line. What the servers mean by it, from their sources:
//!
//! - `# Time:` is the end of the statement: with microseconds and a zone since MySQL 5.7, as local time without a zone,
//!   once a second, before that and in MariaDB. `SET timestamp=` is the end in whole seconds, except that it is the
//!   start since MySQL 8.0.14, where `# Time:` is finer. So `start = end - Query_time`, a second too early at worst in
//!   MariaDB. The time zone of the older form is only needed before MySQL 5.1, which sets no timestamp: it is taken
//!   for UTC there.
//! - `use db;` stands where the database differs from that of the event before, of whichever session: it holds for all
//!   events that follow. A session without a database is therefore given the last one's, except where the header has a
//!   `Schema:` of its own (MariaDB, Percona).
//! - The user is the one that logged in, in brackets; the account before it may be a proxied or an anonymous one.
//! - `Last_errno:` of Percona Server may be that of a warning: it says nothing of the outcome. `Errno:` of MySQL does.
//! - Numbers of threads begin again when a server restarts. Statements of prepared statements have their values in them
//!   and cannot be told from others.
//!
//! The log is written by clients as well: a statement can hold lines like those of a header. See `boundary` for what
//! is believed. pt-query-digest 3.2 differs in these: it ends a statement at every `;` before a line with `#`, loses
//! the event after one whose statement is `use db` or `SET timestamp=`, and takes what is cut off for whole.

mod account;
mod boundary;
mod event;
mod header;
mod look;
mod parallel;
mod parser;
mod reader;
mod repeated;
mod returns;
mod settings;
mod statement;
pub(crate) mod supervised;
pub(super) mod time;
mod touched;
mod values;

pub(crate) use self::account::{Account, parse as parse_account};
pub(crate) use self::boundary::Lexer;
pub use self::parallel::read_parallel;
pub(crate) use self::parser::Parser;
pub use self::parser::{MAX_EVENT_BYTES, MAX_HEADER_BYTES};
pub use self::reader::read;

/// Whether a line, with or without its end, is of a header: to tell this kind of log from others.
#[must_use]
pub fn is_header_line(line: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 5] =
        [b"# Time: ", b"# User@Host: ", b"# Query_time: ", b"# Thread_id: ", b"# administrator"];
    BEGINNINGS.iter().any(|begin| line.starts_with(begin)) || touched::begins_event(line, true) == Some(true)
}

/// Whether a line, with or without its end, begins an event: stricter, for a line that has something before it.
#[must_use]
pub fn begins_event(line: &[u8]) -> bool {
    // A line of a duration may go on with anything, so that what another program put behind it would be taken for values.
    let line_end = memchr::memchr(b'\n', line).unwrap_or(line.len());
    let is_of_values = |byte: &u8| byte.is_ascii_alphanumeric() || b"_:.- #\t\r".contains(byte);
    let is_clean = memchr::memmem::find(&line[..line_end], b"Query_time:")
        .is_none_or(|at| line[at..line_end].iter().all(is_of_values));
    is_clean && boundary::classify(line, true) != boundary::Line::Other
}

/// How many statements a server left out, where a text is what it writes in their place, in a log or a table.
pub(crate) fn throttled(text: &[u8]) -> Option<u64> {
    statement::throttled(text)
}

/// The first line of a text and those behind it but for lines of other logs at its end, and how many these are.
pub(crate) fn without_other_lines(text: &[u8]) -> (&[u8], u64) {
    let Some(first) = memchr::memchr(b'\n', text) else { return (text, 0) };
    let (inner, lines) = statement::without_others(&text[first + 1..]);
    (&text[..first + 1 + inner.len()], lines)
}

#[cfg(test)]
mod tests;
