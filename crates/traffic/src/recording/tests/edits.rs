//! Cut, filter and merge beside a plain model; what must never be in a recording.

use std::path::Path;

use proptest::prelude::{any, prop_assert_eq, proptest};
use proptest::{collection, sample};

use super::{read_all, with_literals};
use crate::coverage::Coverage;
use crate::event::{Command, Event, Sink};
use crate::filter::Selection;
use crate::recording::edit::{merge, refuse_same_file, select};
use crate::recording::place::Destination;
use crate::recording::{Position, Reader, Writer, WriterOptions, anonymise};
use sql::{Order, Scheme};

/// Start, session, what it is.
type Plain = (u64, u64, u8);

/// An event of a kind; statements are prepared and executed by number 1 in each session.
fn event(plain: &Plain) -> Event<'static> {
    let (start_ns, session, kind) = *plain;
    let (command, text, statement): (_, &[u8], _) = match kind {
        0 => (Command::Connect, b"", None),
        1 => (Command::Query, b"SET @a = 1", None),
        2 => (Command::Prepare, b"select ? from t", Some(1)),
        3 => (Command::Execute, b"select ? from t", Some(1)),
        4 => (Command::Query, b"select 1 from t", None),
        _ => (Command::Query, b"insert into u values (1)", None),
    };
    Event {
        text,
        statement,
        user: if session == 1 { b"one" } else { b"app" },
        ..Event::new(start_ns, session, command)
    }
}

fn write(path: &Path, events: &[Plain]) {
    let options = WriterOptions { block_bytes: 300, ..with_literals() };
    let mut writer = Writer::create(path, &options).unwrap();
    for plain in events {
        writer.event(&event(plain)).unwrap();
    }
    writer.finish(&Coverage::default()).unwrap();
}

/// Events of a recording, those that restore state left out, and how many these are.
fn read(path: &Path) -> (Vec<String>, Vec<String>) {
    let mut reader = Reader::open(path).unwrap();
    read_all(&mut reader).into_iter().partition(|event| event.contains("is_state: false"))
}

fn as_text<'a>(events: impl IntoIterator<Item = &'a Plain>) -> Vec<String> {
    events.into_iter().map(|plain| format!("{:?}", event(plain))).collect()
}

/// In order of start, no two at once, and seconds apart: a writer moves none of them.
fn ordered(events: &mut [Plain]) {
    events.sort_by_key(|plain| plain.0);
    for (index, plain) in events.iter_mut().enumerate() {
        plain.0 = plain.0 * 10_000_000_000 + index as u64;
    }
}

fn bytes_of(path: &Path) -> Vec<u8> {
    // Blocks are compressed: what is looked for must be looked for in what a reader sees.
    let mut reader = Reader::open(path).unwrap();
    let mut all = Vec::new();
    while let Some(event) = reader.next().unwrap() {
        for part in [event.text, event.parameters, event.user, event.host, event.database] {
            all.extend_from_slice(part);
            all.push(0);
        }
    }
    all.extend_from_slice(&std::fs::read(path).unwrap());
    all
}

