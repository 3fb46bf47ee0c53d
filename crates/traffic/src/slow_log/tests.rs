use super::super::event::{Command, Event, Outcome};
use super::parser::Parser;
use super::reader::BUFFER_BYTES;
use super::*;
use crate::coverage::Coverage;
use crate::pieces::{Buffer, drive};
use crate::rewritten::InPieces;

/// What a test looks at of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) start_ns: u64,
    pub(super) response_ns: Option<u64>,
    pub(super) session: u64,
    pub(super) connection: Option<u64>,
    pub(super) user: String,
    pub(super) host: String,
    pub(super) database: String,
    pub(super) command: Command,
    pub(super) text: String,
    pub(super) outcome: Outcome,
}

impl Seen {
    pub(super) fn of(event: &Event<'_>) -> Self {
        let string = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self {
            start_ns: event.start_ns,
            response_ns: event.response_ns,
            session: event.session,
            connection: event.connection,
            user: string(event.user),
            host: string(event.host),
            database: string(event.database),
            command: event.command,
            text: string(event.text),
            outcome: event.outcome,
        }
    }
}

pub(super) fn parsed(log: &[u8]) -> (Vec<Seen>, Coverage) {
    let mut events = Vec::new();
    let mut parser = Parser::new("log");
    drive(log, &mut Buffer::new(BUFFER_BYTES), &mut parser, &mut |event: &Event<'_>| {
        events.push(Seen::of(event));
        Ok(())
    })
    .unwrap();
    let coverage = parser.coverage;
    assert_eq!(coverage.bytes, log.len() as u64);
    assert_eq!(parser.understood_bytes + coverage.skipped_bytes, coverage.bytes);
    assert_eq!(coverage.events, events.len() as u64);
    (events, coverage)
}

fn texts(log: &str) -> Vec<String> {
    parsed(log.as_bytes()).0.into_iter().map(|event| event.text).collect()
}

const BANNER: &str = "/usr/sbin/mysqld, Version: 8.0.31 (Source distribution). started with:\n\
    Tcp port: 3306  Unix socket: /run/mysqld.sock\nTime                 Id Command    Argument\n";

/// One event of MySQL 8.0.
pub(super) fn event(second: u32, id: u32, statement: &str) -> String {
    format!(
        "# Time: 2024-01-31T12:00:{second:02}.500000Z\n\
        # User@Host: app[app] @ web1 [10.0.0.1]  Id: {id:5}\n\
        # Query_time: 0.250000  Lock_time: 0.000002 Rows_sent: 1  Rows_examined: 2\n\
        SET timestamp={};\n{statement};\n",
        1_706_702_400 + second
    )
}

/// One event of MariaDB, and what it sent.
pub(super) fn of_mariadb(thread: u64, sent_bytes: u64, statement: &str) -> String {
    format!(
        "# User@Host: app[app] @ web1 [10.0.0.1]\n# Thread_id: {thread}  Schema: d  QC_hit: No\n\
        # Query_time: 0.00004{}  Lock_time: 0.000002  Rows_sent: 1  Rows_examined: 2\n\
        # Rows_affected: 0  Bytes_sent: {sent_bytes}\nSET timestamp=1706702401;\n{statement};\n",
        u8::from(sent_bytes > 0)
    )
}

#[test]
fn events_of_mysql_8() {
    let log = format!(
        "{BANNER}{}{}{}",
        event(1, 8, "select 1"),
        event(2, 9, "use `other`\n;\n# a comment\nselect 2").replace("SET t", "use shop;\nSET t"),
        event(3, 8, "# administrator command: Quit")
    );
    let (events, coverage) = parsed(log.as_bytes());
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    let first = Seen {
        start_ns: 1_706_702_401_250_000_000,
        response_ns: Some(250_000_000),
        session: 8,
        connection: Some(8),
        user: "app".to_owned(),
        host: "web1".to_owned(),
        database: String::new(),
        command: Command::Query,
        text: "select 1".to_owned(),
        outcome: Outcome::Unknown,
    };
    assert_eq!(events[0], first);
    assert_eq!(
        (events[1].text.as_str(), events[1].database.as_str()),
        ("use `other`\n;\n# a comment\nselect 2", "shop")
    );
    assert_eq!(
        (events[2].command, events[2].text.as_str(), events[2].database.as_str()),
        (Command::Quit, "", "shop")
    );
}

