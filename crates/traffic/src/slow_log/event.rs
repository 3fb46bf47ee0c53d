//! From a header and a statement to an event.

use super::header::{Header, duration};
use super::time::same_but_for_zone;
use crate::commands;
use crate::event::{Command, Event, Outcome};

const NS_PER_S: u64 = 1_000_000_000;
/// Servers write what ended together in any order.
const LATE_NS: u64 = 2 * NS_PER_S;
/// Sessions that are only known by user and host have this bit; numbers of threads are below it.
const BY_NAME: u64 = 1 << 63;

/// What a log says once and means for all events after it; `None` for what it did not say yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Carried {
    /// `use db;` is written only where the database differs from that of the event before, whichever session that was.
    pub(super) database: Option<Vec<u8>>,
    /// When it was said, in ns; 0 if that is not known.
    pub(super) said_ns: u64,
    /// `# Time:` is written once a second in the older form. Needed only where no timestamp is set; 0 where it could not be
    /// read.
    pub(super) time_ns: Option<u64>,
}

impl Carried {
    pub(super) fn update(&mut self, header: &Header<'_>) {
        if let Some(used) = header.used {
            let database = self.database.get_or_insert_default();
            database.clear();
            used.put_onto(database);
            self.said_ns = end_ns(header).unwrap_or(0);
        }
        match header.time {
            Some(time) => self.time_ns = Some(time.ns),
            None if header.has_unread_time => self.time_ns = Some(0),
            None => {}
        }
    }

    /// A server that opens its log again has written no database yet.
    pub(super) fn reopen(&mut self) {
        self.database.get_or_insert_default().clear();
        self.said_ns = 0;
    }

    /// Whether an event is older than what was said of the database, so that this holds for others: pieces of logs were put
    /// together in another order, or somebody sorted them.
    pub(super) fn is_of_others(&self, header: &Header<'_>) -> bool {
        let is_said = header.schema.is_none() && self.database.as_ref().is_some_and(|name| !name.is_empty());
        is_said && self.said_ns > 0 && end_ns(header).is_some_and(|end_ns| end_ns + LATE_NS < self.said_ns)
    }

    /// Whether an event needs something that was said before all of this.
    pub(super) fn lacks(&self, header: &Header<'_>) -> bool {
        (self.database.is_none() && header.schema.is_none())
            || (self.time_ns.is_none() && header.timestamp_ns.is_none() && header.time.is_none())
    }

    /// Takes from what was said before what was not said since.
    pub(super) fn inherit(&mut self, before: &Carried) {
        if self.database.is_none() {
            self.database.clone_from(&before.database);
            self.said_ns = before.said_ns;
        }
        self.time_ns = self.time_ns.or(before.time_ns);
    }

    pub(super) fn is_complete(&self) -> bool {
        self.database.is_some() && self.time_ns.is_some()
    }
}

/// The statement of an event: its text, or a command that has none.
pub(super) enum Statement<'a> {
    Text(&'a [u8]),
    Command(&'a [u8]),
}

/// The event. `header` has a Query_time.
pub(super) fn event<'a>(header: &Header<'a>, carried: &'a Carried, statement: &Statement<'a>) -> Event<'a> {
    let response_ns = header.query_ns.and_then(duration);
    let account = header.account.unwrap_or_default();
    let thread = account.id.or(header.thread);
    let session = thread.unwrap_or_else(|| by_name(account.user, account.host));
    let (command, text) = match statement {
        Statement::Text(text) => (Command::Query, *text),
        Statement::Command(name) => (commands::by_name(name), &b""[..]),
    };
    let mut event = Event::new(start_ns(header, carried, response_ns), session, command);
    event.connection = thread;
    event.text = text;
    event.response_ns = response_ns;
    event.user = account.user;
    event.host = account.host;
    let carried_database = carried.database.as_deref().filter(|_| !carried.is_of_others(header));
    event.database = header.schema.or(carried_database).unwrap_or_default();
    event.measures = header.measures;
    event.outcome = match header.errno {
        None => Outcome::Unknown,
        Some(0) => Outcome::Ok,
        Some(errno) => Outcome::Error(errno),
    };
    event
}

/// When an event ended, where that is not in a time of some zone.
pub(super) fn end_ns(header: &Header<'_>) -> Option<u64> {
    header.time.filter(|time| !time.is_local).map(|time| time.ns).or(header.timestamp_ns)
}

/// Servers stamp the end. Of several stamps the finest is taken; 0 where there is none.
fn start_ns(header: &Header<'_>, carried: &Carried, response_ns: Option<u64>) -> u64 {
    if let Some(start) = header.start.filter(|start| !start.is_local) {
        return start.ns;
    }
    let end_ns = match (header.time, header.timestamp_ns) {
        (Some(time), _) if !time.is_local => time.ns,
        // The older form has no zone, but Percona's has microseconds: whole seconds from the one, the rest from the
        // other.
        (Some(time), Some(set)) => {
            let is_same = same_but_for_zone(time.ns / NS_PER_S, set / NS_PER_S);
            if is_same && set % NS_PER_S == 0 { set + time.ns % NS_PER_S } else { set }
        }
        (None, Some(set)) => set,
        (Some(time), None) => time.ns,
        (None, None) => carried.time_ns.unwrap_or(0),
    };
    end_ns.saturating_sub(response_ns.unwrap_or(0))
}

/// Before 5.6 the log has no thread number: then all from one user and host count as one session.
fn by_name(user: &[u8], host: &[u8]) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    hasher.update(user);
    hasher.update(b"@");
    hasher.update(host);
    hasher.digest() | BY_NAME
}
