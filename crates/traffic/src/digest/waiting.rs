//! Events of many classes, and their statements, that wait until several can be looked up `together`.

use crate::digest::classes::Mark;
use crate::digest::kept::Kept;
use crate::event::{Command, Event};

/// Events that wait. They and their statements stay in the first cache.
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
    /// Of its statement, which is at this place in `texts`.
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
    /// Whether an event may wait: its statement may have a shape that is known, and is not long to copy.
    #[inline]
    pub fn takes(event: &Event<'_>) -> bool {
        event.command == Command::Query && !event.is_cut && event.text.len() <= MOST_TEXT_BYTES
    }
}
