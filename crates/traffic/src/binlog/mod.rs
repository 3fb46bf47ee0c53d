//! Binary logs of MySQL and MariaDB, and relay logs: the files themselves, or what mysqlbinlog makes of them.
//!
//! What comes out is what a replica applies: an event for each statement (of statement format), or for each table that a
//! statement changed and kind of change (of row format), with rows and bytes; and behind these the transaction. No value
//! of a row is read: rows are stepped over to count them. Times are those of headers, whole seconds at the start of a
//! statement; MySQL 8.0 also has the time of the commit in µs.

mod assemble;
mod binary;
mod bodies;
mod ends;
mod frames;
pub mod gtid;
mod kinds;
mod lines;
mod open;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod text;
mod text_header;
pub mod transaction;

pub use self::binary::read;
pub use self::frames::{ENCRYPTED_MAGIC, MAGIC, is_piece};
pub use self::text::{is_text, read as read_text};
