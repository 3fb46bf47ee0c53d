//! Whatever is written is read again, in order, whatever happened to the rest of the file.

mod damage;
mod edits;
mod size;

use std::path::Path;

use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};
use proptest::{collection, option, sample};

use super::decode::Block;
use super::encode::Encoder;
use super::frame::MAX_BLOCK_BYTES;
use super::writer::MAX_EVENT_BYTES;
use super::{Header, Kind, Reader, Writer, WriterOptions};
use crate::commands;
use crate::coverage::Coverage;
use crate::event::{Command, Event, Outcome, Sink};
use crate::measures::Measure;

/// An event that owns what it has.
#[derive(Clone, Debug)]
struct Owned {
    numbers: Event<'static>,
    parts: [Vec<u8>; 5],
}

impl Owned {
    fn event(&self) -> Event<'_> {
        let [user, host, database, text, parameters] = &self.parts;
        Event { user, host, database, text, parameters, ..self.numbers.clone() }
    }
}

fn some_command() -> impl Strategy<Value = Command> {
    let named = [
        Command::Connect,
        Command::Quit,
        Command::Query,
        Command::Prepare,
        Command::Execute,
        Command::BulkExecute,
        Command::Fetch,
        Command::Close,
        Command::ResetStatement,
        Command::InitDb,
        Command::ChangeUser,
        Command::ResetConnection,
        Command::Ping,
    ];
    (any::<u8>(), 0..20usize)
        .prop_map(move |(byte, at)| named.get(at).copied().unwrap_or_else(|| commands::by_byte(byte)))
}

fn some_outcome() -> impl Strategy<Value = Outcome> {
    (0..4, any::<u16>()).prop_map(|(kind, code)| match kind {
        0 => Outcome::Unknown,
        1 => Outcome::Ok,
        2 => Outcome::Unanswered,
        _ => Outcome::Error(code),
    })
}

fn some_number() -> impl Strategy<Value = Option<u64>> {
    option::of((0..64u32, any::<u64>()).prop_map(|(shift, value)| value >> shift))
}

fn some_event() -> impl Strategy<Value = Owned> {
    let bytes = || collection::vec(any::<u8>(), 0..40);
    let word = || {
        sample::select(vec![
            &b""[..],
            b"a",
            b"select 1",
            b"\xff\x00\x01",
            b"select c from t1 where a = 'it''s' and b=0x1F or c = \"\\\"\" -- 12",
            b"select c from t1 where a = 'no' and b=12345 or c = \"some\" -- 9",
            b"insert into t values (1, 'open \\",
        ])
        .prop_map(<[u8]>::to_vec)
    };
    let numbers = collection::vec(some_number(), Measure::ALL.len());
    (
        (any::<u64>(), 0..6u64, some_command(), some_outcome(), numbers, option::of(any::<u32>())),
        (word(), word(), word(), proptest::prop_oneof![bytes(), word()], bytes()),
        (0..20u16, some_number(), any::<bool>(), any::<bool>(), some_number(), some_number(), some_number()),
    )
        .prop_map(|(a, b, c)| {
            let mut event = Event::new(a.0, a.1, a.2);
            event.outcome = a.3;
            for (measure, value) in Measure::ALL.into_iter().zip(a.4) {
                event.measures.set(measure, value);
            }
            event.statement = a.5;
            (event.parameter_count, event.checksum, event.is_state, event.is_cut) = (c.0, c.1, c.2, c.3);
            (event.response_ns, event.first_byte_ns, event.connection) = (c.4, c.5, c.6);
            Owned { numbers: event, parts: [b.0, b.1, b.2, b.3, b.4] }
        })
}

pub(super) fn with_literals() -> WriterOptions {
    WriterOptions { with_literals: true, ..WriterOptions::default() }
}

fn write(path: &Path, options: &WriterOptions, events: &[Owned]) -> super::Totals {
    let mut writer = Writer::create(path, options).unwrap();
    for event in events {
        writer.event(&event.event()).unwrap();
    }
    writer.finish(&Coverage::default()).unwrap()
}

/// All events of a recording, as text: an Event has no equality, its text has every field.
pub(super) fn read_all(reader: &mut Reader) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        all.push(format!("{event:?}"));
    }
    all
}

