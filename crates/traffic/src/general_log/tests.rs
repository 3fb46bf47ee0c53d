use super::*;
use crate::rewritten::InPieces;

type Seen = (u64, u64, String, String, String, Command, String, Outcome);

fn parsed(log: &[u8]) -> (Vec<Seen>, Coverage) {
    let mut events = Vec::new();
    let mut sink = |event: &Event<'_>| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(event.connection, Some(event.session));
        events.push((
            event.start_ns,
            event.session,
            text(event.user),
            text(event.host),
            text(event.database),
            event.command,
            text(event.text),
            event.outcome,
        ));
        Ok(())
    };
    let coverage = read(log, "log", &mut sink).unwrap();
    assert_eq!(coverage.bytes, log.len() as u64);
    (events, coverage)
}

const MYSQL: &str = "/usr/sbin/mysqld, Version: 8.0.31 (Source distribution). started with:\n\
    Tcp port: 3306  Unix socket: /run/mysqld.sock\nTime                 Id Command    Argument\n\
    2024-01-31T12:00:01.500000Z\t    8 Connect\troot@localhost on shop using Socket\n\
    2024-01-31T12:00:02.000000Z\t    8 Query\tselect 1,\n 2\n\n2024-01-31 is no time\n\t\tnor this\n\
    2024-01-31T12:00:02.000001Z\t    8 Init DB\tother\n\
    2024-01-31T12:00:02.000002Z\t    8 Prepare\tselect ?\n\
    2024-01-31T12:00:02.000003Z\t    8 Execute\tselect 'x'\n\
    2024-01-31T12:00:02.000004Z\t    8 Close stmt\t\n\
    2024-01-31T12:00:02.000005Z\t    9 Connect\tAccess denied for user 'a'b'@'h' (using password: YES)\n\
    2024-01-31T12:00:02.000006Z\t    8 Query\tUSE `third`\n\
    2024-01-31T12:00:02.000007Z\t    8 Quit\t\n";

#[test]
fn mysql_8() {
    let (events, coverage) = parsed(MYSQL.as_bytes());
    assert_eq!((coverage.damaged, coverage.skipped_bytes, coverage.events), (0, 0, 9), "{coverage:?}");
    let short: Vec<_> = events.iter().map(|e| (e.2.as_str(), e.4.as_str(), e.5, e.6.as_str())).collect();
    assert_eq!(
        short,
        [
            ("root", "shop", Command::Connect, ""),
            ("root", "shop", Command::Query, "select 1,\n 2\n\n2024-01-31 is no time\n\t\tnor this"),
            ("root", "other", Command::InitDb, ""),
            ("root", "other", Command::Prepare, "select ?"),
            ("root", "other", Command::Execute, "select 'x'"),
            ("root", "other", Command::Close, ""),
            ("a'b", "", Command::Connect, ""),
            ("root", "other", Command::Query, "USE `third`"),
            ("root", "third", Command::Quit, ""),
        ]
    );
    assert_eq!(events[0].0, 1_706_702_401_500_000_000);
    assert_eq!((events[6].3.as_str(), events[6].7), ("h", Outcome::Error(1045)));
}

#[test]
fn blanks_that_an_editor_took_change_nothing() {
    let (expected, _) = parsed(MYSQL.as_bytes());
    let collapsed = MYSQL.replace("Z\t    ", "Z ").replace('\t', " ").replace("  nor", "\t\tnor");
    assert_eq!(parsed(collapsed.as_bytes()).0, expected, "{collapsed}");
    let log = "240131 12:00:05\t     8 Connect\ta@b on \n\t\t     8 Query\tselect 1\n\t\t    12 Query\tselect 2,\n3 Query\n\
        240131 12:00:06\t     8 Quit\t\n\t\t    12 Quit\t\n";
    let trimmed = log.lines().map(|line| line.trim().to_owned() + "\n").collect::<String>();
    assert_eq!(parsed(trimmed.as_bytes()).0, parsed(log.as_bytes()).0, "{trimmed}");
    assert_eq!(parsed(trimmed.as_bytes()).0.len(), 5);
}

