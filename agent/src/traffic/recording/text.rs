//! What of a statement is kept.

use super::window::Window;
use crate::traffic::event::Event;

/// Takes from events what a recording must not have.
pub struct Cleaner {
    with_literals: bool,
}

impl Cleaner {
    pub fn new(with_literals: bool) -> Self {
        Cleaner { with_literals }
    }

    /// Puts the event into the window without what is not kept; true where a password was removed.
    pub fn clean(&mut self, event: &mut Event<'_>, window: &mut Window) -> bool {
        if !self.with_literals {
            event.text = b"";
            event.parameters = b"";
            event.checksum = None;
        }
        window.push(event);
        false
    }
}
