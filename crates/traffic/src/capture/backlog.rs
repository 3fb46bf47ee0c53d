//! Blocks of packets between the thread that empties the kernel's ring and the one that reads them.
//!
//! The kernel fills its blocks in their order and waits for none: behind one that is still being read it drops
//! packets, however many others are free. A large event takes long to read, so blocks are copied here at once. The
//! memory is taken as it is needed and given back after a burst.

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::buffer::Buffer;

/// Buffers that are kept for the next blocks: in ordinary traffic no other is ever needed.
const SPARE: usize = 2;

#[derive(Default)]
struct State {
    waiting: VecDeque<Buffer>,
    waiting_bytes: usize,
    most_bytes: usize,
    spare: Vec<Buffer>,
    /// Nothing comes any more.
    is_closed: bool,
    /// Nothing is wanted any more.
    is_abandoned: bool,
}

impl State {
    /// Whether one more block has room; one always has, so that a host with little memory is read, too.
    fn has_room(&self, bytes: usize) -> bool {
        self.waiting.is_empty() || self.waiting_bytes + bytes <= self.most_bytes
    }
}

pub struct Backlog {
    state: Mutex<State>,
    changed: Condvar,
}

impl Backlog {
    pub fn new(most_bytes: usize) -> Self {
        Self { state: Mutex::new(State { most_bytes, ..State::default() }), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that wait.
    pub fn waiting_bytes(&self) -> usize {
        self.state().waiting_bytes
    }

    /// From now on, no more than this many bytes wait.
    pub fn limit(&self, most_bytes: usize) {
        self.state().most_bytes = most_bytes;
    }

    /// Whether a block of this size has room; waits for it at most this long.
    pub fn wait_for_room(&self, bytes: usize, most: Duration) -> bool {
        let is_full = |state: &mut State| !state.is_abandoned && !state.has_room(bytes);
        let result = self.changed.wait_timeout_while(self.state(), most, is_full);
        result.unwrap_or_else(PoisonError::into_inner).0.has_room(bytes)
    }

    /// Keeps a copy of a block for which there is room.
    ///
    /// # Errors
    /// No memory.
    pub fn push(&self, block: &[u8]) -> io::Result<()> {
        let spare = self.state().spare.pop();
        let mut copy = spare.map_or_else(Buffer::new, Ok)?;
        copy.fill(block);
        let mut state = self.state();
        state.waiting_bytes += copy.bytes().len();
        state.waiting.push_back(copy);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// The next block, once there is one; None after the last.
    pub fn next(&self) -> Option<Buffer> {
        let is_idle = |state: &mut State| state.waiting.is_empty() && !state.is_closed;
        let state = self.changed.wait_while(self.state(), is_idle);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        let block = state.waiting.pop_front()?;
        state.waiting_bytes -= block.bytes().len();
        drop(state);
        self.changed.notify_all();
        Some(block)
    }

    /// Takes back the memory of a block that was read.
    pub fn recycle(&self, block: Buffer) {
        let mut state = self.state();
        if state.spare.len() < SPARE {
            state.spare.push(block);
        } else {
            // Nobody has to wait until the kernel has taken it.
            drop(state);
            drop(block);
        }
    }

    /// No block comes any more; those that wait are still to be read.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// No block is read any more.
    pub fn abandon(&self) {
        self.state().is_abandoned = true;
        self.changed.notify_all();
    }

    pub fn is_abandoned(&self) -> bool {
        self.state().is_abandoned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn blocks_come_out_as_they_came_in() {
        let backlog = Backlog::new(1000);
        for block in [b"one".as_slice(), b"two", b"three"] {
            backlog.push(block).unwrap();
        }
        backlog.close();
        assert_eq!(backlog.waiting_bytes(), 11);
        for block in [b"one".as_slice(), b"two", b"three"] {
            let next = backlog.next().unwrap();
            assert_eq!(next.bytes(), block);
            backlog.recycle(next);
        }
        assert!(backlog.next().is_none());
        assert_eq!((backlog.waiting_bytes(), backlog.state().spare.len()), (0, SPARE));
    }

    #[test]
    fn room_is_limited_and_there_is_always_some() {
        let backlog = Backlog::new(0);
        assert!(backlog.wait_for_room(10, NOW), "nothing waits");
        backlog.push(&[0; 10]).unwrap();
        assert!(!backlog.wait_for_room(10, NOW));
        backlog.limit(20);
        assert!(backlog.wait_for_room(10, NOW) && !backlog.wait_for_room(11, NOW));
        backlog.limit(0);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| backlog.wait_for_room(10, Duration::MAX));
            backlog.next();
            assert!(waiting.join().unwrap());
        });
        backlog.push(&[0; 10]).unwrap();
        backlog.abandon();
        assert!(!backlog.wait_for_room(10, Duration::MAX) && backlog.is_abandoned());
    }
}
