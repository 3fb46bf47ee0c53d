use super::*;
use crate::event::Event;
use crate::rewritten::InPieces;
use crate::sources::{self, Kind, SourceOptions};

const LOG: &str = "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n\
    Tcp port: 3306  Unix socket: /tmp/mysql.sock\nTime                 Id Command    Argument\n\
    # Time: 2026-03-01T10:32:03.000100Z\n# User@Host: app[app] @  [10.0.0.9]  Id:   3\n\
    # Query_time: 2.500000  Lock_time: 0.000010 Rows_sent: 1  Rows_examined: 5\nuse shop;\n\
    SET timestamp=1772361123;\nSELECT a\n  FROM t\n\n WHERE b = 'x > y | # z';\n\
    # Time: 2026-03-01T10:32:04.000100Z\n# User@Host: app[app] @  [10.0.0.9]  Id:   4\n\
    # Query_time: 0.500000  Lock_time: 0.000010 Rows_sent: 1  Rows_examined: 5\n\
    SET timestamp=1772361124;\n# administrator command: Ping;\n\
    # Time: 2026-03-01T10:32:05.000100Z\n# User@Host: app[app] @  [10.0.0.9]  Id:   4\n\
    # Query_time: 1.500000  Lock_time: 0.000010 Rows_sent: 1  Rows_examined: 5\n\
    SET timestamp=1772361125;\nSELECT 2;\n";

/// What is the same of an event however its log came.
type Seen = (u64, Option<u64>, u64, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);

fn seen(event: &Event<'_>) -> Seen {
    let of = |bytes: &[u8]| bytes.to_vec();
    (
        event.start_ns,
        event.response_ns,
        event.session,
        of(event.user),
        of(event.host),
        of(event.database),
        of(event.text),
    )
}

/// Reads a file of this content as every command does.
fn events(content: &[u8]) -> (Vec<Seen>, Coverage, Kind) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, content).unwrap();
    let mut all = Vec::new();
    let coverage = sources::read(&path, &SourceOptions::default(), &mut |event: &Event<'_>| {
        all.push(seen(event));
        Ok(())
    })
    .unwrap();
    (all, coverage, sources::kind(&path).unwrap())
}

fn each(line: impl Fn(usize, &str) -> String) -> String {
    LOG.lines().enumerate().map(|(number, text)| line(number, text) + "\n").collect()
}

#[track_caller]
fn is_like_the_original(name: &str, content: &str) -> Coverage {
    let (expected, ..) = events(LOG.as_bytes());
    let (found, coverage, kind) = events(content.as_bytes());
    assert_eq!(kind, Kind::Prefixed, "{name}");
    assert_eq!(found, expected, "{name}: {content}");
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{name}: {coverage:?}");
    assert_eq!(coverage.bytes, content.len() as u64, "{name}");
    let note = &coverage.places[0];
    assert_eq!((note.item, note.offset), (0, 0), "{note:?}");
    coverage
}

/// What a program makes of a line, by its number; and what a person makes of a log.
type Numbered = fn(usize, &str) -> String;
type Change = fn(&str) -> String;