#[test]
fn mariadb_tells_the_second_once() {
    let log = "240131 12:00:05\t     8 Connect\ta@b@10.0.0.1 as anonymous on \n\t\t     8 Query\tselect 1\n\
        \t\t    12 Query\tselect 2\n240131 12:00:06\t     8 Quit\t\n";
    let (events, coverage) = parsed(log.as_bytes());
    assert_eq!((coverage.damaged, coverage.places.len()), (0, 1));
    assert!(coverage.places[0].reason.contains("taken as UTC"), "{coverage:?}");
    let seconds: Vec<_> = events.iter().map(|event| event.0 / 1_000_000_000 - 1_706_702_400).collect();
    assert_eq!(seconds, [5, 5, 5, 6]);
    assert_eq!((events[1].2.as_str(), events[1].3.as_str(), events[2].2.as_str()), ("a@b", "10.0.0.1", ""));
    let mut first = None;
    let mut sink = |event: &Event<'_>| {
        first.get_or_insert(event.start_ns);
        Ok(())
    };
    read_with(log.as_bytes(), "log", &Options { utc_offset_s: 7200 }, &mut sink).unwrap();
    assert_eq!(first, Some((1_706_702_405 - 7200) * 1_000_000_000));
}

#[test]
fn pieces_and_cuts() {
    let log = format!("garbage\n{MYSQL}{MYSQL}");
    let (whole, coverage) = parsed(log.as_bytes());
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (1, 8));
    for size in 1..200 {
        let mut texts = Vec::new();
        let mut sink = |event: &Event<'_>| {
            texts.push(String::from_utf8_lossy(event.text).into_owned());
            Ok(())
        };
        assert_eq!(read(InPieces(log.as_bytes(), size), "log", &mut sink).unwrap(), coverage);
        assert!(texts.iter().eq(whole.iter().map(|event| &event.6)), "pieces of {size}");
    }
    for end in 0..log.len() {
        let (events, _) = parsed(&log.as_bytes()[..end]);
        let count = events.len().saturating_sub(1);
        assert_eq!(events[..count], whole[..count], "cut at {end}");
    }
}

/// What came out, in short: thread, command, text, database.
fn short(log: &str) -> Vec<(u64, Command, String, String)> {
    let (events, coverage) = parsed(log.as_bytes());
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    events.into_iter().map(|event| (event.1, event.5, event.6, event.4)).collect()
}

fn owned(thread: u64, command: Command, text: &str, database: &str) -> (u64, Command, String, String) {
    (thread, command, text.to_owned(), database.to_owned())
}

#[test]
fn mysql_5_0_pads_commands_to_twelve_columns() {
    let log = "070207 21:55:24\t     42 Connect     app@localhost on shop\n\
        \t\t     42 Query       SELECT a \n                 FROM t\n                 WHERE b = 7\n\
        \t\t     42 Change user other@localhost on third\n\
        \t\t     42 Init DB     fourth\n\
        \t\t     42 Prepare     [1] SELECT ?\n\
        \t\t     42 Quit\n070207 21:55:25\t     11 Quit       \n";
    let statement = "SELECT a \n                 FROM t\n                 WHERE b = 7";
    assert_eq!(
        short(log),
        [
            owned(42, Command::Connect, "", "shop"),
            owned(42, Command::Query, statement, "shop"),
            owned(42, Command::ChangeUser, "", "third"),
            owned(42, Command::InitDb, "", "fourth"),
            owned(42, Command::Prepare, "SELECT ?", "fourth"),
            owned(42, Command::Quit, "", "fourth"),
            owned(11, Command::Quit, "", ""),
        ]
    );
}

#[test]
fn tabs_may_have_become_blanks() {
    let log = "070207  0:55:24      51 Query       SELECT a\n            FROM t\n\
        \x20                    51 Query       SELECT 'b',\n   12 Queries are no command\n   7 Query? no\n\
        070207   1:00:00\t     11 Init DB     shop\n               \t     11 Quit       \n";
    assert_eq!(
        short(log),
        [
            owned(51, Command::Query, "SELECT a\n            FROM t", ""),
            owned(51, Command::Query, "SELECT 'b',\n   12 Queries are no command\n   7 Query? no", ""),
            owned(11, Command::InitDb, "", "shop"),
            owned(11, Command::Quit, "", "shop"),
        ]
    );
    let iso = "2016-06-07T19:07:02.558338Z    3 Connect\tapp@localhost on shop using Socket\n\
        2016-06-07T19:07:02.558581Z    3 Query\tSELECT 1\n";
    assert_eq!(
        short(iso),
        [owned(3, Command::Connect, "", "shop"), owned(3, Command::Query, "SELECT 1", "shop")]
    );
}