#[test]
fn statements_that_look_like_headers() {
    for statement in [
        "use db",
        "SET timestamp=5",
        "",
        "# only a comment",
        "select ';\n# Time: flies'",
        "select 1;\n# User@Host: nobody",
        "insert into t values ('it''s\n# Time: 2024-01-31T12:00:02Z\n')",
        "select /* \n# User@Host: a[a] @ b []\n*/ 1",
        "select \"\\\"\n# User@Host: a[a] @ b []\n\"",
    ] {
        let log = format!("{}{}", event(1, 8, statement), event(2, 8, "select 2"));
        assert_eq!(texts(&log), [statement, "select 2"]);
        let log = log.replace('\n', "\r\n");
        assert_eq!(texts(&log), [statement.replace('\n', "\r\n"), "select 2".to_owned()]);
    }
}

#[test]
fn empty_lines_at_the_end_cut_nothing_off() {
    for end in ["", "\n", "\n\n", "\r\n", " \n\t\n"] {
        let log = event(1, 1, "select 1") + &event(2, 1, "select 2") + end;
        let (events, coverage) = parsed(log.as_bytes());
        assert_eq!((events.len(), coverage.damaged), (2, 0), "{end:?}");
        assert_eq!(events[1].text, "select 2");
    }
}

#[test]
fn before_5_1_no_timestamp_is_set() {
    let log = "# Time: 071015 21:43:52  # User@Host: root[root] @ localhost []\n\
        # Query_time: 2  Lock_time: 0  Rows_sent: 1  Rows_examined: 0\nuse test;\nselect sleep(2) from n;\n\
        # User@Host: root[root] @ localhost []\n# Query_time: 1  Lock_time: 0  Rows_sent: 1  Rows_examined: 0\n\
        SET timestamp=5;\n# User@Host: root[root] @ localhost []\n\
        # Query_time: 1  Lock_time: 0  Rows_sent: 1  Rows_examined: 0\nuse db;\n";
    let (events, coverage) = parsed(log.as_bytes());
    assert_eq!(coverage.damaged, 1);
    let texts: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(texts, ["select sleep(2) from n", "SET timestamp=5"], "the last is an event that is cut off");
}

/// Counts of a sampled log must not be taken for counts of all statements.
#[test]
fn a_sampled_log_says_how_much_it_stands_for() {
    let sampled = |second, limit| {
        let rate = format!("# Log_slow_rate_type: query  Log_slow_rate_limit: {limit}\nSET t");
        event(second, 8, "select 1").replace("SET t", &rate)
    };
    let log = [sampled(1, 10), sampled(2, 100), sampled(3, 1), event(4, 8, "select 1")].concat();
    let (events, coverage) = parsed(log.as_bytes());
    assert_eq!((events.len(), coverage.damaged), (4, 0), "{coverage:?}");
    assert_eq!((coverage.sampled_events, coverage.represented_events), (2, 110));
}

/// A log with something of everything: dialects mixed, banners, databases, damage.
pub(super) fn sample() -> String {
    let older = "# Time: 240131 12:00:05\n# User@Host: a[a] @ localhost []\n# Thread_id: 7  Schema: db  QC_hit: No\n\
        # Query_time: 1.0  Lock_time: 0.5  Rows_sent: 3  Rows_examined: 4\n# Rows_affected: 5  Bytes_sent: 6\n\
        SET timestamp=1706702405;\nselect 'older';\n";
    let ancient = "# User@Host: a[a] @ localhost []\n# Query_time: 1  Lock_time: 0\nselect 'ancient';\n";
    [
        BANNER,
        &event(1, 8, "select 1"),
        &event(2, 9, "select ';\nuse fake;\n# Time: flies'").replace("SET t", "use shop;\nSET t"),
        &event(3, 8, "# administrator command: Init DB"),
        older,
        ancient,
        "left over\n# of something\nuse no;\n",
        &event(4, 8, "select 'open").replace("open;\n", "open\n"),
        &event(5, 8, "select 5").replace("SET t", "use five;\nSET t"),
        ancient,
        &event(6, 8, "select 6"),
        BANNER,
        BANNER,
        &event(7, 8, "select 7"),
        "# Time: 2024-01-31T12:00:08Z\n# User@Host: b[b] @ localhost []\n",
        &event(9, 8, "insert into t values ('\n# Time: 2024-01-31T12:00:02Z\n')")
            .replace("SET t", "use nine;\nSET t"),
        &event(10, 8, "select 10").replace("# Query_time: 0.25", "# Query_time: x"),
        &event(11, 8, "select 11"),
    ]
    .concat()
}