#[test]
fn prefixes_of_programs_are_taken_off_and_named() {
    let of: [(&str, &str, Numbered); 33] = [
        ("no known program", "s6-log", |n, text| format!("@4000000065e1a4c3{:08x} {text}", n * 7919)),
        ("no known program", "two blanks behind it", |n, text| format!("[10:32:0{}]  {text}", n % 10)),
        ("line numbers", "an editor's numbers", |n, text| format!("{:4} {text}", n + 1)),
        ("no known program", "an id in hex", |n, text| format!("{:012x} {text}", (n + 3) * 2_654_435_761)),
        ("another supervisor", "supervisor-stdout", |_, text| format!("mysqld stdout | {text}")),
        ("another supervisor", "foreman", |_, text| format!("10:32:03 db.1    | {text}")),
        ("another supervisor", "pm2", |_, text| format!("0|mysqld  | {text}")),
        ("syslog", "syslog", |_, text| format!("Mar  1 10:32:03 db1 mysqld[812]: {text}")),
        ("syslog", "syslog of day 10, without a number", |_, text| {
            format!("Mar 10 10:32:03 db1 mysqld: {text}")
        }),
        ("syslog", "rsyslog", |_, text| {
            format!("2026-03-01T10:32:03.000100+01:00 db1.example mysqld[8]: {text}")
        }),
        ("journald", "journalctl -o short-iso", |_, text| {
            format!("2026-03-01T10:32:03+0000 db1 mysqld[812]: {text}")
        }),
        ("journald", "journalctl -o short-precise", |n, text| {
            format!("Mar 01 10:32:03.0001{n:02} db1 mariadbd[812]: {text}")
        }),
        ("journald", "journalctl -o short-full", |_, text| {
            format!("Sun 2026-03-01 10:32:03 UTC db1 mysqld[812]: {text}")
        }),
        ("RFC 5424", "RFC 5424", |_, text| {
            format!("<14>1 2026-03-01T10:32:03.000100Z db1 mysqld 812 - - {text}")
        }),
        ("--timestamps", "docker --timestamps", |n, text| {
            format!("2026-03-01T10:32:03.0000000{n:02}Z {text}")
        }),
        ("docker compose", "docker compose", |_, text| format!("db-1  | {text}")),
        ("syslog", "no host", |_, text| format!("Mar  1 10:32:03 mysqld[812]: {text}")),
        ("blanks", "filebeat's multiline", |_, text| match text.starts_with("# Time") {
            true => text.to_owned(),
            false => format!("    {text}").trim_end().to_owned(),
        }),
        ("docker compose", "docker compose, colours", |_, text| format!("\u{1b}[36mdb-1  | \u{1b}[0m{text}")),
        ("docker compose", "docker compose --timestamps", |_, text| {
            format!("db-1  | 2026-03-01T10:32:03.123456789Z {text}")
        }),
        ("kubectl --prefix", "kubectl --prefix", |_, text| format!("[pod/mysql-0/mysql] {text}")),
        ("kubectl --prefix", "kubectl --prefix --timestamps", |_, text| {
            format!("[pod/mysql-0/mysql] 2026-03-01T10:32:03Z {text}")
        }),
        ("containerd", "CRI", |_, text| format!("2026-03-01T10:32:03.000000000Z stdout F {text}")),
        ("containerd", "CRI with tags", |_, text| format!("2026-03-01T10:32:03Z stdout F:x {text}")),
        ("stern", "stern", |_, text| format!("mysql-0 mysql {text}")),
        ("host's name", "pdsh", |_, text| format!("db1.example.com: {text}")),
        ("quoted mail", "a mail", |_, text| format!("> {text}")),
        ("quoted mail", "a mail's answer", |_, text| format!("> > {text}").trim_end().to_owned()),
        ("blanks", "a pasted block", |_, text| format!("    {text}").trim_end().to_owned()),
        ("line numbers", "cat -n", |n, text| format!("{:6}\t{text}", n + 1)),
        ("grep", "grep -n", |n, text| format!("{}{}{text}", n + 1, if n % 3 == 0 { ':' } else { '-' })),
        ("grep", "grep in several files", |_, text| format!("/var/log/mysql/db1-slow.log:{text}")),
        ("no known program", "any other", |n, text| format!("{{db1}} INFO [{n}]: {text}")),
    ];
    for (said, name, line) in of {
        let coverage = is_like_the_original(name, &each(line));
        assert!(coverage.places[0].reason.contains(said), "{name}: {:?}", coverage.places);
        assert_eq!((coverage.other_lines, coverage.places.len()), (0, 1), "{name}: {coverage:?}");
    }
}

/// A statement may be longer than what is looked at to tell what a file is.
#[test]
fn a_first_statement_of_any_length_is_read() {
    let (before, event) = LOG.split_at(LOG.find("# Time").unwrap());
    let statement = format!("SELECT a /* {} */", "x".repeat(200_000));
    // Servers before 5.1, and scripts that write mysql.slow_log as text, set no timestamp.
    let plain = event.replacen("SELECT a", &statement, 1).replace("SET timestamp=1772361123;\n", "");
    for log in [event.replacen("SELECT a", &statement, 1), event.replacen("SELECT a", "SELECT a\n", 1), plain]
    {
        let (found, coverage, kind) = events(format!("{before}{log}").as_bytes());
        assert_eq!((found.len(), coverage.damaged, kind), (3, 0, Kind::SlowLog), "{coverage:?}");
    }
}