proptest! {
    #[test]
    fn cut_and_filter_keep_what_a_plain_loop_keeps(
        mut events in collection::vec((0..50u64, 1..4u64, 0..6u8), 0..60),
        since in 0..50u64,
        length in 1..50u64,
        condition in sample::select(vec!["user=one", "table=u", "read_only=yes", "command=query", "text~SET", "session!=2"]),
    ) {
        ordered(&mut events);
        let folder = tempfile::tempdir().unwrap();
        let [input, cut, filtered] = ["a", "b", "c"].map(|name| folder.path().join(name));
        write(&input, &events);
        let range = since * 10_000_000_000..(since + length) * 10_000_000_000;
        let edited = select(&input, &Destination::new(&cut, false), "cut", |event| range.contains(&event.start_ns)).unwrap();
        let expected = as_text(events.iter().filter(|plain| range.contains(&plain.0)));
        let (kept, state) = read(&cut);
        prop_assert_eq!(&kept, &expected);
        prop_assert_eq!(edited.kept, expected.len() as u64);
        prop_assert_eq!(edited.totals.state_events, state.len() as u64);

        let selection = Selection { filters: vec![condition.parse().unwrap()], ..Selection::default() };
        let mut accepts = selection.acceptor();
        select(&input, &Destination::new(&filtered, false), "filtered", |event| accepts(event)).unwrap();
        let holds = |plain: &&Plain| match condition {
            "user=one" => plain.1 == 1,
            "table=u" => plain.2 == 5,
            "read_only=yes" => plain.2 != 5,
            "command=query" => matches!(plain.2, 1 | 4 | 5),
            "text~SET" => plain.2 == 1,
            _ => plain.1 != 2,
        };
        prop_assert_eq!(read(&filtered).0, as_text(events.iter().filter(holds)));
    }

    #[test]
    fn an_execution_that_is_kept_has_its_prepare(
        mut events in collection::vec((0..50u64, 1..4u64, 0..6u8), 0..60),
        since in 0..50u64,
    ) {
        ordered(&mut events);
        let folder = tempfile::tempdir().unwrap();
        let [input, cut] = ["a", "b"].map(|name| folder.path().join(name));
        write(&input, &events);
        let since_ns = since * 10_000_000_000;
        select(&input, &Destination::new(&cut, false), "cut", |event| event.start_ns >= since_ns).unwrap();
        let mut reader = Reader::open(&cut).unwrap();
        let (mut prepared, mut logins) = (Vec::new(), Vec::new());
        while let Some(event) = reader.next().unwrap() {
            match event.command {
                Command::Connect => {
                    prepared.retain(|session| *session != event.session);
                    logins.push(event.session);
                }
                Command::Prepare => prepared.push(event.session),
                _ => {}
            }
            // What was before it in the whole recording must be before it here.
            let before = events.iter().filter(|plain| plain.1 == event.session && plain.0 < event.start_ns);
            let since_login: Vec<&Plain> = before.collect();
            if let Some(login) = since_login.iter().rposition(|plain| plain.2 == 0) {
                proptest::prop_assert!(logins.contains(&event.session));
                let has_prepare = since_login[login..].iter().any(|plain| plain.2 == 2);
                if event.command == Command::Execute && has_prepare {
                    proptest::prop_assert!(prepared.contains(&event.session));
                }
            }
        }
    }

    #[test]
    fn merged_files_are_one_in_order_with_sessions_apart(
        mut parts in collection::vec(collection::vec((0..50u64, 1..4u64, 0..6u8), 0..30), 1..5),
        _seed in any::<u8>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut inputs = Vec::new();
        let mut expected: Vec<(u64, usize, usize, String)> = Vec::new();
        let count = parts.len() as u64;
        for (index, part) in parts.iter_mut().enumerate() {
            ordered(part);
            inputs.push(folder.path().join(format!("{index}.rec")));
            write(&inputs[index], part);
            for (at, plain) in part.iter().enumerate() {
                let merged = Event { session: plain.1 * count + index as u64, ..event(plain) };
                expected.push((plain.0, index, at, format!("{merged:?}")));
            }
        }
        expected.sort();
        let output = folder.path().join("all.rec");
        let edited = merge(&inputs, &Destination::new(&output, false)).unwrap();
        let expected: Vec<String> = expected.into_iter().map(|event| event.3).collect();
        prop_assert_eq!(read(&output).0, expected.clone());
        prop_assert_eq!(edited.kept, expected.len() as u64);
    }
}

#[test]
fn output_is_never_written_over_input() {
    let folder = tempfile::tempdir().unwrap();
    let [input, link] = ["a", "b"].map(|name| folder.path().join(name));
    write(&input, &[(1, 1, 4)]);
    std::fs::hard_link(&input, &link).unwrap();
    let before = std::fs::read(&input).unwrap();
    for output in [&input, &link] {
        assert!(refuse_same_file(output, std::slice::from_ref(&input)).is_err());
        assert!(select(&input, &Destination::new(output, true), "cut", |_| true).is_err());
        assert!(merge(std::slice::from_ref(&input), &Destination::new(output, true)).is_err());
    }
    assert_eq!(std::fs::read(&input).unwrap(), before);
}