/// Of any width, where a server wrote them; and empty lines between.
#[test]
fn tabs_of_any_width_are_read() {
    let old = "240131 12:00:05\t     8 Connect\ta@h on d\n\t\t     8 Query\tSELECT 1\n\t\t     8 Init DB\tb\n\
        \t\t     8 Query\tSELECT 2\n  FROM t\n\t\t     8 Quit\t\n";
    let new = old.replace("240131 12:00:05", "\t").replace("\t\t ", "2024-01-31T12:00:05.000001Z\t ");
    for log in [old, &new] {
        let expected = short(log);
        assert_eq!((expected.len(), expected[2].3.as_str()), (5, "b"));
        let widths = [1, 2, 4].map(|width| log.replace('\t', &" ".repeat(width)));
        for changed in widths {
            assert_eq!(short(&changed), expected, "{changed}");
        }
        assert_eq!(short(&log.replace("b\n", "b\n\n"))[2..4], expected[2..4]);
    }
    let statement = "SELECT 1 /*\n          1 Query to read\n */";
    assert_eq!(short(&format!("240131 12:00:05\t     8 Query\t{statement}\n"))[0].2, statement);
}

#[test]
fn what_sql_prepares_and_executes_is_one_event() {
    let log = "240301 12:00:00\t     5 Query\tPREPARE look FROM 'SELECT ?'\n\t\t     5 Prepare\tSELECT ?\n\
        \t\t     6 Prepare\tSELECT a\n\t\t     6 Execute\tSELECT a\n\
        \t\t     5 Query\tEXECUTE look USING 1\n\t\t     5 Execute\tSELECT 1\n\
        \t\t     5 Query\tset @a = 1; execute immediate 'SELECT 2'\n\t\t     5 Prepare\tSELECT 2\n\
        \t\t     5 Execute\tSELECT 2\n\
        \t\t     5 Query\tDEALLOCATE PREPARE look\n\
        \t\t     5 Prepare\tSELECT 3\n\t\t     5 Execute\tSELECT 3\n";
    let (events, coverage) = parsed(log.as_bytes());
    let short: Vec<_> = events.iter().map(|e| (e.1, e.5, e.6.as_str())).collect();
    assert_eq!(
        short,
        [
            (5, Command::Query, "PREPARE look FROM 'SELECT ?'"),
            (6, Command::Prepare, "SELECT a"),
            (6, Command::Execute, "SELECT a"),
            (5, Command::Query, "EXECUTE look USING 1"),
            (5, Command::Query, "set @a = 1; execute immediate 'SELECT 2'"),
            (5, Command::Query, "DEALLOCATE PREPARE look"),
            (5, Command::Prepare, "SELECT 3"),
            (5, Command::Execute, "SELECT 3"),
        ]
    );
    assert_eq!((coverage.damaged, coverage.events), (0, 8), "{coverage:?}");
}

#[test]
fn a_refused_database_is_not_the_sessions() {
    let denied = |name: &str| format!("Init DB\tAccess denied for user 'a'@'%' to database '{name}'\n");
    let log = format!(
        "240301 12:00:00\t     5 Connect\ta@h on d using TCP/IP\n\t\t     5 Query\tuse absent\n\t\t     5 {}\
         \t\t     5 Query\tSELECT 1\n\t\t     5 {}\t\t     5 Query\tSELECT 2\n\
         \t\t     6 Connect\ta@h on absent using TCP/IP\n\t\t     6 {}\t\t     7 {}\t\t     7 Init DB\td\n",
        denied("absent"),
        denied("other"),
        denied("absent"),
        denied("other"),
    );
    let (events, coverage) = parsed(log.as_bytes());
    let short: Vec<_> = events.iter().map(|e| (e.1, e.2.as_str(), e.4.as_str(), e.5, e.7)).collect();
    let refused = Outcome::Error(1044);
    assert_eq!(
        short,
        [
            (5, "a", "d", Command::Connect, Outcome::Unknown),
            (5, "a", "d", Command::Query, Outcome::Unknown),
            (5, "a", "d", Command::Query, Outcome::Unknown),
            (5, "a", "other", Command::InitDb, refused),
            (5, "a", "d", Command::Query, Outcome::Unknown),
            (6, "a", "absent", Command::Connect, Outcome::Unknown),
            (6, "a", "absent", Command::Connect, refused),
            (7, "", "other", Command::InitDb, refused),
            (7, "", "d", Command::InitDb, Outcome::Unknown),
        ]
    );
    assert_eq!(coverage.damaged, 0, "{coverage:?}");
}

