//! An event that outlives its source.

use super::window::without_parts;
use crate::event::Event;

/// An event with the bytes that it needs.
#[derive(Clone, Debug)]
pub struct OwnedEvent {
    numbers: Event<'static>,
    parts: [Box<[u8]>; 5],
}

impl OwnedEvent {
    pub fn of(event: &Event<'_>) -> Self {
        let parts = [event.user, event.host, event.database, event.text, event.parameters];
        OwnedEvent { numbers: without_parts(event), parts: parts.map(Box::from) }
    }

    pub fn event(&self) -> Event<'_> {
        let [user, host, database, text, parameters] = &self.parts;
        Event { user, host, database, text, parameters, ..self.numbers.clone() }
    }

    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.parts.iter().map(|part| part.len()).sum::<usize>()
    }
}
