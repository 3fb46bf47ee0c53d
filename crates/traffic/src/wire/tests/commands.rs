//! Every command of the protocol and its answer.

use mysql_common::constants::CapabilityFlags as Flags;

use super::{COLUMN, END, EOF, Kept, NEW, OK, OLD, Talk, decode, greeting, hello, keep, opened};
use crate::event::{Command, Event, Outcome};
use crate::stream::{Opened, Side, Streams};
use crate::wire::{Decoder, Known, Standing, WireOptions};
use mysql::frames::encode;

const LONG_DATA: Command = Command::Other(0x18);

fn prepared(parameters: u8, columns: u8) -> Vec<u8> {
    vec![0, 7, 0, 0, 0, columns, 0, parameters, 0, 0, 0, 0]
}

fn execute(statement: u32, rest: &[u8]) -> Vec<u8> {
    [&[0x17][..], &statement.to_le_bytes(), &[0, 1, 0, 0, 0], rest].concat()
}

fn find(events: &[Kept], command: Command) -> Vec<&Kept> {
    events.iter().filter(|event| event.command == command).collect()
}

/// A session with something of everything that plain commands can do.
pub fn everything(flags: Flags) -> Talk {
    let deprecates = flags.contains(Flags::CLIENT_DEPRECATE_EOF);
    let (eof, end): (&[&[u8]], &[u8]) = if deprecates { (&[], END) } else { (&[EOF], EOF) };
    let result = |rows: &[&[u8]], end: &[u8]| -> Vec<Vec<u8>> {
        let parts = [&[&[1][..], COLUMN][..], eof, rows, &[end]].concat();
        parts.into_iter().map(<[u8]>::to_vec).collect()
    };
    let mut talk = Talk::new(flags);
    fn say(talk: &mut Talk, said: &[u8], answer: &[Vec<u8>]) {
        let answer: Vec<&[u8]> = answer.iter().map(Vec::as_slice).collect();
        talk.client(0, said).server(1, &answer);
    }
    say(&mut talk, b"\x03select a", &result(&[b"\x01a", b"\xfb"], end));
    talk.query("use `other`", &[OK]).query("oops", &[b"\xff\x28\x04#42000no"]);
    let head = prepared(2, 1);
    let definitions = [&[&head[..], COLUMN, COLUMN][..], eof, &[COLUMN], eof].concat();
    talk.client(0, b"\x16select ?, ?").server(1, &definitions);
    say(
        &mut talk,
        &execute(7, &[0, 1, 3, 0, 0xFD, 0, 5, 0, 0, 0, 2, b'h', b'i']),
        &result(&[b"\0\0\x01x"], end),
    );
    say(&mut talk, &execute(7, &[1, 0, 2, b'y', b'o']), &result(&[], end));
    talk.client(0, b"\x18\x07\0\0\0\x01\0lo").client(0, b"\x18\x07\0\0\0\x01\0ng");
    say(&mut talk, &execute(7, &[0, 0, 9, 0, 0, 0]), &result(&[b"\0\0\x01x"], end));
    talk.client(0, b"\x1a\x07\0\0\0").server(1, &[OK]);
    talk.client(0, b"\x19\x07\0\0\0").client(0, b"\x0e").server(1, &[OK]);
    let more = if deprecates { &[0xFE, 0, 0, 10, 0, 1, 0][..] } else { &[0xFE, 1, 0, 10, 0] };
    let mut call = result(&[b"\x01a"], more);
    call.extend(result(&[b"\x01b"], more));
    call.push(vec![0, 2, 0, 2, 0, 0, 0]);
    say(&mut talk, b"\x03call p()", &call);
    talk.query("load data local infile 'f'", &[b"\xfbf"]);
    talk.client(2, b"1,2\n").client(3, b"").server(4, &[&[0, 5, 0, 2, 0, 0, 0]]);
    talk.client(0, b"\x02third").server(1, &[OK]);
    talk.client(0, b"\x09").server(1, &[b"Uptime: 5"]);
    talk.client(0, b"\x1f").server(1, &[OK]);
    talk.client(0, b"\x11eve\0\x03abclast\0\x2d\0mysql_native_password\0");
    talk.server(1, &[b"\xfemysql_native_password\x0012345678901234567890\0"])
        .client(2, b"answer")
        .server(3, &[OK]);
    talk.query("select 1", &[b"\xff\x15\x04#42000no"]);
    talk.client(0, b"\x01");
    talk
}