#[test]
fn recordings_with_and_without_literals_do_not_mix() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other, both] = ["a", "b", "c"].map(|name| folder.path().join(name));
    write(&one, &[(1, 1, 4)]);
    Writer::create(&other, &WriterOptions::default()).unwrap().finish(&Coverage::default()).unwrap();
    assert!(merge(&[one, other], &Destination::new(&both, false)).is_err());
}

/// A replay asks for the data as of there: a part begins later, and an anonymised recording names no host's files.
#[test]
fn a_binary_logs_position_stays_where_the_beginning_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let position = Some(Position { log: "db7-bin.000012".to_owned(), offset: 4567, ..Position::default() });
    let mut options = with_literals();
    options.info.position.clone_from(&position);
    let mut writer = Writer::create(&path("a"), &options).unwrap();
    writer.event(&event(&(1, 1, 4))).unwrap();
    writer.finish(&Coverage::default()).unwrap();
    let to = |name| path(name);
    for (how, name) in [("filtered by user=one", "b"), ("cut from +1s until its end", "c")] {
        select(&path("a"), &Destination::new(&to(name), false), how, |_| true).unwrap();
    }
    merge(&[path("a"), path("b")], &Destination::new(&to("d"), false)).unwrap();
    let scheme = Scheme { key: [7; 32], ..Scheme::default() };
    anonymise::run(&path("a"), &Destination::new(&to("e"), false), &scheme).unwrap();
    let kept = |name| Reader::open(&path(name)).unwrap().info()[0].position.clone();
    assert_eq!((kept("a"), kept("b")), (position.clone(), position));
    assert_eq!((kept("c"), kept("d"), kept("e")), (None, None, None));
}

#[test]
fn no_password_is_in_a_recording() {
    let statements = [
        "CREATE USER app IDENTIFIED BY 'hunter2secret'",
        "ALTER USER app@'%' IDENTIFIED WITH mysql_native_password BY 'hunter2secret'",
        "SET PASSWORD FOR app = 'hunter2secret'",
        "SET PASSWORD = PASSWORD('hunter2secret')",
        "GRANT ALL ON *.* TO app IDENTIFIED BY 'hunter2secret'",
        "CHANGE MASTER TO MASTER_HOST='h', MASTER_PASSWORD='hunter2secret'",
        "CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD='hunter2secret'",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD 'hunter2secret')",
        "update users set password = 'hunter2secret' where id = 1",
    ];
    for with_literals in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.rec");
        let options = WriterOptions { with_literals, ..WriterOptions::default() };
        let mut writer = Writer::create(&path, &options).unwrap();
        for (index, text) in statements.iter().enumerate() {
            for command in
                [Command::Query, Command::Prepare, Command::Execute, Command::Other(3), Command::Connect]
            {
                let text = text.as_bytes();
                writer.event(&Event { text, ..Event::new(index as u64, 1, command) }).unwrap();
                // A statement that was cut in the middle of a value.
                let is_cut =
                    Event { is_cut: true, text: &text[..text.len() - 2], ..Event::new(9, 1, command) };
                writer.event(&is_cut).unwrap();
            }
        }
        let parameters = b"\x00\x01\xfd\x00\x0dhunter2secret";
        for text in ["ALTER USER app IDENTIFIED BY ?", "update users set password = ? where id = 1"] {
            let text = text.as_bytes();
            let execute =
                Event { text, parameters, parameter_count: 1, ..Event::new(99, 1, Command::Execute) };
            writer.event(&execute).unwrap();
        }
        let totals = writer.finish(&Coverage::default()).unwrap();
        assert_eq!(totals.redacted_events > 0, with_literals);
        let bytes = bytes_of(&path);
        assert!(memchr::memmem::find(&bytes, b"hunter2").is_none(), "literals {with_literals}");
        assert!(memchr::memmem::find(&bytes, b"app").is_some() || !with_literals);
    }
}