#[test]
fn a_log_in_pieces_of_any_size() {
    let log = sample();
    let (expected, coverage) = parsed(log.as_bytes());
    let texts: Vec<_> = expected.iter().map(|event| event.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "select 1",
            "select ';\nuse fake;\n# Time: flies'",
            "",
            "select 'older'",
            "select 'ancient';\nleft over\n# of something\nuse no",
            "select 5",
            "select 'ancient'",
            "select 6",
            "select 7",
            "insert into t values ('\n# Time: 2024-01-31T12:00:02Z\n')",
            "select 11",
        ]
    );
    let places: Vec<_> = coverage.places.iter().map(|place| (place.item, place.reason.as_str())).collect();
    assert_eq!(
        places,
        [
            (35, "a statement that is cut off"),
            (65, "an event without a statement"),
            (75, "an event without a Query_time that is a number"),
        ]
    );
    let databases: Vec<_> = expected.iter().map(|event| event.database.as_str()).collect();
    assert_eq!(databases, ["", "shop", "shop", "db", "shop", "five", "five", "five", "", "nine", "nine"]);
    for size in 1..300 {
        let mut events = Vec::new();
        let mut sink = |event: &Event<'_>| {
            events.push(Seen::of(event));
            Ok(())
        };
        assert_eq!(read(InPieces(log.as_bytes(), size), "log", &mut sink).unwrap(), coverage);
        assert!(events == expected, "pieces of {size}");
    }
}

#[test]
fn a_log_cut_at_every_byte_gives_its_whole_events() {
    let log = sample();
    let (whole, _) = parsed(log.as_bytes());
    for end in 0..log.len() {
        let (events, _) = parsed(&log.as_bytes()[..end]);
        let count = events.len().saturating_sub(1);
        assert_eq!(events[..count], whole[..count], "cut at {end}");
    }
}

#[test]
fn blocks_of_zeros_cost_no_event() {
    for zeros in [1, 100, 70_000, MAX_EVENT_BYTES + 100_000] {
        let zeros = "\0".repeat(zeros);
        let log = format!(
            "{}{zeros}\n{}{}",
            event(1, 8, "select 1"),
            event(2, 8, "select 2"),
            event(3, 8, "select 3")
        );
        let (events, coverage) = parsed(log.as_bytes());
        let texts: Vec<_> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["select 1", "select 2", "select 3"]);
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (1, zeros.len() as u64 + 1));
    }
}

#[test]
fn a_statement_that_is_too_long_is_cut_and_says_so() {
    let long = format!("select '{}'", "x".repeat(MAX_EVENT_BYTES));
    let log = format!("{}{}{}", event(1, 8, "select 1"), event(2, 8, &long), event(3, 8, "select 3"));
    let mut cut = Vec::new();
    let mut sink = |event: &Event<'_>| {
        cut.push(event.is_cut);
        Ok(())
    };
    let coverage = read(log.as_bytes(), "log", &mut sink).unwrap();
    assert_eq!((cut, coverage.damaged), (vec![false, true, false], 1));
}