#[test]
fn a_session_of_everything() {
    for flags in [OLD, NEW] {
        let (events, coverage) = everything(flags).events();
        assert_eq!(
            (coverage.damaged, coverage.unanswered, coverage.skipped_bytes),
            (0, 0, 0),
            "{coverage:?}"
        );
        let executions = find(&events, Command::Execute);
        let parameters: Vec<_> = executions.iter().map(|event| event.parameters.clone()).collect();
        assert_eq!(
            parameters,
            [
                vec![0, 1, 3, 0, 0xFD, 0, 5, 0, 0, 0, 2, b'h', b'i'],
                vec![1, 1, 3, 0, 0xFD, 0, 2, b'y', b'o'],
                vec![0, 1, 3, 0, 0xFD, 0, 9, 0, 0, 0, 4, b'l', b'o', b'n', b'g'],
            ]
        );
        assert!(executions.iter().all(|event| event.text == "select ?, ?" && event.statement == Some(7)));
        assert_eq!(
            executions.iter().map(|event| event.rows).collect::<Vec<_>>(),
            [Some(1), Some(0), Some(1)]
        );
        assert_eq!(executions[2].bytes.0, Some(20 + 2 * 13), "with the data sent ahead");
        assert!(find(&events, LONG_DATA).is_empty());
        let queries: Vec<_> = find(&events, Command::Query);
        let databases: Vec<_> = queries.iter().map(|event| event.database.as_str()).collect();
        let used = if flags == OLD { "other" } else { "shop" };
        assert_eq!(databases, ["shop", "shop", used, used, used, "last"]);
        assert_eq!((queries[3].rows, queries[3].affected, queries[3].warnings), (Some(2), Some(2), Some(2)));
        assert_eq!((queries[4].affected, queries[4].bytes.0), (Some(5), Some(31 + 8 + 4)));
        let [change] = find(&events, Command::ChangeUser)[..] else { panic!("{events:?}") };
        assert_eq!(
            (change.user.as_str(), change.database.as_str(), change.outcome),
            ("eve", "last", Outcome::Ok)
        );
        let all: u64 = events.iter().filter_map(|event| event.bytes.0).sum();
        let said = everything(flags).said;
        let client: usize = said.iter().filter(|(side, _)| *side == Side::Client).map(|(_, b)| b.len()).sum();
        assert_eq!(all, client as u64, "every byte of the client belongs to an event");
    }
}

#[test]
fn a_cursor_is_fetched() {
    let mut talk = Talk::new(OLD);
    talk.client(0, b"\x16select 1").server(1, &[&prepared(0, 1), COLUMN, EOF]);
    let cursor = [0xFE, 0, 0, 0x42, 0];
    talk.client(0, &[&[0x17, 7, 0, 0, 0, 1][..], &[1, 0, 0, 0]].concat()).server(1, &[&[1], COLUMN, &cursor]);
    talk.client(0, &[0x1C, 7, 0, 0, 0, 2, 0, 0, 0])
        .server(1, &[b"\0\0\x01", b"\0\0\x02", &[0xFE, 0, 0, 0xC2, 0]]);
    let (events, coverage) = talk.events();
    assert_eq!(coverage.damaged, 0);
    // None, and not zero: they come with the fetch.
    assert_eq!((events[2].rows, events[2].checksum), (None, None));
    assert_eq!((events[3].command, events[3].rows), (Command::Fetch, Some(2)));
}

#[test]
fn requests_may_come_before_answers() {
    // MariaDB's clients prepare and execute in one go: the number -1 is the statement prepared last.
    let mut talk = Talk::new(NEW);
    talk.client(0, b"\x16select ?")
        .client(0, &execute(u32::MAX, &[0, 1, 1, 0, 5]))
        .client(0, b"\x03select 2");
    talk.server(1, &[&prepared(1, 1), COLUMN, COLUMN]).server(1, &[&[1], COLUMN, b"\0\0\x05", END]);
    talk.server(1, &[&[1], COLUMN, b"\x012", END]);
    let (events, coverage) = talk.events();
    assert_eq!((coverage.damaged, coverage.unknown_statements), (0, 0));
    let execution = &find(&events, Command::Execute)[0];
    assert_eq!((execution.text.as_str(), execution.statement), ("select ?", Some(7)));
    assert_eq!(execution.parameters, [0, 1, 1, 0, 5]);
    assert_eq!(events.iter().map(|event| event.start_ns).collect::<Vec<_>>(), [1, 3, 4, 5, 8]);
}