#[test]
fn of_a_statement_that_was_cut_only_the_class_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut writer = Writer::create(&path, &with_literals()).unwrap();
    let text = b"select c from t where id = 31415926 and name = 'Wilhelm";
    for command in [Command::Query, Command::Prepare, Command::Execute] {
        writer.event(&Event { text, is_cut: true, ..Event::new(1, 1, command) }).unwrap();
    }
    writer.finish(&Coverage::default()).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    while let Some(event) = reader.next().unwrap() {
        assert_eq!(String::from_utf8_lossy(event.text), "select c from t where id = ? and name = ?");
    }
}

#[test]
fn without_literals_no_value_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut writer = Writer::create(&path, &WriterOptions::default()).unwrap();
    for command in [Command::Query, Command::Execute, Command::Other(3), Command::InitDb] {
        let text = b"select c from t where name = 'Wilhelmina' and id = 31415926";
        let parameters = b"\x00\x01\xfd\x00\x0aWilhelmina";
        let event =
            Event { text, parameters, parameter_count: 1, checksum: Some(5), ..Event::new(1, 1, command) };
        writer.event(&event).unwrap();
    }
    writer.finish(&Coverage::default()).unwrap();
    let bytes = bytes_of(&path);
    for value in ["Wilhelmina", "31415926"] {
        assert!(memchr::memmem::find(&bytes, value.as_bytes()).is_none(), "{value}");
    }
    assert!(memchr::memmem::find(&bytes, b"name = ?").is_some());
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(reader.next().unwrap().unwrap().checksum, None);
}

#[test]
fn pseudonyms_are_the_same_for_text_and_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["a", "b"].map(|name| folder.path().join(name));
    let mut writer = Writer::create(&input, &with_literals()).unwrap();
    let text = b"select 1 from t where name = 'Wilhelmina' and id = 31415926";
    let query = Event { text, user: b"Wilhelmina", host: b"10.1.2.3", ..Event::new(1, 1, Command::Query) };
    writer.event(&query).unwrap();
    let mut parameters = b"\x00\x01\xfd\x00\x08\x00\x0c\x00\x0aWilhelmina".to_vec();
    parameters.extend_from_slice(&31_415_926_u64.to_le_bytes());
    parameters.extend_from_slice(b"\x0b\xea\x07\x0b\x15\x0a\x1e\x00\x01\x00\x00\x00");
    let execute = Event {
        text: b"select 1 from t where name = ? and id = ? and d = ?",
        parameters: &parameters,
        parameter_count: 3,
        checksum: Some(1),
        ..Event::new(2, 1, Command::Execute)
    };
    writer.event(&execute).unwrap();
    writer.finish(&Coverage::default()).unwrap();
    anonymise::run(&input, &Destination::new(&output, false), &Scheme { key: [7; 32], ..Scheme::default() })
        .unwrap();
    let mut reader = Reader::open(&output).unwrap();
    let info = &reader.info()[0];
    assert!(info.is_anonymised && info.host.is_empty());
    assert!(!format!("{info:?}").contains(folder.path().to_str().unwrap()), "names of files tell of people");
    let query = reader.next().unwrap().unwrap();
    let text = String::from_utf8(query.text.to_vec()).unwrap();
    let (name, id) =
        (text.split('\'').nth(1).unwrap().to_owned(), text.rsplit(' ').next().unwrap().to_owned());
    assert!(name != "Wilhelmina" && name.len() == 10 && id != "31415926" && id.len() == 8, "{text}");
    assert_eq!(query.user, name.as_bytes());
    assert!(query.host.len() == 8 && query.host != b"10.1.2.3");
    let execute = reader.next().unwrap().unwrap();
    assert!(!execute.is_cut && execute.checksum.is_none());
    assert_eq!(&execute.parameters[9..19], name.as_bytes());
    assert_eq!(&execute.parameters[19..27], id.parse::<u64>().unwrap().to_le_bytes());
    let date = &execute.parameters[27..];
    assert_eq!((date[0], date.len()), (11, 12));
    assert!(
        (1..=12).contains(&date[3]) && (1..=31).contains(&date[4]) && date[1..5] != [0xea, 0x07, 0x0b, 0x15]
    );
}

