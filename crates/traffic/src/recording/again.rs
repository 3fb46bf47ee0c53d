//! Connection ids that come again in a log: a server counts them from the beginning when it restarts, and its log goes
//! on. Sessions before and after are two.
//!
//! A server writes the same banner when it restarts and when its log is opened again (FLUSH LOGS, rotation). What
//! follows the banner tells them apart:
//!
//! | what follows | is taken for |
//! |---|---|
//! | a login of an id that was logged in, its id with another account, a temporary table that it has already | a restart |
//! | an id that is lower than known ones and was never seen, before any that is higher | a restart |
//! | an id that is higher than all known ones, after another one than the lowest | the same server |
//! | known ids only, from the lowest on, and that is a low one | a restart; it cannot be told |
//! | other known ids only | the same server; it cannot be told |
//!
//! Without a banner an id that logs in again, that another account has, or that creates a temporary table that it has,
//! is a session of its own.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::owned::OwnedEvent;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome};

/// After a restart the clients' ids begin below this: the server's own threads have the first ones.
const LOW_ID: u64 = 64;
/// What follows a banner is looked at so far ahead.
const WINDOW_EVENTS: usize = 1_000;
const WINDOW_BYTES: usize = 4 << 20;
/// Ids that are remembered: those seen last, and as many before them.
const MAX_IDS: usize = 1 << 19;
/// Temporary tables that are remembered of a session.
const MAX_TABLES: usize = 64;
/// Servers' ids are below this for centuries; the bits above it number the sessions that had the same id.
const ID_BITS: u32 = 40;