#[test]
fn parameters_are_read_as_servers_read_them() {
    let null = [1, 1, 6, 0, 0xFD, 0, 2, b'h', b'i'];
    // The upper half of the length is not looked at.
    let long = [0, 1, 3, 0, 0xFD, 0, 5, 0, 0, 0, 0xFE, 2, 0, 0, 0, 2, 0, 0, 0, b'h', b'i'];
    let mut talk = Talk::new(NEW);
    talk.client(0, b"\x16select ?, ?").server(1, &[&prepared(2, 1), COLUMN, COLUMN, COLUMN]);
    for rest in [[&null[..], &[0x55, 0x55]].concat(), long.to_vec()] {
        talk.client(0, &execute(7, &rest)).server(1, &[&[1], COLUMN, b"\0\0\x05", END]);
    }
    let (events, coverage) = talk.events();
    assert_eq!(coverage.damaged, 0, "{coverage:?}");
    let bound: Vec<_> =
        find(&events, Command::Execute).iter().map(|event| event.parameters.clone()).collect();
    assert_eq!(bound, [null.to_vec(), long.to_vec()]);
}

#[test]
fn a_session_ends_once() {
    let mut talk = Talk::new(NEW);
    talk.query("select 1", &[&[1], COLUMN, b"\x011", END]);
    talk.client(0, b"\x03select sleep(9)").client(0, b"\x01");
    let (events, coverage) = talk.events();
    let ended: Vec<_> = events.iter().map(|event| (event.command, event.outcome)).collect();
    let sleep = (Command::Query, Outcome::Unanswered);
    assert_eq!(ended[2..], [sleep, (Command::Quit, Outcome::Unknown)]);
    assert_eq!((coverage.unanswered, coverage.events), (1, 4));
}

#[test]
fn a_connection_that_is_closed_without_a_word_ends_and_asks_for_nothing() {
    let mut talk = Talk::new(NEW);
    talk.query("select 1", &[&[1], COLUMN, b"\x011", END]);
    let (events, coverage) = talk.events();
    assert_eq!(
        (events[2].command, events[2].outcome),
        (Command::Quit, Outcome::Unanswered),
        "a replay closes it then"
    );
    assert_eq!((coverage.events, coverage.unanswered), (2, 0));
}

#[test]
fn attributes_stand_before_the_text() {
    let mut talk = Talk::new(NEW | Flags::CLIENT_QUERY_ATTRIBUTES);
    let attributes = b"\x01\x01\x00\x01\xfd\x00\x04name\x05value";
    talk.client(0, &[b"\x03", &attributes[..], b"select 1"].concat()).server(1, &[OK]);
    talk.client(0, b"\x03\0\x01select 2").server(1, &[OK]);
    talk.client(0, b"\x16select ?").server(1, &[&prepared(1, 0), COLUMN]);
    let bound = b"\x02\x00\x01\x03\x00\x00\xfd\x00\x04name\x05\0\0\0\x05value";
    let execution = [&[0x17, 7, 0, 0, 0, 8, 1, 0, 0, 0][..], bound].concat();
    talk.client(0, &execution).server(1, &[OK]);
    let (events, coverage) = talk.events();
    assert_eq!(coverage.damaged, 0, "{coverage:?}");
    assert_eq!((events[1].text.as_str(), events[2].text.as_str()), ("select 1", "select 2"));
    assert_eq!(events[4].parameters, [0, 1, 3, 0, 5, 0, 0, 0]);
}