#[test]
fn parameters_of_limits_and_sleeps_stay_and_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let (plain, hidden) = (folder.path().join("plain"), folder.path().join("hidden"));
    let mut parameters = vec![0, 1];
    parameters.extend([8, 0].repeat(3)); // three of BIGINT
    for value in [5_i64, 71_234_567, 20] {
        parameters.extend(value.to_le_bytes());
    }
    let mut writer = Writer::create(&plain, &with_literals()).unwrap();
    writer
        .event(&Event {
            text: b"select sleep(?) from t where a = ? limit ?",
            statement: Some(1),
            parameter_count: 3,
            parameters: &parameters,
            ..Event::new(1, 1, Command::Execute)
        })
        .unwrap();
    writer.finish(&Coverage::default()).unwrap();
    anonymise::run(&plain, &Destination::new(&hidden, false), &Scheme { key: [7; 32], ..Scheme::default() })
        .unwrap();

    let mut reader = Reader::open(&hidden).unwrap();
    let event = reader.next().unwrap().unwrap();
    let values: Vec<i64> =
        event.parameters[8..].chunks(8).map(|value| i64::from_le_bytes(value.try_into().unwrap())).collect();
    assert_eq!((values[0], values[2]), (5, 20));
    assert_ne!(values[1], 71_234_567);
}

/// The anonymised text of a statement, and the values of another's parameters.
fn hidden(scheme: &Scheme, text: &[u8], kinds: &[[u8; 2]], values: &[u8]) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let (plain, hidden) = (folder.path().join("plain"), folder.path().join("hidden"));
    let mut parameters = vec![0; kinds.len().div_ceil(8)];
    parameters.push(1);
    parameters.extend(kinds.concat());
    let head = parameters.len();
    parameters.extend(values);
    let mut writer = Writer::create(&plain, &with_literals()).unwrap();
    writer.event(&Event { text, ..Event::new(1, 1, Command::Query) }).unwrap();
    let execute = Event {
        text: b"select ?",
        statement: Some(1),
        parameter_count: u16::try_from(kinds.len()).unwrap(),
        parameters: &parameters,
        ..Event::new(2, 1, Command::Execute)
    };
    writer.event(&execute).unwrap();
    writer.finish(&Coverage::default()).unwrap();
    anonymise::run(&plain, &Destination::new(&hidden, false), scheme).unwrap();
    let mut reader = Reader::open(&hidden).unwrap();
    let text = String::from_utf8(reader.next().unwrap().unwrap().text.to_vec()).unwrap();
    let execute = reader.next().unwrap().unwrap();
    assert!(!execute.is_cut);
    (text, execute.parameters[head..].to_vec())
}

#[test]
fn a_number_has_one_pseudonym_however_a_client_sends_it() {
    let scheme = Scheme { key: [7; 32], ..Scheme::default() };
    let [signed, unsigned] = [0, 0x80];
    let mut values = vec![0x80, 0xff];
    values.extend(i16::MIN.to_le_bytes());
    values.extend(i64::MIN.to_le_bytes());
    values.extend(u64::MAX.to_le_bytes());
    values.extend(12_345_f64.to_le_bytes());
    values.extend((-7.25_f64).to_le_bytes());
    values.extend(12_345_f32.to_le_bytes());
    values.extend(f64::MAX.to_le_bytes());
    values.extend(b"\x08-7.25000");
    let kinds = [
        [1, signed],
        [1, unsigned],
        [2, signed],
        [8, signed],
        [8, unsigned],
        [5, signed],
        [5, signed],
        [4, signed],
        [5, signed],
        [0xf6, signed],
    ];
    let text = b"select -128, 255, -32768, -9223372036854775808, 18446744073709551615, 12345, -7.25";
    let (text, values) = hidden(&scheme, text, &kinds, &values);
    let said: Vec<&str> = text.trim_start_matches("select ").split(", ").collect();
    let sent = [
        i8::from_le_bytes([values[0]]).to_string(),
        values[1].to_string(),
        i16::from_le_bytes([values[2], values[3]]).to_string(),
        i64::from_le_bytes(values[4..12].try_into().unwrap()).to_string(),
        u64::from_le_bytes(values[12..20].try_into().unwrap()).to_string(),
        f64::from_le_bytes(values[20..28].try_into().unwrap()).to_string(),
        f64::from_le_bytes(values[28..36].try_into().unwrap()).to_string(),
    ];
    assert_eq!(said, sent);
    assert_eq!(f32::from_le_bytes(values[36..40].try_into().unwrap()).to_string(), sent[5]);
    assert!(f64::from_le_bytes(values[40..48].try_into().unwrap()).is_finite());
    assert_eq!(values[48..], *format!("\x08{}000", sent[6]).as_bytes());
}