/// As a terminal of 60 columns shows it.
fn broken(log: &str) -> String {
    let pieces = |line: &str| {
        let parts: Vec<_> = line.as_bytes().chunks(60).map(String::from_utf8_lossy).collect();
        parts.join("\n") + "\n"
    };
    log.lines().map(pieces).collect()
}

#[test]
fn characters_are_put_back() {
    let changes: [(&str, Change); 28] = [
        ("Markdown", |log| {
            log.replace('_', "\\_").replace("# ", "\\# ").replace('[', "\\[").replace('>', "\\>")
        }),
        ("do not break", |log| {
            log.replace("  ", " \u{a0}").replace("\n \u{a0}", "\n  ").replace("Id: \u{a0}", "Id:  ")
        }),
        ("the width of a terminal", broken),
        ("\\r for ends", |log| log.replace('\n', "\r")),
        ("\\r\\r\\n", |log| log.replace('\n', "\r\r\n")),
        ("quoted-printable", |log| {
            let line = |line: &str| match line.len() {
                60.. => format!("{}=\n{}\n", &line[..57], &line[57..]),
                _ => format!("{line}\n"),
            };
            log.replace('=', "=3D").replace('\'', "=27").lines().map(line).collect()
        }),
        ("colours", |log| log.replace("Query_time", "\u{1b}[01;31m\u{1b}[KQuery_time\u{1b}[m\u{1b}[K")),
        ("a page", |log| {
            log.replace('\n', "<br>\n").replace('\'', "&#39;").replace('>', "&gt;").replace("<br&gt;", "<br>")
        }),
        ("a page", |log| log.replace("\n", "<br />\n").replace("'", "&#x27;")),
        ("a page", |log| log.lines().map(|line| format!("<p>{line}</p>\n")).collect()),
        ("a page", |log| log.lines().map(|line| format!("<div class=x>{line}</div>\n")).collect()),
        ("backslashes", |log| log.replace('[', "\\[").replace(']', "\\]")),
        ("an address of mail", |log| log.replace("User@Host", "[email protected]")),
        ("an address of mail", |log| log.replace("User@Host", "[email\u{a0}protected]")),
        ("an address of mail", |log| log.replace("User@Host", "User@Host<mailto:User@Host>")),
        ("an address of mail", |log| log.replace("User@Host", "User at Host")),
        ("TABs", |log| {
            let start = log.find("# Time").unwrap();
            log[..start].to_owned() + &log[start..].replace(";\n# T", ";\t# T")
        }),
        ("blanks for the ends", |log| {
            log.replace('\n', " ").replace("   FROM t   WHERE", "\n  FROM t\n\n WHERE") + "\n"
        }),
        ("a page", |log| {
            format!("<html><body><pre class=\"x\">\n{}", log.replace('\'', "&#39;").replace('>', "&gt;"))
        }),
        ("ends of lines", |log| log.replace('\n', "$\n")),
        ("ends of lines", |log| log.replace('\n', "^M\n")),
        // Only statements show it, as in the export of a console.
        ("a page", |log| log.replace('\'', "&#x27;")),
        ("a page", |log| log.replace('\'', "&apos;").replace('<', "&lt;").replace('>', "&gt;")),
        ("quotes of typography", |log| log.replace('\'', "\u{2019}")),
        ("do not break", |log| log.replace(' ', "\u{a0}")),
        ("do not break", |log| log.replace("# ", "#\u{2003}").replace('\'', "\u{2019}")),
        ("blanks for the ends", |log| {
            let start = log.find("# Time").unwrap();
            let events = log[start..].split("# Time").skip(1);
            let joined = |event: &str| match event.split_once("SELECT") {
                Some((header, statement)) => header.replace('\n', " ") + "SELECT" + statement,
                None => event.replace('\n', " ") + "\n",
            };
            log[..start].to_owned()
                + &events.map(|event| format!("# Time{}", joined(event))).collect::<String>()
        }),
        ("\\n for", |log| {
            let start = log.find("# Time").unwrap();
            let events = log[start..].split("# Time").skip(1);
            let lines = events.map(|event| format!("# Time{}\n", event.trim_end().replace('\n', "\\n")));
            log[..start].to_owned() + &lines.collect::<String>()
        }),
    ];
    for (said, change) in changes {
        let coverage = is_like_the_original(said, &change(LOG));
        assert_eq!(coverage.places[0].reason.matches(said).count(), 1, "{coverage:?}");
    }
}

