//! Events that wait until nothing earlier can be expected: sources give them by their ends, a recording has them by
//! their starts.

use crate::event::Event;

/// An event without what it borrows; that is in the arena, one after another from `at`.
struct Pending {
    event: Event<'static>,
    at: usize,
    lengths: [u32; 5],
}

impl Pending {
    fn bytes(&self) -> usize {
        self.lengths.iter().map(|&length| length as usize).sum()
    }
}

/// Events in the order of their coming, given out by start; those with one start stay in the order of their coming.
#[derive(Default)]
pub struct Window {
    pending: Vec<Pending>,
    arena: Vec<u8>,
    /// What `drain` left behind: sorting again is worth while when as much has come anew.
    kept_bytes: usize,
}

impl Window {
    /// Bytes that the events take.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.pending.len() * size_of::<Pending>()
    }

    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Copies the event. The parts it borrows are shorter than 4 GiB together.
    pub fn push(&mut self, event: &Event<'_>) {
        let parts = [event.user, event.host, event.database, event.text, event.parameters];
        let at = self.arena.len();
        for part in parts {
            self.arena.extend_from_slice(part);
        }
        let lengths = parts.map(|part| u32::try_from(part.len()).expect("checked by the writer"));
        self.pending.push(Pending { event: without_parts(event), at, lengths });
    }

    /// Gives out what starts at `until_ns` or before, in order; with `at_most_bytes`, more, until no more than that is left.
    pub fn drain(
        &mut self,
        until_ns: u64,
        at_most_bytes: usize,
        mut give: impl FnMut(&Event<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.pending.sort_by_key(|pending| pending.event.start_ns);
        let mut left = self.bytes();
        let mut given = 0;
        for pending in &self.pending {
            if pending.event.start_ns > until_ns && left <= at_most_bytes {
                break;
            }
            give(&with_parts(pending, &self.arena))?;
            left -= pending.bytes() + size_of::<Pending>();
            given += 1;
        }
        self.pending.drain(..given);
        let mut arena = Vec::with_capacity(left.saturating_sub(self.pending.len() * size_of::<Pending>()));
        for pending in &mut self.pending {
            let bytes = pending.bytes();
            let at = arena.len();
            arena.extend_from_slice(&self.arena[pending.at..pending.at + bytes]);
            pending.at = at;
        }
        self.arena = arena;
        self.kept_bytes = self.bytes();
        Ok(())
    }
}

pub fn without_parts(event: &Event<'_>) -> Event<'static> {
    // Every field by name: one that is new must not be lost here.
    let Event { start_ns, response_ns, first_byte_ns, session, connection, command, outcome, .. } = *event;
    let Event { statement, parameter_count, measures, checksum, is_cut, is_state, is_log_reopened, .. } =
        *event;
    Event {
        start_ns,
        response_ns,
        first_byte_ns,
        session,
        connection,
        user: b"",
        host: b"",
        database: b"",
        command,
        outcome,
        text: b"",
        is_cut,
        statement,
        parameters: b"",
        parameter_count,
        measures,
        checksum,
        is_state,
        is_log_reopened,
    }
}

fn with_parts<'a>(pending: &Pending, arena: &'a [u8]) -> Event<'a> {
    let mut rest = &arena[pending.at..];
    let [user, host, database, text, parameters] = pending.lengths.map(|length| {
        let (part, after) = rest.split_at(length as usize);
        rest = after;
        part
    });
    Event { user, host, database, text, parameters, ..pending.event.clone() }
}