#[test]
fn parameters_keep_their_order_where_asked() {
    let order = Order { numbers: true, dates: true };
    let scheme = Scheme { key: [7; 32], order };
    let mut values = b"\x0599999".to_vec();
    values.extend(99_999_i64.to_le_bytes());
    values.extend(99_999_f64.to_le_bytes());
    values.extend(i32::MAX.to_le_bytes());
    values.extend(b"\x07\xe4\x07\x02\x1d\x17\x3b\x01"); // 2020-02-29 23:59:01
    values.extend(b"\x08\x00\x02\x00\x00\x00\x0b\x1e\x00"); // 2 days and 11:30:00
    let kinds = [[0xfd, 0], [8, 0], [5, 0], [3, 0], [12, 0], [11, 0]];
    let (text, values) = hidden(&scheme, b"select 99999, '2020-02-29 23:59:01'", &kinds, &values);
    let (number, date) = text.trim_start_matches("select ").split_once(", ").unwrap();
    let length = number.len();
    assert_eq!((length, usize::from(values[0])), (6, 6), "{text}");
    assert_eq!(values[1..=length], *number.as_bytes());
    let values = &values[length + 1..];
    let number: i64 = number.parse().unwrap();
    assert_eq!(values[..8], number.to_le_bytes());
    assert_eq!(values[8..16], (number as f64).to_le_bytes());
    // What its type has no room for is the largest that it has.
    assert_eq!(values[16..20], i32::MAX.to_le_bytes());
    let year = u16::from_le_bytes([values[21], values[22]]);
    assert_eq!(format!("'{year}-{:02}-{:02} 23:59:01'", values[23], values[24]), date);
    assert_eq!(values[25..28], [23, 59, 1]);
    assert_eq!(values[28..], *b"\x08\x00\x02\x00\x00\x00\x0b\x1e\x00");
}

#[test]
fn numbers_of_connections_stay_with_their_kills_and_not_with_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let [one, hidden, both] = ["one", "hidden", "both"].map(|name| folder.path().join(name));
    let mut writer = Writer::create(&one, &with_literals()).unwrap();
    let of = |start_ns, command| Event { connection: Some(4711), ..Event::new(start_ns, 3, command) };
    writer.event(&of(1, Command::Connect)).unwrap();
    writer.event(&Event { text: b"KILL QUERY 4711", ..of(2, Command::Query) }).unwrap();
    writer.event(&Event { statement: Some(4711), ..of(3, Command::Other(0x0C)) }).unwrap();
    writer.finish(&Coverage::default()).unwrap();
    anonymise::run(&one, &Destination::new(&hidden, false), &Scheme { key: [7; 32], ..Scheme::default() })
        .unwrap();
    let mut reader = Reader::open(&hidden).unwrap();
    let number = reader.next().unwrap().unwrap().connection.unwrap();
    assert_ne!(number, 4711);
    assert_eq!(reader.next().unwrap().unwrap().text, format!("KILL QUERY {number}").as_bytes());
    assert_eq!(reader.next().unwrap().unwrap().statement.map(u64::from), Some(number));
    merge(&[one.clone(), hidden], &Destination::new(&both, false)).unwrap();
    let mut reader = Reader::open(&both).unwrap();
    while let Some(event) = reader.next().unwrap() {
        assert_eq!(event.connection, None);
    }
    merge(std::slice::from_ref(&one), &Destination::new(&both, true)).unwrap();
    assert_eq!(Reader::open(&both).unwrap().next().unwrap().unwrap().connection, Some(4711));
}
