//! One line of a server, and whether it can be the answer to a request.

use super::request::{Quiet, Shape, digits};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    Done,
    Missed,
    /// Not stored for a reason that was asked for: there already, or changed since.
    Refused,
    Failed,
    /// A value of so many bytes follows.
    Value(u64),
    /// There is more.
    More,
    /// The end of a list.
    End,
}

/// What a line says; None if it cannot be an answer to this.
pub fn read(shape: Shape, line: &[u8]) -> Option<Reply> {
    let mut words = line.split(|byte| *byte == b' ');
    let (word, second) = (words.next()?, words.next());
    if matches!(word, b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR") {
        return Some(Reply::Failed);
    }
    let value = || second.and_then(digits).map(Reply::Value);
    match (shape, word) {
        (Shape::Get, b"VALUE") => words.nth(1).and_then(digits).map(Reply::Value),
        (Shape::Get, b"END") => Some(Reply::End),
        (Shape::Store, b"STORED") | (Shape::Delete, b"DELETED") | (Shape::Touch, b"TOUCHED") => {
            Some(Reply::Done)
        }
        (Shape::Store, b"NOT_STORED" | b"EXISTS") => Some(Reply::Refused),
        (Shape::Store | Shape::Delete | Shape::Touch | Shape::Count, b"NOT_FOUND") => Some(Reply::Missed),
        (Shape::Count, _) => digits(word).map(|_| Reply::Done),
        (Shape::MetaGet | Shape::MetaCount, b"VA") => value(),
        (Shape::MetaGet | Shape::MetaSet | Shape::MetaDelete | Shape::MetaCount, b"HD") => Some(Reply::Done),
        (Shape::MetaGet | Shape::MetaDebug, b"EN") => Some(Reply::Missed),
        (Shape::MetaSet | Shape::MetaDelete | Shape::MetaCount, b"NF") => Some(Reply::Missed),
        (Shape::MetaSet | Shape::MetaCount, b"NS") => Some(Reply::Refused),
        (Shape::MetaSet | Shape::MetaDelete | Shape::MetaCount, b"EX") => Some(Reply::Refused),
        (Shape::MetaDebug, b"ME") | (Shape::MetaNoop, b"MN") | (Shape::Line, _) => Some(Reply::Done),
        (Shape::Lines, b"END" | b"OK" | b"RESET" | b"EN" | b"BUSY" | b"BADCLASS") => Some(Reply::End),
        (Shape::Lines, _) => Some(Reply::More),
        _ => None,
    }
}

/// Whether a request that may stay unanswered would have been answered so.
pub fn is_told(quiet: Quiet, shape: Shape, line: &[u8], reply: Reply) -> bool {
    match quiet {
        Quiet::No => true,
        // Without a reason it is that of a command that is not known.
        Quiet::Always => reply == Reply::Failed && line != b"ERROR",
        Quiet::Usually if shape == Shape::MetaGet => !line.starts_with(b"EN"),
        Quiet::Usually => !line.starts_with(b"HD"),
    }
}

/// The token of a meta answer that begins so.
pub fn token(line: &[u8], flag: u8) -> Option<&[u8]> {
    let words = line.split(|byte| *byte == b' ').skip(1 + usize::from(line.starts_with(b"VA")));
    words.filter_map(|word| word.split_first()).find(|(first, _)| **first == flag).map(|(_, rest)| rest)
}