#[test]
fn a_database_is_a_name_and_not_the_rest_of_a_request() {
    let log = "240301 12:00:00\t     5 Connect\ta@h on d using TCP/IP\n\
        \t\t     5 Query\tUSE b; INSERT INTO t VALUES ('secret')\n\t\t     5 Query\tSELECT 1\n";
    assert_eq!(short(log)[2], owned(5, Command::Query, "SELECT 1", "b"));
}

#[test]
fn lines_of_a_statement_that_begin_like_an_event() {
    let statement = "SELECT\n\t\t1 AS one,\n\t\t22 AS\ttwo,\n\t\t333 three\n\t\tFROM t";
    let log =
        format!("240131 12:00:05\t     8 Query\t{statement}\n\t\t     8 Whatever\tx\n\t\t     8 Quit\n");
    assert_eq!(
        short(&log),
        [
            owned(8, Command::Query, statement, ""),
            owned(8, Command::Other(0xff), "", ""),
            owned(8, Command::Quit, "", ""),
        ]
    );
}

#[test]
fn lines_that_end_with_a_return_alone_are_read_wherever_they_begin() {
    let (expected, _) = parsed(MYSQL.as_bytes());
    let begin = MYSQL.find("2024-01-31T12:00:01").unwrap();
    let middle = MYSQL.find("2024-01-31T12:00:02.000001Z").unwrap();
    for (from, to) in [(middle, MYSQL.len() - 1), (begin, middle - 1), (begin, MYSQL.len() - 1)] {
        let log = [&MYSQL[..from], &MYSQL[from..to].replace('\n', "\r"), &MYSQL[to..]].concat();
        let (events, coverage) = parsed(log.as_bytes());
        let mut usual = events;
        usual.iter_mut().for_each(|event| event.6 = event.6.replace('\r', "\n"));
        assert_eq!(usual, expected, "{log:?}");
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    }
}

#[test]
fn the_letter_at_the_end_of_a_text_of_dos_is_none_of_the_log() {
    let (events, coverage) = parsed(format!("{MYSQL}\x1a").as_bytes());
    assert_eq!((events.len(), coverage.damaged, coverage.skipped_bytes), (9, 0, 0), "{coverage:?}");
}

#[test]
fn lines_of_the_error_log_behind_a_statement_are_none_of_it() {
    let error =
        "2026-11-30T00:05:41.278641Z 0 [System] [MY-013602] [Server] Channel mysql_main configured.\n";
    let query = "2026-11-30T00:05:40.000001Z\t    8 Query\tupdate t\n set a = 1 -- done\n";
    let log =
        format!("{query}{error}{query}2026-11-30T00:05:42.000001Z\t    8 Query\tselect 1\n{error}{error}");
    let mut texts = Vec::new();
    let mut keep = |event: &crate::event::Event<'_>| {
        texts.push(String::from_utf8_lossy(event.text).into_owned());
        Ok(())
    };
    let coverage = super::read(log.as_bytes(), "log", &mut keep).unwrap();
    assert_eq!(texts, ["update t\n set a = 1 -- done", "update t\n set a = 1 -- done", "select 1"]);
    assert_eq!((coverage.other_lines, coverage.damaged), (3, 0));
}

#[test]
fn lines_behind_a_command_that_has_no_statement_are_named() {
    let quit = "2026-03-01T10:00:00.1Z\t    5 Quit\t\n";
    let (events, coverage) = parsed(format!("{quit}  where a = 1\n{quit}\n\n").as_bytes());
    assert_eq!((events.len(), coverage.damaged), (2, 1));
    assert!(coverage.places[0].reason.contains("mixed"), "{coverage:?}");
}