#[test]
fn general_logs_are_put_back_as_well() {
    let log = "2026-03-01T10:32:03.000100Z\t    8 Connect\tapp@web on shop using TCP/IP\n\
        2026-03-01T10:32:03.000200Z\t    8 Query\tselect a\n  from t where b = 'x'\n\
        2026-03-01T10:32:03.000300Z\t    8 Quit\t\n";
    let (expected, ..) = events(log.as_bytes());
    assert_eq!(expected.len(), 3);
    let each = |line: &dyn Fn(&str) -> String| log.lines().map(|text| line(text) + "\n").collect::<String>();
    for changed in [
        each(&|text| format!("Mar  1 10:32:03 db1 mysqld: {}", text.replace('\t', "#011"))),
        each(&|text| format!("{}<br>", text.replace('\'', "&#39;"))),
        each(&|text| text.replace('\t', "\\t")),
        each(&|text| format!("mysql.log:{text}")),
        // Only statements show it.
        each(&|text| text.replace('\'', "&#39;")),
        log.replace('=', "=3D").replace("  from", "  fr=\nom"),
    ] {
        let (found, coverage, kind) = events(changed.as_bytes());
        assert_eq!((found, kind), (expected.clone(), Kind::Prefixed), "{changed}");
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    }
}

#[test]
fn what_statements_of_a_general_log_have_in_literals_is_theirs() {
    let line = |sql: &str| format!("2026-03-01T10:32:03.000200Z\t    8 Query\t{sql}\n");
    for sql in ["select '&gt; &#39;'", "select a=10 or b = '=3D'", "select a\n  from t where b=\n3"] {
        let (found, _, kind) = events(line(sql).as_bytes());
        assert_eq!((found.len(), kind), (1, Kind::GeneralLog), "{sql}");
        assert_eq!(found[0].6, sql.as_bytes());
    }
}

#[test]
fn a_whole_event_in_one_message_of_syslog() {
    let message = |event: &str| {
        format!("Mar  1 10:32:03 db1 mysqld[812]: {}\n", event.trim_end().replace('\n', "#012"))
    };
    let start = LOG.find("# Time").unwrap();
    let log = &LOG[start..];
    let content: String =
        log.split("# Time").skip(1).map(|event| message(&format!("# Time{event}"))).collect();
    let (expected, ..) = events(log.as_bytes());
    let (found, coverage, _) = events(content.as_bytes());
    assert_eq!(found, expected, "{content}");
    assert_eq!(coverage.damaged, 0, "{coverage:?}");
}

#[test]
fn lines_that_come_with_the_newest_first_are_turned_round() {
    let events = &LOG[LOG.find("# Time").unwrap()..];
    let (expected, ..) = events_of(events);
    for prefix in [
        "",
        "2026-03-01T10:32:03Z ",
        "2026-03-01T10:32:03Z {app=\"db\"} ",
        "2026-03-01T10:32:03Z {app=\"db\", job=\"a\"} ",
        "db-1  | ",
    ] {
        let lines: Vec<_> = events.lines().rev().map(|line| format!("{prefix}{line}\n")).collect();
        let content = lines.concat();
        let (found, coverage) = events_of(&content);
        assert_eq!(found, expected, "{content}");
        assert_eq!((coverage.damaged, coverage.bytes), (0, content.len() as u64), "{coverage:?}");
        assert!(coverage.places[0].reason.contains("newest came first"), "{coverage:?}");
    }
}

fn events_of(content: &str) -> (Vec<Seen>, Coverage) {
    let (found, coverage, _) = events(content.as_bytes());
    (found, coverage)
}