/// Gives an event away.
type Give<'a> = &'a mut dyn FnMut(&Event<'_>) -> anyhow::Result<()>;

/// Sessions of one log.
#[derive(Default)]
pub struct Again {
    young: HashMap<u64, Known>,
    old: HashMap<u64, Known>,
    lowest: Option<u64>,
    highest: u64,
    /// Which session number it is that an id stands for, where it is not the first.
    splits: u64,
    window: Option<Window>,
    counts: Counts,
}

/// Events behind a banner, until it is clear what that means.
#[derive(Default)]
struct Window {
    events: Vec<OwnedEvent>,
    bytes: usize,
    first_id: Option<u64>,
    /// Ids whose temporary tables changed since the banner.
    changed: HashSet<u64>,
    meaning: Option<Meaning>,
}

#[derive(Default)]
struct Counts {
    restarts: u64,
    unsure_restarts: u64,
    reopened: u64,
    unsure_reopened: u64,
    /// Ids that came again without a banner.
    alone: u64,
}

#[derive(Default)]
struct Known {
    /// Hashes; 0 where it is unknown.
    user: u64,
    host: u64,
    /// The number of its session in the recording.
    session: u64,
    is_over: bool,
    /// Its temporary tables, as hashes.
    tables: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meaning {
    Restart { is_sure: bool },
    SameServer { is_sure: bool },
}

impl Again {
    /// Takes the next event, and gives those whose session is clear, with the numbers of their sessions.
    pub fn take(&mut self, event: &Event<'_>, give: Give<'_>) -> anyhow::Result<()> {
        if id_of(event).is_none() {
            return match self.window {
                Some(_) => self.wait(event, give),
                None => give(event),
            };
        }
        if event.is_log_reopened {
            self.decide(give)?;
            if self.lowest.is_some() {
                self.window = Some(Window::default());
            }
        }
        if self.window.is_some() { self.wait(event, give) } else { self.pass(event, give) }
    }

    /// Gives what waits.
    pub fn finish(&mut self, give: Give<'_>) -> anyhow::Result<()> {
        self.decide(give)
    }

    fn wait(&mut self, event: &Event<'_>, give: Give<'_>) -> anyhow::Result<()> {
        let mut window = self.window.take().unwrap_or_default();
        if let Some(id) = id_of(event) {
            let first_id = *window.first_id.get_or_insert(id);
            window.meaning = self.meaning(event, id, first_id, window.changed.contains(&id));
            let forgets = matches!(event.command, Command::ChangeUser | Command::ResetConnection);
            if forgets || temporary(event).is_some() {
                window.changed.insert(id);
            }
        }
        let owned = OwnedEvent::of(event);
        window.bytes += owned.bytes();
        window.events.push(owned);
        let is_full = window.events.len() >= WINDOW_EVENTS || window.bytes >= WINDOW_BYTES;
        let is_clear = window.meaning.is_some();
        self.window = Some(window);
        if is_full || is_clear { self.decide(give) } else { Ok(()) }
    }

    /// What the banner meant, from what is known of it by now.
    fn decide(&mut self, give: Give<'_>) -> anyhow::Result<()> {
        let Some(window) = self.window.take() else { return Ok(()) };
        match window.meaning.or_else(|| self.likely(window.first_id?)) {
            Some(Meaning::Restart { is_sure }) => {
                self.counts.restarts += 1;
                self.counts.unsure_restarts += u64::from(!is_sure);
                if let Some(first) = window.events.first() {
                    self.restart(first.event().start_ns, give)?;
                }
            }
            Some(Meaning::SameServer { is_sure }) => {
                self.counts.reopened += 1;
                self.counts.unsure_reopened += u64::from(!is_sure);
            }
            None => {}
        }
        for owned in window.events {
            self.pass(&owned.event(), give)?;
        }
        Ok(())
    }

    /// What an event behind a banner shows, if it shows anything.
    fn meaning(&self, event: &Event<'_>, id: u64, first_id: u64, has_changed: bool) -> Option<Meaning> {
        match self.known(id) {
            Some(known) => {
                let is_another = known.has_another_login(event) || !has_changed && known.has_table_of(event);
                is_another.then_some(Meaning::Restart { is_sure: true })
            }
            None if id < self.highest => Some(Meaning::Restart { is_sure: true }),
            None => (Some(first_id) != self.lowest).then_some(Meaning::SameServer { is_sure: true }),
        }
    }

    /// What to go by where nothing shows it.
    fn likely(&self, first_id: u64) -> Option<Meaning> {
        Some(match Some(first_id) == self.lowest && first_id < LOW_ID {
            true => Meaning::Restart { is_sure: false },
            false => Meaning::SameServer { is_sure: false },
        })
    }

    fn known(&self, id: u64) -> Option<&Known> {
        self.young.get(&id).or_else(|| self.old.get(&id))
    }

    /// All sessions ended.
    fn restart(&mut self, at_ns: u64, give: Give<'_>) -> anyhow::Result<()> {
        let mut open: Vec<u64> = Vec::new();
        for known in self.young.values_mut().chain(self.old.values_mut()) {
            if !std::mem::replace(&mut known.is_over, true) {
                open.push(known.session);
            }
        }
        open.sort_unstable();
        (self.lowest, self.highest) = (None, 0);
        open.into_iter().try_for_each(|session| give(&ended(session, at_ns)))
    }

    fn pass(&mut self, event: &Event<'_>, give: Give<'_>) -> anyhow::Result<()> {
        let Some(id) = id_of(event) else { return give(event) };
        self.lowest = Some(self.lowest.map_or(id, |lowest| lowest.min(id)));
        self.highest = self.highest.max(id);
        let known = self.young.remove(&id).or_else(|| self.old.remove(&id));
        let mut known = match known {
            None => Known { session: id, ..Known::default() },
            Some(known) if known.is_another(event) => {
                if !known.is_over {
                    self.counts.alone += 1;
                    give(&ended(known.session, event.start_ns))?;
                }
                self.splits += 1;
                Known { session: id | self.splits << ID_BITS, ..Known::default() }
            }
            Some(known) => known,
        };
        known.follow(event);
        let session = known.session;
        if self.young.len() >= MAX_IDS {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, known);
        give(&Event { session, ..event.clone() })
    }

    /// Says what was taken for what.
    pub fn say(&self, name: &str, coverage: &mut Coverage) {
        let Counts { restarts, unsure_restarts, reopened, unsure_reopened, alone } = self.counts;
        let of_these = |unsure: u64| match unsure {
            0 => String::new(),
            unsure => format!(
                "; {} it cannot be told whether it was a restart or FLUSH LOGS, because only known ids follow: if \
                 sessions are wrong, record the parts of the log on their own",
                times(unsure)
            ),
        };
        if restarts > 0 {
            coverage.note(
                name,
                format!(
                    "the server restarted {} within the log: it opened its log and connection ids began \
                     again. Sessions end there, and a connection id that comes again is a session of its own{}",
                    times(restarts),
                    of_these(unsure_restarts)
                ),
            );
        }
        if reopened > 0 {
            coverage.note(
                name,
                format!(
                    "the log was opened again {} (FLUSH LOGS, rotation) and connection ids go on: sessions \
                     go on as well{}",
                    times(reopened),
                    of_these(unsure_reopened)
                ),
            );
        }
        if alone > 0 {
            coverage.note(
                name,
                format!(
                    "connection ids came again {} with a new login, another account or a temporary table that they \
                     had, and nothing says that the server restarted: each is a session of its own",
                    times(alone)
                ),
            );
        }
    }
}

impl Known {
    /// Whether this cannot be the same session.
    fn is_another(&self, event: &Event<'_>) -> bool {
        self.has_another_login(event) || self.has_table_of(event)
    }

    fn has_table_of(&self, event: &Event<'_>) -> bool {
        temporary(event).is_some_and(|change| change.creates && self.tables.contains(&change.table))
    }

    fn has_another_login(&self, event: &Event<'_>) -> bool {
        if matches!(event.outcome, Outcome::Error(_)) && event.command == Command::Connect {
            return false;
        }
        let differs = |own: u64, name: &[u8]| own != 0 && !name.is_empty() && own != xxh3_64(name);
        self.is_over
            || event.command == Command::Connect
            || event.command != Command::ChangeUser
                && (differs(self.user, event.user) || differs(self.host, event.host))
    }

    fn follow(&mut self, event: &Event<'_>) {
        for (own, name) in [(&mut self.user, event.user), (&mut self.host, event.host)] {
            if !name.is_empty() {
                *own = xxh3_64(name);
            }
        }
        match event.command {
            Command::Quit => self.is_over = true,
            Command::ChangeUser | Command::ResetConnection => self.tables.clear(),
            _ => {}
        }
        match temporary(event) {
            Some(change) if change.creates && self.tables.len() < MAX_TABLES => {
                self.tables.push(change.table)
            }
            Some(change) if !change.creates => {
                self.tables.retain(|table| ![0, *table].contains(&change.table));
            }
            _ => {}
        }
    }
}

fn times(number: u64) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

/// The connection id by which its source knows a session: logs do.
fn id_of(event: &Event<'_>) -> Option<u64> {
    event.connection.filter(|id| *id == event.session && *id >> ID_BITS == 0)
}

/// A session's end that nobody recorded, for whoever plays it.
fn ended(session: u64, at_ns: u64) -> Event<'static> {
    Event { is_state: true, ..Event::new(at_ns, session, Command::Quit) }
}

/// A table that a session creates for itself, or drops.
struct Temporary {
    creates: bool,
    /// A hash; 0 for all.
    table: u64,
}

/// What a statement does to a temporary table; None where that is not clear, or where it may have failed.
fn temporary(event: &Event<'_>) -> Option<Temporary> {
    let is_statement = matches!(event.command, Command::Query | Command::Execute) && !event.is_cut;
    if !is_statement || matches!(event.outcome, Outcome::Error(_)) {
        return None;
    }
    let mut words = Words(event.text);
    let creates = match words.next()? {
        word if word.eq_ignore_ascii_case(b"create") => true,
        word if word.eq_ignore_ascii_case(b"drop") => false,
        _ => return None,
    };
    let mut word = words.next()?;
    let is_temporary = word.eq_ignore_ascii_case(b"temporary");
    // DROP TABLE drops a temporary one as well.
    if is_temporary {
        word = words.next()?;
    } else if creates {
        return None;
    }
    if !word.eq_ignore_ascii_case(b"table") && !word.eq_ignore_ascii_case(b"tables") {
        return None;
    }
    let mut name = words.next()?;
    if name.eq_ignore_ascii_case(b"if") {
        // What exists already is no error then.
        if creates {
            return None;
        }
        (_, name) = (words.next()?, words.next()?);
    }
    if !creates && memchr::memchr(b',', words.0).is_some() {
        return Some(Temporary { creates, table: 0 });
    }
    let mut hasher = Xxh3::new();
    hasher.update(event.database);
    hasher.update(b".");
    hasher.update(&name.iter().filter(|byte| **byte != b'`').copied().collect::<Vec<u8>>());
    Some(Temporary { creates, table: hasher.digest() })
}

/// The words of a statement's beginning.
struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_start();
        let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'(' | b',' | b';');
        let length = text.iter().position(ends).unwrap_or(text.len());
        let (word, rest) = text.split_at(length);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::Again;
    use crate::coverage::Coverage;
    use crate::event::{Command, Event};

    /// `8 app` is an id and its user, `|` a banner, `+` a login, `-` the end; `T` creates a temporary table, `D` drops it.
    fn played(log: &str) -> (String, String) {
        let (mut again, mut given) = (Again::default(), Vec::new());
        let mut numbers: Vec<u64> = Vec::new();
        let mut is_reopened = false;
        let mut give = |event: &Event<'_>| {
            let place = numbers.iter().position(|number| *number == event.session).unwrap_or_else(|| {
                numbers.push(event.session);
                numbers.len() - 1
            });
            let mark = if event.is_state { "!" } else { "" };
            given.push(format!("{mark}{}", char::from(b'a' + place as u8)));
            Ok(())
        };
        for (number, word) in log.split_whitespace().enumerate() {
            if word == "|" {
                is_reopened = true;
                continue;
            }
            let (id, user) = word.split_once('@').unwrap_or((word, "app"));
            let digits = id.trim_matches(|letter: char| !letter.is_ascii_digit());
            let session = digits.parse().unwrap();
            let command = match id.as_bytes()[0] {
                b'+' => Command::Connect,
                b'-' => Command::Quit,
                _ => Command::Query,
            };
            let event = Event {
                connection: Some(session),
                user: user.as_bytes(),
                host: b"h",
                text: match id.as_bytes()[id.len() - 1] {
                    b'T' => b"create  TEMPORARY table `t` (a int)",
                    b'D' => b"drop table if exists t",
                    _ => b"select 1",
                },
                is_log_reopened: std::mem::take(&mut is_reopened),
                ..Event::new(number as u64, session, command)
            };
            again.take(&event, &mut give).unwrap();
        }
        again.finish(&mut give).unwrap();
        let mut coverage = Coverage::default();
        again.say("log", &mut coverage);
        let said: Vec<_> = coverage.places.iter().map(|place| place.reason.as_str()).collect();
        (given.join(" "), said.join("\n"))
    }

    #[test]
    fn sessions_before_and_after_a_restart_are_two() {
        for (log, sessions, said) in [
            // A log without a banner, or with one at its beginning.
            ("8 9 8", "a b a", ""),
            ("| 8 9 8", "a b a", ""),
            // From the beginning again.
            ("8 9 | 8 9", "a b !a !b c d", "restarted once"),
            ("8 | 8 9", "a !a b c", "cannot be told"),
            ("8 9 5000 | 10 8 5001", "a b c !a !b !c d e f", "restarted once"),
            ("8 9 | 8@other", "a b !a !b c", "restarted once"),
            ("700 | +700", "a !a b", "restarted once"),
            ("700T | 700T 900", "a !a b c", "restarted once"),
            ("8 | 8 | 8", "a !a b !b c", "restarted 2 times"),
            // Opened again by the same server.
            ("8 9 5000 | 5000 5001 8", "a b c c d a", "opened again once"),
            ("8 9 | 9 10 8", "a b b c a", "opened again once"),
            ("700 800 | 700 800", "a b a b", "cannot be told"),
            ("700T | 700D 700T", "a a a", "opened again once"),
            // A restart long after it.
            ("90 95 | 95 96 | 8 90", "a b b c !a !b !c d e", "opened again once"),
        ] {
            let (found, words) = played(log);
            assert_eq!(found, sessions, "{log}");
            assert!(words.contains(said) && words.is_empty() == said.is_empty(), "{log}: {words}");
        }
    }

    #[test]
    fn an_id_that_comes_again_without_a_banner() {
        for (log, sessions, said) in [
            ("8 9 +8 8", "a b !a c c", "came again once"),
            ("8 8@other 8@other", "a !a b b", "came again once"),
            ("8T 8 8T", "a a !a b", "came again once"),
            ("8T 8D 8T", "a a a", ""),
            // It said that it ended.
            ("8 -8 8 8", "a a b b", ""),
        ] {
            let (found, words) = played(log);
            assert_eq!(found, sessions, "{log}");
            assert!(words.contains(said) && words.is_empty() == said.is_empty(), "{log}: {words}");
        }
    }

    #[test]
    fn other_sources_are_left_alone() {
        let (mut again, mut given) = (Again::default(), Vec::new());
        for (session, connection) in [(1, Some(8)), (2, Some(8)), (1 << 63, None), (1, Some(8))] {
            let event = Event { connection, ..Event::new(0, session, Command::Connect) };
            let mut give = |event: &Event<'_>| {
                given.push(event.session);
                Ok(())
            };
            again.take(&event, &mut give).unwrap();
        }
        assert_eq!(given, [1, 2, 1 << 63, 1]);
    }
}
