//! What a session needs before the first of its events that is kept: its login, its settings, its database, and the
//! statements that it keeps using.

use std::collections::HashMap;

use super::owned::OwnedEvent;
use crate::commands::PROCESS_KILL;
use crate::event::{Command, Event, Outcome, Sink};

/// Settings that one session may have; the oldest goes first.
const MAX_CHANGES: usize = 64;
/// Statements that one session may have prepared: the default of `max_prepared_stmt_count`, for all sessions there.
const MAX_PREPARED: usize = 16_382;
/// Of all sessions together. What comes later is not remembered, and counted.
const MAX_BYTES: usize = 128 << 20;

/// Follows the sessions of a recording and brings those into their state of which something is kept.
#[derive(Default)]
pub struct States {
    sessions: HashMap<u64, Session>,
    bytes: usize,
    max_bytes: Option<usize>,
    /// Events that a replay would have needed, and that found no room.
    pub forgotten: u64,
}

#[derive(Default)]
struct Session {
    login: Option<OwnedEvent>,
    /// SET, USE, another database, another user: in their order.
    changes: Vec<OwnedEvent>,
    prepared: HashMap<u32, Prepared>,
    /// Its login and its changes so far are in the output.
    is_introduced: bool,
}

struct Prepared {
    event: OwnedEvent,
    is_given: bool,
}

impl States {
    /// Takes the next event; if it is to be kept, gives it to the sink, and before it what its session needs.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn pass(&mut self, event: &Event<'_>, is_kept: bool, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let is_kept = is_kept && !event.is_state;
        if is_kept {
            self.introduce(event, sink)?;
            sink.event(event)?;
        }
        self.remember(event, is_kept);
        Ok(())
    }

    fn introduce(&mut self, event: &Event<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        if event.command == Command::Connect {
            return Ok(());
        }
        let Some(session) = self.sessions.get_mut(&event.session) else {
            return Ok(());
        };
        if !session.is_introduced {
            session.is_introduced = true;
            for state in session.login.iter().chain(&session.changes) {
                sink.event(&as_state(state, event.start_ns))?;
            }
        }
        if let Some(prepared) = event.statement.and_then(|number| session.prepared.get_mut(&number))
            // The number of COM_PROCESS_KILL is none of a statement.
            && !matches!(event.command, Command::Prepare | Command::Other(PROCESS_KILL))
            && !prepared.is_given
        {
            prepared.is_given = true;
            sink.event(&as_state(&prepared.event, event.start_ns))?;
        }
        Ok(())
    }

    fn remember(&mut self, event: &Event<'_>, is_kept: bool) {
        if matches!(event.outcome, Outcome::Error(_)) {
            return;
        }
        match event.command {
            Command::Quit => self.forget(event.session),
            Command::Connect => {
                self.forget(event.session);
                if let Some(session) = self.grow(event) {
                    session.login = Some(OwnedEvent::of(event));
                    session.is_introduced = is_kept;
                }
            }
            Command::ChangeUser | Command::ResetConnection => {
                self.clear_changes(event.session);
                self.change(event, is_kept);
            }
            Command::InitDb => self.change(event, is_kept),
            Command::Query if sets_state(event.text) => self.change(event, is_kept),
            Command::Prepare => self.prepare(event, is_kept),
            Command::Close => {
                if let Some(session) = self.sessions.get_mut(&event.session)
                    && let Some(prepared) =
                        event.statement.and_then(|number| session.prepared.remove(&number))
                {
                    self.bytes -= prepared.event.bytes();
                }
            }
            _ => {
                // Nothing to remember, but its session's login must not come after it.
                if is_kept && let Some(session) = self.sessions.get_mut(&event.session) {
                    session.is_introduced = true;
                }
            }
        }
    }

    fn change(&mut self, event: &Event<'_>, is_kept: bool) {
        let Some(session) = self.grow(event) else {
            return;
        };
        session.is_introduced |= is_kept;
        let mut freed = 0;
        if session.is_introduced && !is_kept {
            // The output has this session already: the change would be missing in the middle of it. It is given with
            // the next event that is kept.
            session.is_introduced = false;
            freed += session.changes.drain(..).map(|change| change.bytes()).sum::<usize>();
            freed += session.login.take().map_or(0, |login| login.bytes());
        }
        if session.changes.len() >= MAX_CHANGES {
            freed += session.changes.remove(0).bytes();
        }
        session.changes.push(OwnedEvent::of(event));
        self.bytes -= freed;
    }

    fn prepare(&mut self, event: &Event<'_>, is_kept: bool) {
        let Some(number) = event.statement else {
            return;
        };
        let Some(session) = self.grow(event) else {
            return;
        };
        session.is_introduced |= is_kept;
        let prepared = Prepared { event: OwnedEvent::of(event), is_given: is_kept };
        let replaced = if session.prepared.len() >= MAX_PREPARED && !session.prepared.contains_key(&number) {
            Some(prepared)
        } else {
            session.prepared.insert(number, prepared)
        };
        self.bytes -= replaced.map_or(0, |replaced| replaced.event.bytes());
    }

    /// The event's session with room for one more event, which is counted already; None where there is no room.
    fn grow(&mut self, event: &Event<'_>) -> Option<&mut Session> {
        let bytes = OwnedEvent::of(event).bytes();
        if self.bytes + bytes > self.max_bytes.unwrap_or(MAX_BYTES) {
            self.forgotten += 1;
            return None;
        }
        self.bytes += bytes;
        Some(self.sessions.entry(event.session).or_default())
    }

    fn clear_changes(&mut self, session: u64) {
        if let Some(session) = self.sessions.get_mut(&session) {
            let changes: usize = session.changes.drain(..).map(|change| change.bytes()).sum();
            let prepared: usize = session.prepared.drain().map(|(_, prepared)| prepared.event.bytes()).sum();
            self.bytes -= changes + prepared;
        }
    }

    fn forget(&mut self, session: u64) {
        self.clear_changes(session);
        if let Some(session) = self.sessions.remove(&session) {
            self.bytes -= session.login.map_or(0, |login| login.bytes());
        }
    }
}