/// As Connector/Python sends them: servers read the number all the same.
#[test]
fn parameters_are_counted_without_the_flag_for_it() {
    let mut talk = Talk::new(NEW | Flags::CLIENT_QUERY_ATTRIBUTES);
    talk.client(0, b"\x16select ?").server(1, &[&prepared(1, 0), COLUMN]);
    talk.client(0, &execute(7, b"\x01\0\x01\x01\x80\0\x05")).server(1, &[OK]);
    let (events, coverage) = talk.events();
    assert_eq!(coverage.damaged, 0, "{coverage:?}");
    assert_eq!(events[2].parameters, [0, 1, 1, 0x80, 5]);
}

#[test]
fn attributes_are_known_by_one_request_where_the_login_was_missed() {
    for first in [&b"\x03\0\x01select 1"[..], b"\x0E"] {
        let mut talk = Talk::default();
        talk.client(0, first).server(1, &[OK]);
        talk.client(0, b"\x16select ?").server(1, &[&prepared(1, 0), COLUMN]);
        let mut execution = execute(7, b"\x01\0\x01\x03\0\0\x05\0\0\0");
        execution[5] = 8 * u8::from(first == b"\x0E");
        talk.client(0, &execution).server(1, &[OK]);
        let (events, coverage) = talk.events();
        assert_eq!(coverage.damaged, 0, "{coverage:?}");
        assert_eq!(find(&events, Command::Execute)[0].parameters, [0, 1, 3, 0, 5, 0, 0, 0]);
    }
}

#[test]
fn rows_in_bulk() {
    let mut talk = Talk::new(OLD);
    talk.client(0, b"\x16insert into t values (?)").server(1, &[&prepared(1, 0), COLUMN, EOF]);
    talk.client(0, b"\xfa\x07\0\0\0\x80\0\x03\0\0\x05\0\0\0\0\x06\0\0\0")
        .server(1, &[&[0, 2, 0, 2, 0, 0, 0]]);
    talk.client(0, b"\xfa\x07\0\0\0\0\0\0\x07\0\0\0").server(1, &[&[0, 1, 0, 2, 0, 0, 0]]);
    let (events, _) = talk.events();
    let bulk = find(&events, Command::BulkExecute);
    assert_eq!(bulk[0].parameters, b"\x80\0\x03\0\0\x05\0\0\0\0\x06\0\0\0");
    assert_eq!(bulk[1].parameters, b"\x80\0\x03\0\0\x07\0\0\0");
    assert_eq!((bulk[0].text.as_str(), bulk[0].affected), ("insert into t values (?)", Some(2)));
}

#[test]
fn the_server_tells_a_new_database() {
    let mut talk = Talk::new(NEW);
    talk.query("use b", &[b"\0\0\0\x02\x40\0\0\0\x04\x01\x02\x01b"]).query("select 1", &[OK]);
    assert_eq!(talk.events().0[2].database, "b");
}

#[test]
fn the_database_of_a_request_with_several_statements() {
    let mut talk = Talk::new(OLD);
    let more = [0, 0, 0, 10, 0, 0, 0];
    talk.query("/* app */ use b; insert into t values ('secret')", &[&more, OK]).query("select 1", &[OK]);
    assert_eq!(talk.events().0[2].database, "b");
}