#[test]
fn output_under_supervisord_is_that_of_its_programs() {
    let (expected, _) = events_of(LOG);
    let line = |program: &str| format!("2026-03-01 10:32:03,123 DEBG '{program}' stdout output:\n");
    let own = "2026-03-01 10:32:01,001 INFO spawned: 'mysqld' with pid 9\n";
    // Pieces of any length, each with an end of line behind it, and another program's between them.
    for size in [40, 97, 1000] {
        let mut content = own.to_owned();
        for (at, piece) in LOG.as_bytes().chunks(size).enumerate() {
            content += &format!("{}{}\n", line("mysqld"), String::from_utf8_lossy(piece));
            if at % 2 == 0 {
                content += &format!("{}GET / # Time: now 'it\n\n{own}", line("web"));
            }
        }
        let (found, coverage) = events_of(&content);
        assert_eq!(found, expected, "{size}: {content}");
        assert_eq!((coverage.damaged, coverage.bytes), (0, content.len() as u64), "{coverage:?}");
        assert!(coverage.places[0].reason.contains("supervisord"), "{coverage:?}");
    }
}

#[test]
fn containers_are_read_apart_and_other_programs_left_out() {
    let other = LOG.replace("shop", "zoo").replace("SELECT 2", "SELECT 3");
    let mut content = "Attaching to app-1, db-1, db-2\n".to_owned();
    for (one, two) in LOG.lines().zip(other.lines()) {
        content += &format!("db-1   | {one}\ndb-2   | {two}\napp-1  | GET / # Time: now 'it\n");
    }
    let (found, coverage, _) = events(content.as_bytes());
    let databases: Vec<_> =
        found.iter().map(|event| String::from_utf8_lossy(&event.5).into_owned()).collect();
    assert_eq!(databases, ["shop", "shop", "shop", "zoo", "zoo", "zoo"]);
    assert_eq!(found[0].2, 3, "threads of the first server keep their numbers");
    assert_ne!(found[3].2, 3);
    assert_eq!((coverage.damaged, coverage.events), (0, 6), "{coverage:?}");
    assert_eq!(coverage.other_lines, LOG.lines().count() as u64 + 1);
    assert!(coverage.places[0].reason.contains("2 wrote them"), "{coverage:?}");
}

#[test]
fn lines_that_a_runtime_cut_are_joined() {
    let content: String = LOG
        .lines()
        .flat_map(|line| {
            let (one, two) = line.split_at(line.len() / 2);
            let time = "2026-03-01T10:32:03.000000000Z stdout";
            if line.len() > 20 && !line.contains("# ") {
                vec![format!("{time} P {one}\n"), format!("{time} F {two}\n")]
            } else {
                vec![format!("{time} F {line}\n")]
            }
        })
        .collect();
    is_like_the_original("CRI", &content);
}

#[test]
fn it_does_not_matter_how_it_comes() {
    let content = each(|n, text| format!("{{db1}} [{n}] {text}"));
    let (expected, coverage, _) = events(content.as_bytes());
    let head = content.find("# Query").unwrap();
    for size in [1, 7, 100] {
        for head in [head, content.find("SELECT").unwrap()] {
            let head = content[head..].find('\n').unwrap() + head + 1;
            let mut found = Vec::new();
            let mut sink = |event: &Event<'_>| {
                found.push(seen(event));
                Ok(())
            };
            let (begin, rest) = content.as_bytes().split_at(head);
            let mut read = read(begin.to_vec(), InPieces(rest, size), "log", size == 7, &mut sink).unwrap();
            for (place, other) in read.places.iter_mut().zip(&coverage.places) {
                place.input.clone_from(&other.input);
            }
            assert_eq!((found, read), (expected.clone(), coverage.clone()));
        }
    }
}

