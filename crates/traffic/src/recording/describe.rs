//! `recording info` and `recording verify`: what is in a recording, and whether all of it can still be read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use serde_json::{Value, json};

use super::frame::Kind;
use super::reader::Reader;
use super::source::Source;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome};
use crate::sources::coverage_of;

/// Different sessions and names that are told apart; of what comes later only the events are counted.
const MAX_SESSIONS: usize = 4 << 20;
const MAX_NAMES: usize = 10_000;

/// Counts over all events.
#[derive(Default)]
struct Contents {
    events: u64,
    state_events: u64,
    cut_events: u64,
    errors: u64,
    unanswered: u64,
    with_response: u64,
    first_ns: Option<u64>,
    last_ns: u64,
    commands: BTreeMap<String, u64>,
    sessions: HashSet<u64>,
    has_more_sessions: bool,
    users: Names,
    hosts: Names,
    databases: Names,
}

#[derive(Default)]
struct Names {
    counts: HashMap<Vec<u8>, u64>,
    others: u64,
}

impl Names {
    fn count(&mut self, name: &[u8]) {
        if let Some(count) = self.counts.get_mut(name) {
            *count += 1;
        } else if self.counts.len() < MAX_NAMES {
            self.counts.insert(name.to_vec(), 1);
        } else {
            self.others += 1;
        }
    }

    /// Name to events, the most frequent first.
    fn json(&self) -> Value {
        let mut names: Vec<(&Vec<u8>, &u64)> = self.counts.iter().collect();
        names.sort_by(|one, other| other.1.cmp(one.1).then_with(|| one.0.cmp(other.0)));
        let list: Vec<Value> = names
            .into_iter()
            .map(|(name, count)| json!({"name": String::from_utf8_lossy(name), "events": count}))
            .collect();
        json!({"names": list, "events_of_others": self.others})
    }
}

impl Contents {
    fn count(&mut self, event: &Event<'_>) {
        if event.is_state {
            self.state_events += 1;
            return;
        }
        self.events += 1;
        self.cut_events += u64::from(event.is_cut);
        self.errors += u64::from(matches!(event.outcome, Outcome::Error(_)));
        self.unanswered += u64::from(event.outcome == Outcome::Unanswered && event.is_asked());
        self.with_response += u64::from(event.response_ns.is_some());
        self.first_ns.get_or_insert(event.start_ns);
        self.last_ns = self.last_ns.max(event.start_ns.saturating_add(event.response_ns.unwrap_or(0)));
        let name = match event.command {
            Command::Other(byte) => format!("Other {byte:#04x}"),
            command => format!("{command:?}"),
        };
        *self.commands.entry(name).or_default() += 1;
        if self.sessions.len() < MAX_SESSIONS {
            self.sessions.insert(event.session);
        } else if !self.sessions.contains(&event.session) {
            self.has_more_sessions = true;
        }
        self.users.count(event.user);
        self.hosts.count(event.host);
        self.databases.count(event.database);
    }
}

/// Everything that `recording info` prints. Without `quick` every event is read.
///
/// # Errors
/// The file cannot be read, or is not a recording.
pub fn info(path: &Path, quick: bool) -> anyhow::Result<Value> {
    let mut reader = Reader::open(path)?;
    let bytes = base::door::length(path)?;
    let mut contents = Contents::default();
    if !quick {
        while let Some(event) = reader.next()? {
            contents.count(&event);
        }
    }
    let blocks = reader.blocks();
    let of_events = || blocks.iter().filter(|(_, header)| header.kind == Kind::Events);
    let counted: u64 = of_events().map(|(_, header)| u64::from(header.events)).sum();
    let (first_ns, last_start_ns) = reader.span_ns().unwrap_or_default();
    #[allow(clippy::cast_precision_loss)]
    let bytes_an_event = (counted > 0).then(|| (bytes as f64 / counted as f64 * 100.0).round() / 100.0);
    let mut found = json!({
        "file": path.display().to_string(),
        "bytes": bytes,
        "events": if quick { counted } else { contents.events },
        "bytes_per_event": bytes_an_event,
        "first_start_ns": if counted > 0 { json!(first_ns) } else { Value::Null },
        "last_start_ns": if counted > 0 { json!(last_start_ns) } else { Value::Null },
        "blocks": {
            "count": blocks.len(),
            "events": of_events().count(),
            "raw_bytes": of_events().map(|(_, header)| u64::from(header.raw_bytes)).sum::<u64>(),
            "stored_bytes": of_events().map(|(_, header)| u64::from(header.stored_bytes)).sum::<u64>(),
            "has_index": reader.has_index(),
        },
        "segments": reader.info(),
        "coverage": coverage_of(&reader, &path.display().to_string()),
        "damage": reader.damage(),
    });
    if !quick && let Some(object) = found.as_object_mut() {
        object.insert("last_end_ns".to_owned(), json!(contents.last_ns));
        object.insert("state_events".to_owned(), json!(contents.state_events));
        object.insert("cut_events".to_owned(), json!(contents.cut_events));
        object.insert("errors".to_owned(), json!(contents.errors));
        object.insert("unanswered".to_owned(), json!(contents.unanswered));
        object.insert("with_response_time".to_owned(), json!(contents.with_response));
        object.insert("unordered".to_owned(), json!(reader.unordered()));
        object.insert("sessions".to_owned(), json!(contents.sessions.len()));
        object.insert("has_more_sessions".to_owned(), json!(contents.has_more_sessions));
        object.insert("commands".to_owned(), json!(contents.commands));
        object.insert("users".to_owned(), contents.users.json());
        object.insert("hosts".to_owned(), contents.hosts.json());
        object.insert("databases".to_owned(), contents.databases.json());
    }
    Ok(found)
}

/// Looks at every byte: headers, checksums, columns, order and counts.
///
/// # Errors
/// The file cannot be read, or is not a recording. Damage is not an error here; the caller decides.
pub fn verify(path: &Path) -> anyhow::Result<(Value, Coverage)> {
    let mut reader = Reader::open(path)?;
    let mut events = 0_u64;
    while reader.next()?.is_some() {
        events += 1;
    }
    let mut damage = reader.damage().clone();
    let expected: u64 = reader.blocks().iter().map(|(_, header)| u64::from(header.events)).sum();
    if reader.has_index() {
        // The index hid the headers from us.
        Source::open(path)?.scan(&mut damage)?;
    }
    let unfinished = reader.info().iter().filter(|info| info.totals.is_none()).count();
    let said: u64 =
        reader.info().iter().filter_map(|info| info.totals.as_ref()).map(|totals| totals.events).sum();
    let found = json!({
        "file": path.display().to_string(),
        "is_whole": damage.damaged == 0 && events == expected && (unfinished > 0 || said == events),
        "events": events,
        "events_lost": damage.lost_events.max(expected - events.min(expected)),
        "events_said": said,
        "unordered": reader.unordered(),
        "segments": reader.info().len(),
        "unfinished_segments": unfinished,
        "damage": damage,
    });
    Ok((found, damage))
}