#[test]
fn logins_of_every_kind() {
    let login = |turns: &[(Side, u8, &[u8])]| {
        let mut talk = Talk::default();
        talk.server(0, &[&greeting(OLD)]).client(1, &hello(OLD));
        for (side, sequence, payload) in turns {
            match side {
                Side::Client => talk.client(*sequence, payload),
                Side::Server => talk.server(*sequence, &[payload]),
            };
        }
        talk
    };
    // caching_sha2_password, all the way to the public key.
    let key = [&[1][..], b"-----BEGIN PUBLIC KEY-----"].concat();
    let talk = login(&[
        (Side::Server, 2, b"\x01\x04"),
        (Side::Client, 3, b"\x02"),
        (Side::Server, 4, &key),
        (Side::Client, 5, &[9; 256]),
        (Side::Server, 6, OK),
    ]);
    let (events, _) = talk.events();
    assert_eq!(
        (events[0].command, events[0].outcome, events[0].user.as_str()),
        (Command::Connect, Outcome::Ok, "app")
    );
    assert_eq!((events[0].start_ns, events[0].response_ns), (1, Some(5)));
    assert_eq!(events[1].command, Command::Quit);
    let (events, coverage) = login(&[
        (Side::Server, 2, b"\x02authentication_ldap_simple\0challenge\0"),
        (Side::Client, 3, b"the second factor"),
        (Side::Server, 4, OK),
    ])
    .events();
    assert_eq!((events[0].outcome, events.len(), coverage.damaged), (Outcome::Ok, 2, 0), "{coverage:?}");
    // PAM asks in bytes of its own.
    let (events, coverage) = login(&[
        (Side::Server, 2, b"\xfedialog\0\x04Password: "),
        (Side::Client, 3, b"secret\0"),
        (Side::Server, 4, b"\x05Code: "),
        (Side::Client, 5, b"123456\0"),
        (Side::Server, 6, OK),
    ])
    .events();
    assert_eq!((events[0].outcome, events.len(), coverage.damaged), (Outcome::Ok, 2, 0), "{coverage:?}");
    let (events, _) = login(&[(Side::Server, 2, b"\xff\x15\x04#28000no")]).events();
    assert_eq!((events.len(), events[0].outcome), (1, Outcome::Error(1045)));
    let (events, coverage) = login(&[]).events();
    assert_eq!((events.len(), events[0].outcome, coverage.unanswered), (1, Outcome::Unanswered, 1));
    let mut refused = Talk::default();
    refused.server(0, &[b"\xff\x10\x04Too many connections"]);
    let (events, _) = refused.events();
    assert_eq!(
        (events.len(), events[0].command, events[0].outcome),
        (1, Command::Connect, Outcome::Error(1040))
    );
    let mut scanned = Talk::default();
    scanned.server(0, &[&greeting(OLD)]);
    assert!(scanned.events().0.is_empty());
}

#[test]
fn encrypted_sessions_and_replicas_are_counted() {
    let mut talk = Talk::default();
    talk.server(0, &[&greeting(OLD | Flags::CLIENT_SSL)]);
    talk.client(1, &hello(OLD | Flags::CLIENT_SSL)[..32]);
    talk.said.push((Side::Client, b"\x16\x03\x01\0\x05hello".to_vec()));
    let (events, coverage) = talk.events();
    assert_eq!((events.len(), coverage.tls_sessions, coverage.skipped_bytes), (0, 1, 10));
    // One that had begun before.
    let mut talk = Talk::default();
    talk.said.push((Side::Client, b"\x17\x03\x03\0\x05hello".to_vec()));
    let (events, coverage) = talk.events();
    assert_eq!((events.len(), coverage.tls_sessions, coverage.midstream_sessions), (0, 1, 1));
    let mut talk = Talk::new(OLD);
    talk.client(0, b"\x15\x01\0\0\0").server(1, &[OK]);
    talk.client(0, b"\x12\x04\0\0\0\0\0\x01\0\0\0f").server(1, &[b"\0binlog", b"\0binlog"]);
    let (events, coverage) = talk.events();
    assert_eq!((events.len(), coverage.replication_sessions, coverage.damaged), (2, 1, 0));
    // A member of a group: from here on both sides speak another protocol.
    let mut talk = Talk::new(OLD);
    talk.client(0, b"\x21").server(1, &[OK]);
    talk.said.push((Side::Client, b"\0\x01\0\x07another protocol".to_vec()));
    let (events, coverage) = talk.events();
    assert_eq!((events.len(), coverage.replication_sessions, coverage.damaged), (1, 1, 0));
    assert_eq!(coverage.lost_events, 0);
}

#[test]
fn progress_is_no_error() {
    let mut talk = Talk::new(OLD);
    talk.query("alter table t", &[b"\xff\xff\xff\x01\x01\x02\0\0\0\x04copy", OK]);
    assert_eq!(talk.events().0[1].outcome, Outcome::Ok);
}

#[test]
fn metadata_may_be_left_out() {
    let flags = NEW | Flags::CLIENT_OPTIONAL_RESULTSET_METADATA;
    let mut talk = Talk::new(flags);
    talk.query("a", &[&[2, 0], b"\x01x\x01y", END]).query("b", &[&[0, 2], b"\x01x\x01y", END]);
    talk.query("c", &[&[1, 1], COLUMN, b"\x01x", END]);
    let (events, coverage) = talk.events();
    assert_eq!(
        (coverage.damaged, events[1].rows, events[2].rows, events[3].rows),
        (0, Some(1), Some(1), Some(1))
    );
}