#[test]
fn what_has_no_prefix_is_no_such_log() {
    for (head, expected) in [
        (LOG, Some(First::SlowLog)),
        ("#Time: 260301 10:32:03\n", Some(First::SlowLog)),
        (
            "2026-11-21T10:00:00.123456Z\t    8 Query\tselect '# Time: 260301 10:32:03'\n",
            Some(First::GeneralLog),
        ),
        ("2026-03-01T10:32:03Z db1: started\n", None),
        ("insert into t values ('# Time: 260301 10:32:03')\n", None),
        ("a # Time: 260301 10:32:03\nb c # Time: 260301 10:32:03\n", None),
        ("x # Time: 260301 10:32:03", None),
        ("\"# Query_time: 1  Lock_time: 0\"\n\"# Query_time: 1  Lock_time: 0\"\n", None),
        ("# Time: 260301 10:32:03\n", Some(First::SlowLog)),
    ] {
        assert_eq!(first(head.as_bytes(), true), expected, "{head}");
    }
    let general = "2026-11-21T10:00:00.123456Z\t    8 Query\tselect 1\n";
    let content = format!("db-1  | {general}db-1  | {general}");
    assert_eq!(first(content.as_bytes(), false), Some(First::Prefixed));
    assert_eq!(events(content.as_bytes()).0.len(), 2);
    assert_eq!(events(format!("\u{feff}{general}").as_bytes()).0.len(), 1);
}

#[test]
fn text_of_utf_16_and_with_a_mark_is_read() {
    let (expected, ..) = events(LOG.as_bytes());
    let wide: Vec<u8> = format!("\u{feff}{LOG}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let start = LOG.find("# Time").unwrap();
    for content in
        [wide, format!("\u{feff}{LOG}").into_bytes(), format!("\u{feff}{}", &LOG[start..]).into_bytes()]
    {
        let (found, coverage, kind) = events(&content);
        assert_eq!((found, kind), (expected.clone(), Kind::SlowLog));
        assert_eq!(coverage.damaged, 0, "{coverage:?}");
    }
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn any_lines_are_read_without_a_panic(
            lines in proptest::collection::vec("[ -~\u{a0}\u{1b}]{0,40}", 0..20),
            layer in 0usize..4,
        ) {
            let before = ["db-1  | ", "> ", "[pod/a/b] ", "2026-03-01T10:32:03Z stdout P "][layer];
            let mut content = each(|_, text| format!("{before}{text}"));
            for (at, line) in lines.iter().enumerate() {
                content += &format!("{}{line}\n", if at % 2 == 0 { before } else { "" });
            }
            let _ = first(content.as_bytes(), false);
            let mut sink = |_: &Event<'_>| Ok(());
            let coverage = read(content.clone().into_bytes(), std::io::empty(), "log", false, &mut sink).unwrap();
            prop_assert_eq!(coverage.bytes, content.len() as u64);
        }
    }
}

/// Turned line by line, sorted by a program, and written in two encodings.
#[test]
fn general_logs_in_another_order_are_read_or_named() {
    let log: String = (0..9)
        .map(|second| {
            format!(
                "2026-03-01T10:00:0{second}Z\t    5 Query\tselect a\n\t, b\nfrom t{second}\n\
                 2026-03-01T10:00:0{second}Z\t    5 Query\tcommit\n"
            )
        })
        .collect();
    let texts = |content: &str| {
        let (all, coverage, _) = events(content.as_bytes());
        (all.into_iter().map(|event| event.6).collect::<Vec<_>>(), coverage)
    };
    let (expected, _) = texts(&log);
    let turned: String = log.lines().rev().map(|line| format!("{line}\n")).collect();
    let (found, coverage) = texts(&turned);
    assert_eq!(found, expected);
    assert!(coverage.places[0].reason.contains("order of the lines"), "{coverage:?}");
    let lines: Vec<&str> = log.lines().collect();
    let mixed: String = (0..lines.len()).map(|n| format!("{}\n", lines[n * 7 % lines.len()])).collect();
    let (_, coverage) = texts(&mixed);
    assert!(coverage.places[0].reason.contains("in no order"), "{coverage:?}");
}

const GENERAL: &str = "2026-03-01T10:32:03.000200Z\t    8 Connect\tapp@web on shop using TCP/IP\n\
    2026-03-01T10:32:03.000300Z\t    8 Query\tSELECT a\n  FROM t\n WHERE b = 'x\n```\n#012'\n\
    2026-03-01T10:32:03.000400Z\t    8 Query\tSELECT 2\n";