/// Its quote and the next statement's would make pairs, and the values of that one would be names.
#[test]
fn a_statement_cut_off_in_a_literal_takes_nothing_of_the_next() {
    let whole = r"select a from t where b = 'it\'s' and c = 'secret'";
    let log = |cut: &str, next: &str| {
        let cut = event(1, 8, cut).replace(";\n# User", "\n# User");
        let cut = cut.strip_suffix(";\n").unwrap_or(&cut);
        format!("{cut}\n{}{}", event(2, 8, next), event(3, 8, "select 3"))
    };
    assert_eq!(texts(&log("select 'abc", whole)), [whole, "select 3"]);
    // A literal that holds such lines is whole.
    let note =
        "insert into notes values ('seen:\n# User@Host: a[a] @ h []  Id: 3\n# Query_time: 1\nselect 5')";
    assert_eq!(texts(&format!("{}{}", event(1, 8, note), event(2, 8, "select 2"))), [note, "select 2"]);
}

mod touched;

mod properties {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_use_that_another_event_cuts_off_takes_no_part_of_it() {
        let account = "# User@Host: a[a] @ localhost []  Id: 3\n";
        let log = format!(
            "{account}# administrator command: Ping;\n{account}use {}# Query_time: 1{};\n",
            event(1, 8, "select 1"),
            event(2, 8, "select 'open\n;").replace("SET t", "use x;\nSET t"),
        );
        for window_bytes in [1, 100, 309, 2000] {
            super::super::parallel::tests::same(log.as_bytes(), window_bytes, 1);
        }
        let (seen, _) = parsed(log.as_bytes());
        assert!(seen.iter().all(|event| !event.database.contains('\n')), "{seen:?}");
    }

    /// Lines as they are in logs, whole and damaged, in any order.
    fn lines() -> impl Strategy<Value = String> {
        let line = prop_oneof![
            Just(event(1, 8, "select 1")),
            Just(event(2, 8, "select 'open\n;").replace("SET t", "use x;\nSET t")),
            Just(BANNER.to_owned()),
            Just("# Time: 2024-01-31T12:00:01.5Z\n".to_owned()),
            Just("# Time: 240131 12:00:05\n".to_owned()),
            Just("# User@Host: a[a] @ localhost []  Id: 3\n".to_owned()),
            Just("# Thread_id: 7  Schema: db  QC_hit: No\n".to_owned()),
            Just("# Query_time: 1.0  Lock_time: 0.5\n".to_owned()),
            Just("use db;\n".to_owned()),
            Just("SET timestamp=5;\n".to_owned()),
            Just("# administrator command: Ping;\n".to_owned()),
            Just("select '\n".to_owned()),
            Just("';\n".to_owned()),
            Just(";\n\0\0\0".to_owned()),
            Just("\r\n".to_owned()),
            Just(format!("{}{}", of_mariadb(7, 0, "set @x=1"), of_mariadb(7, 11, "execute immediate @s"))),
            Just(of_mariadb(7, 0, "set @x=1")),
            Just(of_mariadb(7, 0, "delete from t where a=?").replace("d: 2", "d: 3")),
            Just(of_mariadb(7, 0, "delete from t where a=?")),
            Just("  Tmp_tables: 1  Tmp_disk_tables: 0\n".to_owned()),
            Just("Time: 240131 12:00:05\n".to_owned()),
            Just("# Time: flies\n# User@Host: a[a] @ b1\n[::1]  Id: 3\n".to_owned()),
            Just("#user@host: a[a] @ localhost []\n# Query_time: 1  Lock_time:\n0.5\n".to_owned()),
            Just("select 1\n\n".to_owned()),
            Just(";\n\n\n".to_owned()),
            Just("throttle: 39 'index not used' warning(s) suppressed.;\n".to_owned()),
            Just("2024-01-31 12:00:01 0 [Warning] it's half a quote\n".to_owned()),
            "[ -~\n]{0,30}",
        ];
        let cut = (line, 0..200usize)
            .prop_map(|(line, at)| if at < 20 { line[..at.min(line.len())].to_owned() } else { line });
        proptest::collection::vec(cut, 0..40).prop_map(|lines| lines.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// `parsed` checks that each byte is accounted for.
        #[test]
        fn any_log_is_accounted_for_and_the_same_in_parts(log in lines(), window_bytes in 1u64..2000) {
            parsed(log.as_bytes());
            super::super::parallel::tests::same(log.as_bytes(), window_bytes, 1);
        }

        #[test]
        fn any_bytes_are_accounted_for(log in proptest::collection::vec(any::<u8>(), 0..500)) {
            parsed(&log);
        }
    }
}
