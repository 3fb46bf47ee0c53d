//! Events, with their statements, that wait until several are looked up `together`.

use crate::digest::classes::Mark;
use crate::digest::kept::Kept;
use crate::event::{Command, Event};

/// How many events wait at most: few enough for them and their statements to stay in the L1 cache.
pub const MOST: usize = 32;
const MOST_TEXT_BYTES: usize = 1 << 10;

#[derive(Debug, Default)]
pub struct Waiting {
    pub texts: Vec<u8>,
    pub events: Vec<Waiter>,
}

#[derive(Debug)]
pub struct Waiter {
    pub kept: Kept,
    pub mark: Mark,
    pub session: u64,
    /// The hash of its statement, which is `texts[begin..end]`.
    pub hash: u64,
    pub begin: u32,
    pub end: u32,
}

impl Waiter {
    pub fn text<'t>(&self, texts: &'t [u8]) -> &'t [u8] {
        &texts[self.begin as usize..self.end as usize]
    }
}

impl Waiting {
    /// Whether an event may wait: its statement can have a known shape, and is short enough to copy.
    #[inline]
    pub fn takes(event: &Event<'_>) -> bool {
        event.command == Command::Query && !event.is_cut && event.text.len() <= MOST_TEXT_BYTES
    }
}