#[test]
fn general_logs_behind_prefixes_of_no_known_program() {
    let (expected, ..) = events(GENERAL.as_bytes());
    let of: [(&str, Numbered); 8] = [
        ("a diff", |_, text| format!("+{text}")),
        ("journalctl -o short-monotonic", |n, text| format!("[{n:5}.000123] db1 mysqld[812]: {text}")),
        ("ts", |n, text| format!("Mar 01 10:32:{n:02} {text}")),
        ("git blame", |n, text| format!("a1b2c3d4 (Ann 2026-03-01 10:00:00 +0000 {n:4}) {text}")),
        ("logcli", |_, text| format!("2026-03-01T10:32:03Z {{app=\"db\"}} {text}")),
        ("a name", |_, text| format!("db1 mysql slow: {text}")),
        ("bat", |n, text| format!("{:4} \u{2502} {text}", n + 1)),
        ("fluentd", |_, text| format!("<2026-03-01 10:32:03 +0000> [mysql] {text}")),
    ];
    for (name, line) in of {
        let content: String =
            GENERAL.lines().enumerate().map(|(number, text)| line(number, text) + "\n").collect();
        let (found, coverage, kind) = events(content.as_bytes());
        assert_eq!((kind, found), (Kind::Prefixed, expected.clone()), "{name}: {content}");
        assert_eq!((coverage.damaged, coverage.other_lines), (0, 0), "{name}");
    }
    // In quotes, or in a cell, the line has an end of its own.
    for line in ["{\"log\"=>\"TEXT\"}", "host=db1 message=\"TEXT\" x=1", "| TEXT |", "'TEXT',"] {
        let content: String = GENERAL.lines().map(|text| line.replace("TEXT", text) + "\n").collect();
        assert_eq!(first(content.as_bytes(), true), None, "{line}");
    }
}

#[test]
fn statements_of_general_logs_are_put_back_behind_prefixes() {
    let (expected, ..) = events(GENERAL.as_bytes());
    let events_of_one_line = GENERAL.replace("\n  FROM", "#012  FROM").replace("\n WHERE", "#012 WHERE");
    let joined = events_of_one_line.replace("'x\n```\n", "'x#012```#012");
    // A value that looks like an end of a line cannot be told from one.
    let joined = joined.replace("#012'", "y'");
    let plain = GENERAL.replace("#012'", "y'");
    let syslog: String =
        joined.lines().map(|line| format!("Mar  1 10:32:03 db1 mysqld[812]: {line}\n")).collect();
    assert_eq!(events(syslog.as_bytes()).0, events(plain.as_bytes()).0);
    // Colours of grep in statements alone.
    let coloured = GENERAL.replace("SELECT", "\x1b[01;31m\x1b[KSELECT\x1b[m\x1b[K");
    assert_eq!(events(coloured.as_bytes()).0, expected);
    // What is behind the end of a block or of a mail is none of a statement.
    for content in [
        format!("{{noformat}}\n{GENERAL}{{noformat}}\nAnd now?"),
        format!("Look:\n\n```\n{GENERAL}```\n\nThanks"),
        format!(
            "Look:\n\n{}\nBest\nAnn\n",
            GENERAL.lines().map(|line| format!("> {line}\n")).collect::<String>()
        ),
    ] {
        assert_eq!(events(content.as_bytes()).0, expected, "{content}");
    }
}

#[test]
fn lines_that_were_filled_with_blanks_do_not_go_on() {
    let old = "Time                 Id Command    Argument\n\
        260301 10:32:03\t    8 Connect\tapp@web on shop using TCP/IP\n\t\t    8 Query\tSELECT a\nFROM t\nWHERE b = 1\n\
        260301  9:32:04\t    8 Query\tSELECT 2\n\t\t    9 Query\tSELECT c\nFROM t\nWHERE d = 2\n";
    let padded: String = old.lines().map(|line| format!("{line:200}\n")).collect();
    let trimmed = |content: &str| -> Vec<(u64, String)> {
        let words =
            |text: &[u8]| String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ");
        events(content.as_bytes()).0.iter().map(|seen| (seen.0, words(&seen.6))).collect()
    };
    assert_eq!(trimmed(&padded), trimmed(old));
}