proptest! {
    #[test]
    fn any_events_come_back_from_a_block(
        mut events in collection::vec(some_event(), 1..120),
        splits in any::<bool>(),
    ) {
        events.sort_by_key(|event| event.numbers.start_ns);
        let mut encoder = Encoder::new(splits);
        for event in &events {
            encoder.push(&event.event());
        }
        let ((first_ns, last_ns), mut raw) = (encoder.span_ns(), Vec::new());
        prop_assert_eq!(encoder.events() as usize, events.len());
        encoder.take(&mut raw);
        let header = Header {
            version: 1,
            kind: Kind::Events,
            events: u32::try_from(events.len()).unwrap(),
            raw_bytes: 0,
            stored_bytes: 0,
            sequence: 0,
            first_ns,
            last_ns,
            checksum: 0,
        };
        let mut block = Block::new(&header, raw).ok().unwrap();
        for event in &events {
            prop_assert_eq!(block.next_start_ns(), Some(event.numbers.start_ns));
            prop_assert!(block.advance().unwrap());
            prop_assert_eq!(format!("{:?}", block.event()), format!("{:?}", event.event()));
        }
        prop_assert!(!block.advance().unwrap());
    }

    #[test]
    fn any_events_come_back_in_order_of_start(
        mut events in collection::vec(some_event(), 0..120),
        block_bytes in 100..5000usize,
    ) {
        for event in &mut events {
            // A session's starts are put in order when they are a little apart: here they are far apart or alike.
            event.numbers.start_ns = (event.numbers.start_ns >> 58) << 40;
            // Of other commands, and of a part of a statement, nothing is kept but numbers.
            event.numbers.is_cut = false;
            if !event.numbers.command.has_text() {
                event.parts[3].clear();
                event.parts[4].clear();
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        let options = WriterOptions { block_bytes, ..with_literals() };
        let totals = write(&path, &options, &events);
        events.sort_by_key(|event| event.numbers.start_ns);
        let expected: Vec<String> = events.iter().map(|event| format!("{:?}", event.event())).collect();
        let mut reader = Reader::open(&path).unwrap();
        prop_assert!(reader.has_index());
        prop_assert_eq!(read_all(&mut reader), expected.clone());
        prop_assert_eq!(reader.damage(), &Coverage::default());
        prop_assert_eq!(reader.unordered(), 0);
        prop_assert_eq!(reader.info()[0].totals.as_ref(), Some(&totals));
        prop_assert_eq!(totals.events, events.len() as u64);
        prop_assert!(totals.most_sessions <= Some(totals.events));
        if let Some(middle) = events.get(events.len() / 2) {
            let start_ns = middle.numbers.start_ns;
            reader.seek(start_ns);
            let from = events.iter().position(|event| event.numbers.start_ns >= start_ns).unwrap();
            prop_assert_eq!(&read_all(&mut reader), &expected[from..]);
        }
    }
}

#[test]
fn late_events_are_read_in_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let second = 1_000_000_000_u64;
    let mut writer =
        Writer::create(&path, &WriterOptions { window_bytes: 1 << 20, ..with_literals() }).unwrap();
    let mut expected = Vec::new();
    for index in 0..100_000 {
        // Every thousandth took a minute: it comes after all that started in that minute.
        let is_long = index % 1000 == 0;
        let end_ns = (100 + index) * second / 100;
        let response_ns = if is_long { 60 * second } else { 1_000 };
        let start_ns = (end_ns + 60 * second).saturating_sub(response_ns);
        let session = if is_long { index } else { 1 };
        let event = Event { response_ns: Some(response_ns), ..Event::new(start_ns, session, Command::Query) };
        writer.event(&event).unwrap();
        expected.push(start_ns);
    }
    expected.sort_unstable();
    let totals = writer.finish(&Coverage::default()).unwrap();
    assert!((90..=100).contains(&totals.late_events), "{totals:?}");
    let mut reader = Reader::open(&path).unwrap();
    let mut starts = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        starts.push(event.start_ns);
    }
    assert!(starts == expected, "in order");
    assert_eq!(reader.unordered(), 0);
}

#[test]
fn a_clock_of_whole_seconds_keeps_a_session_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut writer = Writer::create(&path, &with_literals()).unwrap();
    // Both ended in second 10 of the log: the second one, which took longer, seems to have started first.
    for (start_ns, session, text) in [(9_900, 7, "first"), (9_100, 7, "second"), (9_500, 8, "other")] {
        let event =
            Event { text: text.as_bytes(), ..Event::new(start_ns * 1_000_000, session, Command::Query) };
        writer.event(&event).unwrap();
    }
    assert_eq!(writer.finish(&Coverage::default()).unwrap().moved_events, 1);
    let mut reader = Reader::open(&path).unwrap();
    let mut texts = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        texts.push(String::from_utf8(event.text.to_vec()).unwrap());
    }
    assert_eq!(texts, ["other", "first", "second"]);
}

#[test]
fn the_longest_statement_fits_into_a_block() {
    // Numbers of one digit: what a split makes most of.
    let text = b"1,".repeat(MAX_EVENT_BYTES / 2);
    let mut encoder = Encoder::new(true);
    encoder.push(&Event { text: &text, ..Event::new(1, 1, Command::Query) });
    let mut raw = Vec::new();
    encoder.take(&mut raw);
    assert!(raw.len() <= MAX_BLOCK_BYTES, "{}", raw.len());
}

#[test]
fn a_recording_is_private_and_never_overwritten_unasked() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    std::fs::write(&path, "somebody's").unwrap();
    let error = Writer::create(&path, &WriterOptions::default()).err().unwrap().to_string();
    assert!(error.contains("--force"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"somebody's");
    Writer::create(&path, &WriterOptions { force: true, ..WriterOptions::default() }).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn totals_say_what_a_replay_needs() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(&folder.path().join("one"), &with_literals()).unwrap();
    let refused = Outcome::Error(1045);
    let mut say = |session, command, text: &str, outcome| {
        let mut event = Event::new(1_000_000_000, session, command);
        (event.text, event.outcome) = (text.as_bytes(), outcome);
        writer.event(&event).unwrap();
    };
    for session in 0..5 {
        say(session, Command::Connect, "", Outcome::Ok);
        say(session, Command::Query, "select 1", Outcome::Ok);
        // Of three at most.
        if session >= 2 {
            say(session - 2, Command::Quit, "", Outcome::Ok);
        }
    }
    say(9, Command::Connect, "", refused);
    writer.begin_source();
    let mut event = Event::new(2_000_000_000, 10, Command::Execute);
    (event.text, event.parameters) = (b"select ?", b"1234567");
    writer.event(&event).unwrap();
    let totals = writer.finish(&Coverage::default()).unwrap();
    assert_eq!((totals.most_sessions, totals.longest_bytes), (Some(3 + 1), Some(15)));
}