/// At the time of the event that needs it, and without an answer: it is not to be measured.
fn as_state(state: &OwnedEvent, start_ns: u64) -> Event<'_> {
    let event = state.event();
    Event { start_ns, is_state: true, response_ns: None, first_byte_ns: None, checksum: None, ..event }
}

/// SET and USE. Comments before them are rare enough.
fn sets_state(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    let is_word = |word: &[u8]| {
        text.len() > word.len()
            && text[..word.len()].eq_ignore_ascii_case(word)
            && text[word.len()].is_ascii_whitespace()
    };
    is_word(b"set") || is_word(b"use")
}

#[cfg(test)]
mod tests {
    use super::States;
    use crate::event::{Command, Event};

    /// Passes events through; what comes out, with `*` before what only restores state.
    fn passed(events: &[(u64, Command, &str, Option<u32>, bool)]) -> Vec<String> {
        let mut states = States::default();
        let mut out = Vec::new();
        for (index, (session, command, text, statement, is_kept)) in events.iter().enumerate() {
            let event = Event {
                text: text.as_bytes(),
                statement: *statement,
                ..Event::new(index as u64, *session, *command)
            };
            let mut sink = |event: &Event<'_>| {
                let mark = if event.is_state { "*" } else { "" };
                let text = String::from_utf8_lossy(event.text);
                out.push(format!("{}@{mark}{}:{text}", event.session, event.start_ns));
                Ok(())
            };
            states.pass(&event, *is_kept, &mut sink).unwrap();
        }
        out
    }

    #[test]
    fn a_session_is_introduced_once_before_what_is_kept() {
        use Command::{Close, Connect, Execute, Prepare, Query, Quit};
        let events = [
            (1, Connect, "login 1", None, false),
            (2, Connect, "login 2", None, false),
            (1, Query, "SET a=1", None, false),
            (1, Prepare, "prepare 7", Some(7), false),
            (1, Prepare, "prepare 8", Some(8), false),
            (1, Query, "select 1", None, true),
            (1, Execute, "execute 8", Some(8), true),
            (1, Execute, "execute 8", Some(8), true),
            (1, Query, "set b=2", None, false),
            (1, Query, "select 2", None, true),
            (1, Close, "", Some(7), false),
            (1, Execute, "execute 7", Some(7), true),
            (2, Quit, "", None, false),
            (2, Query, "another login was not seen", None, true),
        ];
        let expected = [
            "1@*5:login 1",
            "1@*5:SET a=1",
            "1@5:select 1",
            "1@*6:prepare 8",
            "1@6:execute 8",
            "1@7:execute 8",
            "1@*9:set b=2",
            "1@9:select 2",
            "1@11:execute 7",
            "2@13:another login was not seen",
        ];
        assert_eq!(passed(&events), expected);
    }

    #[test]
    fn memory_is_bounded_and_given_back() {
        let mut states = States { max_bytes: Some(100_000), ..States::default() };
        let mut nobody = |_: &Event<'_>| Ok(());
        for round in 0..3 {
            for session in 0..1000 {
                let event = Event { text: b"set x=1", ..Event::new(1, session, Command::Query) };
                states.pass(&event, false, &mut nobody).unwrap();
            }
            assert!(states.bytes <= 100_000 && states.bytes > 50_000, "{}", states.bytes);
            assert!(states.forgotten > 100 * (round + 1), "{}", states.forgotten);
            for session in 0..1000 {
                states.pass(&Event::new(2, session, Command::Quit), false, &mut nobody).unwrap();
            }
            assert_eq!(states.bytes, 0);
        }
    }
}