#[test]
fn large_packets_are_not_held() {
    let mut row = vec![0xFE];
    row.extend_from_slice(&(20_u64 << 20).to_le_bytes());
    row.resize(9 + (20 << 20), b'x');
    let text = format!("select '{}'", "y".repeat(17 << 20));
    let mut talk = Talk::new(OLD);
    let (mut bytes, mut sequence) = (Vec::new(), 0);
    encode(&[b"\x03", text.as_bytes()].concat(), &mut sequence, &mut bytes);
    talk.said.push((Side::Client, bytes));
    talk.server(sequence, &[&[1], COLUMN, EOF, &row, b"\x01y", EOF]);
    let whole = talk.events().0;
    assert_eq!((whole[1].rows, whole[1].text.len()), (Some(2), text.len()));
    let pieces =
        talk.said.iter().flat_map(|(side, bytes)| bytes.chunks(60_000).map(|piece| (0, *side, piece)));
    let pieces = decode(pieces).0;
    assert_eq!((pieces[1].checksum, pieces[1].rows), (whole[1].checksum, Some(2)));
    assert_ne!(whole[1].checksum, Some(0));
}

#[test]
fn the_number_of_a_connection_is_that_of_its_greeting() {
    let mut talk = Talk::new(OLD);
    talk.query("select 1", &[OK]).client(0, &[0x0C, 0x2A, 1, 0, 0]).server(1, &[OK]).client(0, b"\x01");
    let (events, _) = talk.events();
    assert!(events.iter().all(|event| event.connection == Some(7)));
    // COM_PROCESS_KILL says whom it ends.
    assert_eq!((events[2].command, events[2].statement), (Command::Other(0x0C), Some(298)));
}

/// What a server said before the capture names a session that is joined, once, and its statements; the types of values
/// come with their first execution or not at all.
#[test]
fn a_session_that_is_joined_is_who_the_server_says() {
    let standing = Standing {
        connection: 9,
        user: b"app".to_vec(),
        database: b"shop".to_vec(),
        statements: vec![(7, b"update t set a = ? where b = ?".to_vec()), (8, b"select 'open ?".to_vec())],
    };
    let known = Known::new([(opened(true).client, standing)].into(), Vec::new());
    let mut talk = Talk::default();
    talk.client(0, b"\x0e").server(1, &[OK]);
    talk.client(0, &execute(7, &[0, 0, 9, 0, 0, 0, 2, b'y', b'o'])).server(1, &[OK]);
    talk.client(0, &execute(7, &[0, 1, 3, 0, 0xFD, 0, 5, 0, 0, 0, 2, b'h', b'i'])).server(1, &[OK]);
    talk.client(0, &execute(8, &[0, 1])).server(1, &[OK]);
    let mut events = Vec::new();
    let sink = |event: &Event<'_>| {
        events.push((keep(event), event.is_cut));
        Ok(())
    };
    let mut decoder = Decoder::with_options(sink, WireOptions { known, ..WireOptions::default() });
    for session in [1, 2] {
        decoder.opened(0, &Opened { session, ..opened(true) }).unwrap();
        for (side, bytes) in &talk.said {
            decoder.bytes(5, session, *side, bytes).unwrap();
        }
    }
    let coverage = decoder.finish().unwrap();
    assert_eq!((coverage.joined_sessions, coverage.midstream_sessions), (1, 1));
    assert_eq!((coverage.unbound_executions, coverage.unknown_statements, coverage.damaged), (1, 4, 0));
    let executions: Vec<_> =
        events.iter().filter(|(event, _)| event.command == Command::Execute).take(3).collect();
    let texts: Vec<_> = executions.iter().map(|(event, is_cut)| (event.text.as_str(), *is_cut)).collect();
    let text = "update t set a = ? where b = ?";
    assert_eq!(texts[..2], [(text, true), (text, false)]);
    assert!(executions[..2].iter().all(|(event, _)| {
        (event.user.as_str(), event.database.as_str(), event.connection) == ("app", "shop", Some(9))
    }));
    assert!(events.iter().skip(4).all(|(event, _)| event.user.is_empty() && event.connection.is_none()));
}
