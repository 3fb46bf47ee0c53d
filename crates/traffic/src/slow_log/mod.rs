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
pub(super) mod time;

pub use self::parallel::read_parallel;
pub use self::parser::{MAX_EVENT_BYTES, MAX_HEADER_BYTES};
pub use self::reader::read;

#[cfg(test)]
mod tests;
