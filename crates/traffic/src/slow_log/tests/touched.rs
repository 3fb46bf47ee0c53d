//! Logs that people and programs changed after the server: the values are those of the original.

use super::super::parallel::tests::same;
use super::*;
use crate::event::Sink;
use crate::measures::Measure;

/// What a log gives, read in windows of many sizes as well.
#[track_caller]
fn read_everywhere(log: &str) -> (Vec<Seen>, Coverage) {
    for window_bytes in [7, 150, 1000] {
        same(log.as_bytes(), window_bytes, 1);
    }
    same(log.as_bytes(), 200, 3);
    parsed(log.as_bytes())
}

/// (text, database, response in ms, start in ms since the first, user, thread) of each event, and what was counted.
#[track_caller]
fn seen(log: &str) -> (Vec<(String, String, u64)>, Coverage) {
    let (events, coverage) = read_everywhere(log);
    let of = |event: Seen| (event.text, event.database, event.response_ns.unwrap_or(0) / 1_000_000);
    (events.into_iter().map(of).collect(), coverage)
}

fn measure(log: &str, measure: Measure) -> Vec<Option<u64>> {
    struct Keep(Measure, Vec<Option<u64>>);
    impl Sink for Keep {
        fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
            self.1.push(event.measures.get(self.0));
            Ok(())
        }
    }
    let mut keep = Keep(measure, Vec::new());
    read(log.as_bytes(), "log", &mut keep).unwrap();
    keep.1
}

const SUMMARY: &str = "throttle:         39 'index not used' warning(s) suppressed.";

/// What a person or a program makes of a log.
type Change = fn(&str) -> String;

#[test]
fn what_a_server_left_out_is_counted_and_no_event() {
    for account in ["[] @  []  Id:     4", "[] @  []", "root[root] @ localhost []"] {
        let throttled = event(2, 4, SUMMARY)
            .replace("app[app] @ web1 [10.0.0.1]  Id:     4", account)
            .replace("0.250000", "913.010000");
        for end in ["", "\n"] {
            let log = [event(1, 8, "select 1"), throttled.clone() + end, event(3, 8, "select 3")].concat();
            let (events, coverage) = seen(&log);
            assert_eq!(events.len(), 2, "{events:?}");
            assert_eq!((coverage.throttled_events, coverage.throttled_ns), (39, 913_010_000_000));
            assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
        }
        // At the end of the log, whole or not.
        let (events, coverage) = parsed(throttled.trim_end_matches(";\n").as_bytes());
        assert_eq!((events.len(), coverage.throttled_events), (0, 39));
        let (events, coverage) = parsed(throttled.replace('\n', "\r\n\r\n").as_bytes());
        assert_eq!((events.len(), coverage.throttled_events), (0, 39));
    }
    for summary in [
        "throttle: 39 \u{2018}index not used\u{2019} warning(s) suppressed.",
        "THROTTLE:\t39 &#39;index not used&#39; warning(s) suppressed.",
        "throttle: 39 \\'index not used\\' warning(s) suppressed.",
        "throttle: 39 \"index not used\" warning(s) supp...",
        "throttle: 39 'index not\nused' warning(s) suppressed.",
        "throttle: 39 'index not used'",
    ] {
        let (events, coverage) = parsed(event(1, 8, summary).as_bytes());
        assert_eq!((events.len(), coverage.throttled_events), (0, 39), "{summary}");
    }
    assert_eq!(parsed(event(1, 8, &SUMMARY.replace("39", "1,039")).as_bytes()).1.throttled_events, 1_039);
    for statement in
        ["throttle: x 'index not used' warning(s) suppressed.", "throttle: 39", "select 'throttle: 3'"]
    {
        let (events, coverage) = seen(&event(1, 8, statement));
        assert_eq!((events.len(), coverage.throttled_events), (1, 0), "{statement}");
    }
}

#[test]
fn a_header_line_without_its_mark_is_read_as_one() {
    let percona = |second: u32, lines: &str| {
        event(second, 8, "select a from t").replace("SET t", &format!("{lines}SET t"))
    };
    for line in [
        "  Tmp_tables: 1  Tmp_disk_tables: 2  Tmp_table_sizes: 0\n",
        "Tmp_tables: 1 Tmp_disk_tables: 2\n",
        "#Tmp_tables: 1  Tmp_disk_tables: 2\n",
        "\tTmp_tables:\t1\tTmp_disk_tables:\t2\r\n",
        "# tmp_tables: 1  TMP_DISK_TABLES: 2\n",
        "##  Tmp_tables:  1  Tmp_disk_tables:  2 \n",
        "# Tmp_tables: 1  Tmp_disk_tables:\n2\n",
    ] {
        let log = percona(1, line) + &percona(2, &format!("{line}# Full_scan: Yes  Full_join: No\n"));
        let (events, coverage) = seen(&log);
        assert_eq!(events, vec![("select a from t".to_owned(), String::new(), 250); 2], "{line}");
        assert_eq!(coverage.damaged, 0, "{line}");
        assert_eq!(measure(&log, Measure::TmpTables), [Some(1); 2], "{line}");
        assert_eq!(measure(&log, Measure::TmpDiskTables), [Some(2); 2], "{line}");
        assert_eq!(measure(&log, Measure::IsFullScan), [None, Some(1)], "{line}");
    }
    let (_, coverage) = seen(&percona(1, "  Tmp_tables: 1\n"));
    assert_eq!(coverage.touched_lines, 1);
}

/// Every line of a header, changed in one way: the same events as before.
#[test]
fn headers_that_somebody_changed_say_the_same() {
    let original = [
        event(1, 8, "select 1").replace("SET t", "use shop;\nSET t"),
        event(2, 9, "select 2\n  from t")
            .replace("SET t", "# Thread_id: 9  Schema: a b  Last_errno: 0  Killed: 0\nSET t"),
        of_mariadb(7, 11, "select 3").replace("# User", "# Time: 240131 12:00:01\n# User"),
        of_mariadb(8, 11, "select 4").replace("Schema: d", "Schema: "),
    ]
    .concat();
    let (expected, _) = parsed(original.as_bytes());
    assert_eq!(
        expected.iter().map(|event| event.database.as_str()).collect::<Vec<_>>(),
        ["shop", "a b", "d", ""]
    );
    let changes: [(&str, Change); 11] = [
        ("one blank", |line| line.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")),
        ("tabs", |line| line.replace("  ", "\t")),
        ("more blanks", |line| line.replace(": ", ":  ")),
        ("no blank behind the mark", |line| line.replacen("# ", "#", 1)),
        ("more blanks behind the mark", |line| line.replacen("# ", "#   ", 1)),
        ("no mark", |line| line.replacen("# ", "", 1)),
        ("lower case", |line| match line.split_once(':') {
            Some((key, value)) if key != "# User@Host" => format!("{}:{value}", key.to_lowercase()),
            _ => line.to_owned(),
        }),
        ("indented", |line| format!("    {line}")),
        ("blanks at the end", |line| format!("{line}  ")),
        ("a return at the end", |line| format!("{line}\r")),
        ("two marks", |line| format!("#{line}")),
    ];
    for (name, change) in changes {
        let log: String = original
            .lines()
            .map(|line| if line.starts_with('#') { change(line) } else { line.to_owned() } + "\n")
            .collect();
        let (events, coverage) = read_everywhere(&log);
        assert_eq!(events, expected, "{name}: {log}");
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{name}: {coverage:?}");
    }
}

#[test]
fn wrapped_headers_say_the_same() {
    let original = event(1, 8, "select 1") + &event(2, 9, "select 2");
    let (expected, _) = parsed(original.as_bytes());
    for wrapped in [
        "@ web1\n[10.0.0.1]",
        "@\nweb1 [10.0.0.1]",
        "[10.0.0.1]\nId:",
        "Id:\n",
        "0.250000\nLock_time",
        "Lock_time:\n0",
    ] {
        let joined = wrapped.replace('\n', " ").replace("0.250000 ", "0.250000  ").replace("] Id", "]  Id");
        assert!(original.contains(joined.trim_end()), "{joined}");
        let log = original.replace(joined.trim_end(), wrapped);
        let (events, coverage) = read_everywhere(&log);
        assert_eq!(events, expected, "{log}");
        assert_eq!(coverage.damaged, 0, "{log}");
    }
}

#[test]
fn a_header_ends_the_statement_before_it() {
    let without =
        |second, statement| event(second, 8, statement).replacen(&format!("{statement};"), statement, 1);
    let statements =
        ["select sleep(15)", "select 2\nfrom t", "# administrator command: Ping", "select '; # Time'"];
    let log: String = (1..).zip(statements).map(|(second, statement)| without(second, statement)).collect();
    let (events, coverage) = seen(&log);
    let texts: Vec<_> = events.iter().map(|(text, ..)| text.as_str()).collect();
    assert_eq!(texts, ["select sleep(15)", "select 2\nfrom t", "", "select '; # Time'"]);
    assert_eq!((coverage.damaged, coverage.unterminated_events), (0, 4), "{coverage:?}");
    // A literal that is still open, and what ends where a server began again, is cut off.
    for (statement, end) in [("select 'open", ""), ("select 1", BANNER), ("select a fro", "")] {
        let log = match end {
            "" if statement.ends_with("fro") => event(1, 8, statement).replace("fro;\n", "fro"),
            _ => without(1, statement) + end + &event(2, 8, "select 2"),
        };
        let (events, coverage) = seen(&log);
        assert!(events.iter().all(|(text, ..)| text == "select 2"), "{events:?}");
        assert_eq!((coverage.damaged, coverage.unterminated_events), (1, 0), "{log}");
    }
    // One that is alone needs none, if its last line is whole and nothing is open.
    for (statement, count) in
        [("select 1", 1), ("# administrator command: Quit", 1), ("select 'open", 0), ("select 1 /* open", 0)]
    {
        let (events, coverage) = seen(&without(1, statement));
        assert_eq!((events.len(), coverage.unterminated_events), (count, count as u64), "{statement}");
        assert_eq!(coverage.damaged, 1 - count as u64, "{statement}");
    }
    let (events, coverage) = seen(&(String::from("\n  \r\n") + &event(1, 8, "select 1")));
    assert_eq!((events.len(), coverage.damaged, coverage.skipped_bytes), (1, 0, 0), "blank lines before all");
    // Where others have theirs, the last of the input is cut off without it.
    let (events, coverage) = seen(&(event(1, 8, "select 1") + &without(2, "select 2 from t")));
    assert_eq!((events.len(), coverage.damaged), (1, 1));
}

#[test]
fn blank_lines_and_lines_of_other_logs_are_no_damage() {
    for between in [
        "\n",
        "\n\n  \n\t\r\n",
        "2024-01-31T12:00:01.970826Z 34 [Note] [MY-010914] [Server] Aborted connection 34 to db: 'a'\n",
        "2024-01-31 12:00:01 0 [Warning] it's half a quote\n\n",
        "\n==> /var/log/mysql/error.log <==\n240131 12:00:01 [ERROR] x\n\n==> /var/log/mysql/slow.log <==\n",
    ] {
        let log = [
            event(1, 8, "select 1").replace("SET t", "use shop;\nSET t"),
            event(2, 8, "select 2"),
            event(3, 8, "# administrator command: Quit"),
            event(4, 8, "select 4"),
        ]
        .map(|event| event + between)
        .concat();
        let (events, coverage) = seen(&log);
        assert_eq!(events.len(), 4, "{log}");
        assert!(
            events.iter().all(|(_, database, took)| (database.as_str(), *took) == ("shop", 250)),
            "{events:?}"
        );
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{log}: {coverage:?}");
        assert_eq!(coverage.other_lines > 0, between.contains('['), "{between}");
    }
    // Behind a banner as well.
    let log = BANNER.to_owned()
        + "\n\n"
        + &event(1, 8, "select 1")
        + "\n"
        + BANNER
        + "\n"
        + &event(2, 8, "select 2");
    let (events, coverage) = seen(&log);
    assert_eq!((events.len(), coverage.damaged), (2, 0), "{coverage:?}");
}

#[test]
fn times_of_other_forms_and_times_that_cannot_be_read() {
    let of = |time: &str, rest: &str| {
        let header = "# User@Host: a[a] @ localhost []\n# Query_time: 2  Lock_time: 0  Rows_sent: 1  Rows_examined: 0\n";
        format!("# Time: {time}\n{header}{rest}select 1;\n")
    };
    let start = |log: &str| read_everywhere(log).0.iter().map(|event| event.start_ns).collect::<Vec<_>>();
    let expected = 1_706_702_399_000_000_000;
    for time in ["240131 115959 ", "240131 11:59:59 ", "240131  11:59:59", "2024-01-31T11:59:59Z  "] {
        let log = of(time, "") + &of(time, "");
        assert_eq!(start(&log), [expected - 2_000_000_000; 2], "{time}");
    }
    for time in ["31.01.2024 11:59", "2024-01-31 11:59:59 PM", "yesterday", ""] {
        let set = of(time, "SET timestamp=1706702399;\n");
        let log = of("240131 09:00:00", "") + &set + &of(time, "") + &set;
        let (events, coverage) = read_everywhere(&log);
        let starts: Vec<_> = events.iter().skip(1).map(|event| event.start_ns).collect();
        assert_eq!(starts, [expected - 2_000_000_000, 0, expected - 2_000_000_000], "{time}");
        assert_eq!((coverage.unread_times, coverage.damaged), (3, 0), "{time}: {coverage:?}");
    }
}

#[test]
fn a_timestamp_that_the_server_set_is_no_statement() {
    let log = event(1, 8, "select 1") + &event(2, 8, "x").replace("x;\n", "") + &event(3, 8, "select 3");
    let (events, coverage) = seen(&log);
    assert_eq!(events.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>(), ["select 1", "select 3"]);
    assert_eq!(coverage.places[0].reason, "an event without a statement");
}

#[test]
fn what_somebody_wrote_under_a_log_costs_no_event() {
    for under in ["```\n\nThanks!\n", "{noformat}\n", "root@db1:~# \n", "-- \nAnn"] {
        let log = event(1, 8, "select 1") + &event(2, 8, "select ';\nx'") + under;
        let (events, coverage) = seen(&log);
        let texts: Vec<_> = events.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!((texts, coverage.damaged), (vec!["select 1", "select ';\nx'"], 1), "{under}");
        let (events, coverage) = parsed(log.replace('\n', "\r\n").as_bytes());
        assert_eq!((events.len(), coverage.damaged), (2, 1), "{under}");
    }
    // Not where it may be a part of the statement.
    for statement in ["create procedure p()\nbegin\nselect 1;\nsel", "select '1;\nsel"] {
        let log = event(1, 8, statement);
        let (events, coverage) = parsed(&log.as_bytes()[..log.len() - 2]);
        assert_eq!((events.len(), coverage.damaged), (0, 1), "{statement}");
    }
}

#[test]
fn a_log_with_prefixes_behind_one_without_is_named() {
    let prefixed: String = event(3, 9, "select 3").lines().map(|line| format!("db-1  | {line}\n")).collect();
    let log =
        event(1, 8, "select 1") + &event(2, 8, "select 2\nfrom t") + &prefixed + &event(4, 8, "select 4");
    let (events, coverage) = seen(&log);
    let texts: Vec<_> = events.iter().map(|(text, ..)| text.as_str()).collect();
    assert_eq!(texts, ["select 1", "select 2\nfrom t", "select 4"]);
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (1, prefixed.len() as u64));
    assert!(coverage.places[0].reason.contains("file of its own"), "{coverage:?}");
    // A text that an application stores is none.
    let stored = format!("insert into t values ('\n{prefixed}')");
    assert_eq!(seen(&event(1, 8, &stored)).0[0].0, stored);
}

#[test]
fn an_account_that_cannot_be_read_is_counted() {
    let log = event(1, 8, "select 1") + &event(2, 8, "select 2").replace(" @ ", " &#64; ");
    let (events, coverage) = seen(&log);
    assert_eq!((events.len(), coverage.unread_accounts, coverage.damaged), (2, 1, 0));
}

#[test]
fn blank_lines_inside_of_a_header_change_nothing() {
    let log =
        [event(1, 8, "select 1"), event(2, 4, "select 'a\n\n# b'"), event(3, 8, "\n\n# c: d\nselect 3")]
            .concat();
    let (events, _) = seen(&log);
    for end in ["\n\n", "\r\n\r\n", "\n\n\n"] {
        // All lines of headers, and none of statements.
        let mut is_header = true;
        let doubled: String = log
            .split_inclusive('\n')
            .map(|line| {
                is_header = line.starts_with("# Time") || is_header;
                let text = if is_header { line.replace('\n', end) } else { line.to_owned() };
                is_header &= !line.starts_with("SET ");
                text
            })
            .collect();
        let (found, coverage) = seen(&doubled);
        assert_eq!(found.len(), 3, "{doubled}");
        for (found, event) in found.iter().zip(&events) {
            assert_eq!(found.0.trim_start(), event.0.trim_start());
            assert_eq!((&found.1, found.2), (&event.1, event.2));
        }
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    }
}

#[test]
fn a_command_behind_blank_lines_is_one() {
    for blanks in ["\n", "\r\n\n"] {
        let log = event(1, 8, &format!("{blanks}# administrator command: Ping")) + &event(2, 8, "select 2");
        let (events, coverage) = seen(&log);
        let texts: Vec<_> = events.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!((texts, coverage.damaged), (vec!["", "select 2"], 0), "{log}");
    }
}

/// Pieces that were saved by editors of several systems, put together.
#[test]
fn lines_that_end_with_a_return_alone_are_read_wherever_they_begin() {
    let plain =
        [event(1, 8, "select 1").replace("SET t", "use shop;\nSET t"), event(2, 8, "select 2\nfrom t")];
    let returns = [
        BANNER.to_owned() + &event(3, 8, "select 'it''s'\n\n, 3"),
        event(4, 9, "select 4").replace("SET t", "use zoo;\nSET t"),
        event(5, 9, "# administrator command: Ping"),
    ];
    let behind = [event(6, 8, "select 6"), event(7, 8, "select 7")];
    let whole = [plain.concat(), returns.concat(), behind.concat()].concat();
    let (expected, _) = parsed(whole.as_bytes());
    assert_eq!(expected.len(), 7);
    for (end, from) in [("\n", 0), ("", 0), ("\n", 1), ("", 2)] {
        let part = returns[from..].concat().replace('\n', "\r") + end;
        let log = [plain.concat(), returns[..from].concat(), part, behind.concat()].concat();
        let (events, coverage) = read_everywhere(&log);
        let with_usual_ends: Vec<_> =
            events.into_iter().map(|event| Seen { text: event.text.replace('\r', "\n"), ..event }).collect();
        assert_eq!(with_usual_ends, expected, "{log:?}");
        assert!(coverage.places[0].reason.contains("\\r alone"), "{coverage:?}");
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    }
    // A text that an application stores is none.
    let stored = format!("insert into t values ('{}')", event(3, 9, "select 3").replace('\n', "\r"));
    let (events, coverage) = seen(&(event(1, 8, &stored) + &event(2, 8, "select 2")));
    assert_eq!((events.len(), events[0].0.as_str(), coverage.places.len()), (2, stored.as_str(), 0));
}

#[test]
fn what_stands_before_a_timestamp_is_of_the_header() {
    for lines in [
        "Tmp_tables : 1  Tmp_disk_tables : 2\n",
        "* Tmp_tables: 1  Tmp_disk_tables: 2\n",
        "-- Tmp_tables: 1  Tmp_disk_tables: 2\n",
        "> # Tmp_tables: 1  Tmp_disk_tables: 2\n",
        "\u{2022} Tmp_tables: 1 Tmp_disk_tables: 2\n",
        "\\# Tmp\\_tables: 1  Tmp\\_disk\\_tables: 2\n",
        "Tmp_new: 3\n  No InnoDB statistics available for this query\n# Tmp_tables: 1  Tmp_disk_tables: 2\n",
    ] {
        let log: String = (1..3)
            .map(|second| event(second, 8, "select a from t").replace("SET t", &format!("{lines}SET t")))
            .collect();
        let (events, coverage) = seen(&log);
        assert_eq!(events, vec![("select a from t".to_owned(), String::new(), 250); 2], "{lines}");
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{lines}");
        assert!(coverage.touched_lines >= 2, "{lines}");
        if !lines.contains("new") {
            assert_eq!(measure(&log, Measure::TmpDiskTables), [Some(2); 2], "{lines}");
        }
    }
    // What ends like a statement is one.
    let (events, _) = seen(&(event(1, 8, "select 1").replace("SET t", "select 0;\nSET t")));
    assert!(events[0].0.starts_with("select 0"), "{events:?}");
}

#[test]
fn a_timestamp_and_a_database_however_they_are_written() {
    let original = event(1, 8, "select 1").replace("SET t", "use shop;\nSET t") + &event(2, 8, "select 2");
    let (expected, _) = parsed(original.as_bytes());
    let changes: [(&str, Change); 9] = [
        ("blanks at the end", |log| log.replace(";\n", ";  \n")),
        ("lower case", |log| log.replace("SET t", "set t")),
        ("blanks", |log| log.replace("timestamp=", "timestamp = ")),
        ("no semicolon", |log| log.replace("01;\n", "01\n").replace("02;\n", "02\n")),
        ("no semicolons", |log| {
            log.replace("01;\n", "01\n").replace("02;\n", "02\n").replace("shop;", "shop")
        }),
        ("indented", |log| log.replace("SET t", "  SET t")),
        ("upper case", |log| log.replace("use shop", "USE shop")),
        ("backticks", |log| log.replace("use shop", "Use `shop`")),
        ("blanks behind the name", |log| log.replace("use shop;", "use shop ; ").replace("SET t", "SET T")),
    ];
    for (name, change) in changes {
        let (events, coverage) = read_everywhere(&change(&original));
        assert_eq!(events, expected, "{name}");
        assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{name}");
    }
}

#[test]
fn marks_between_the_values_of_a_header() {
    let original = (event(1, 8, "select 1") + &event(2, 9, "select 2"))
        .replace("SET t", "# Thread_id: 8  Schema: my shop  Last_errno: 0  Killed: 0\nSET t");
    let (expected, _) = parsed(original.as_bytes());
    for mark in [", ", " | ", "; ", "\t|\t"] {
        let log = original.replace("  L", &format!("{mark}L")).replace("  K", &format!("{mark}K"));
        let log = log.replace("  S", &format!("{mark}S")).replace("  R", &format!("{mark}R"));
        let (events, coverage) = read_everywhere(&log);
        assert_eq!(events, expected, "{log}");
        assert_eq!((coverage.damaged, events[0].database.as_str()), (0, "my shop"), "{log}");
    }
}

/// Whatever became of the key: an account is known by its signs.
#[test]
fn an_account_behind_another_key_is_read() {
    let original = event(1, 8, "select 1") + &event(2, 9, "select 2");
    let (expected, _) = parsed(original.as_bytes());
    for key in ["User@\u{200b}Host:", "User @ Host:", "User@Host <mailto:x> :", "Account:"] {
        let (events, coverage) = read_everywhere(&original.replace("User@Host:", key));
        assert_eq!(events, expected, "{key}");
        assert_eq!((coverage.damaged, coverage.unread_accounts), (0, 0), "{key}");
    }
    let (events, coverage) = read_everywhere(&original.replace(" @ web1 [", " @\t["));
    let (none, _) = parsed(original.replace(" @ web1 [", " @  [").as_bytes());
    assert_eq!((events, coverage.unread_accounts), (none, 0));
}

/// As people paste what they gave to the client.
#[test]
fn the_clients_own_end_of_a_statement_is_none_of_it() {
    for end in ["\\G", "\\g", " \\G"] {
        let log =
            event(1, 8, "select 1").replace("t 1;\n", &format!("t 1{end}\n")) + &event(2, 8, "select 2");
        let (events, coverage) = seen(&log);
        assert_eq!((events[0].0.as_str(), coverage.unterminated_events), ("select 1", 1), "{log}");
    }
}

#[test]
fn lines_of_supervisord_between_events_are_no_damage() {
    let line = "\n2024-01-31 12:00:01,970 DEBG 'mysqld' stdout output:\n";
    let (events, coverage) = seen(&(event(1, 8, "select 1") + line + &event(2, 8, "select 2")));
    assert_eq!((events.len(), coverage.damaged, coverage.other_lines), (2, 0, 1), "{events:?}");
}

/// A log of a server with several sessions and databases, changed in every way that this reads: the same as before.
#[test]
fn settings_accounts_and_orders_that_somebody_changed_say_the_same() {
    let of = |second: u32, id: u32, used: &str, statement: &str| {
        event(second, id, statement).replace("SET t", &format!("{used}SET t"))
    };
    let events = [
        of(1, 8, "use shop;\n", "select 1"),
        of(4, 9, "use crm;\n", "select 2\n  from t"),
        of(7, 8, "use shop;\n", "select 3"),
        of(10, 8, "", "select 4"),
    ];
    let original = events.concat();
    let (expected, _) = parsed(original.as_bytes());
    let settings = |log: &str, to: &dyn Fn(&str) -> String| {
        log.split_inclusive('\n')
            .map(|line| match line.strip_prefix("SET timestamp=") {
                Some(rest) => to(rest.trim_end_matches(";\n")) + "\n",
                None => line.to_owned(),
            })
            .collect::<String>()
    };
    let names = |log: &str, to: &dyn Fn(&str) -> String| {
        log.split_inclusive('\n')
            .map(|line| match line.strip_prefix("use ") {
                Some(rest) => to(rest.trim_end_matches(";\n")) + "\n",
                None => line.to_owned(),
            })
            .collect::<String>()
    };
    let mut logs = Vec::new();
    for form in [
        "SET @@timestamp=N;",
        "set session timestamp = N ;",
        "SET @@session.timestamp:=N;",
        "SET LOCAL timestamp=N;",
        "SET timestamp=N, insert_id=7;",
        "SET insert_id=7,timestamp=N;",
        "SET insert_id=7;\nSET timestamp=N;",
        "SET last_insert_id=3, insert_id=7, timestamp=N;",
        "SET timestamp='N';",
        "SET timestamp=N",
        "SET `timestamp`=N;",
        "SET timestamp=N; -- a comment",
        "/* a */ SET timestamp=N /* b */;",
        ";\nSET timestamp=N;",
        "SET timestamp=N;\n;",
        "SET timestamp=N;\nSET insert_id=7;",
        "  SET timestamp=N;",
    ] {
        logs.push(settings(&original, &|seconds| form.replace('N', seconds)));
    }
    for form in [
        "uSe N;",
        "USE `N`;",
        "use`N`;",
        "use\tN ;",
        "  use N;",
        "/* a */ use N /* b */; -- c",
        "use other; use N;",
        "use N",
        "use N;\n;",
        ";\nuse N;",
    ] {
        logs.push(names(&original, &|name| form.replace('N', name)));
    }
    logs.push(original.replace(";\nSET", "; SET"));
    logs.push(original.replace(";\nselect", "; select"));
    for log in &logs {
        let (events, coverage) = read_everywhere(log);
        assert_eq!(events, expected, "{log}");
        assert_eq!((coverage.damaged, coverage.unknown_databases), (0, 0), "{log}");
    }
}

#[test]
fn damaged_accounts_and_other_orders_are_unknown_and_never_those_of_others() {
    let of = |second: u32, id: u32, used: &str, statement: &str| {
        event(second, id, statement).replace("SET t", &format!("{used}SET t"))
    };
    let events = [
        of(1, 8, "use shop;\n", "select 1"),
        of(4, 9, "use crm;\n", "select 2\n  from t"),
        of(7, 8, "use shop;\n", "select 3"),
        of(10, 8, "", "select 4"),
    ];
    let original = events.concat();
    let (expected, _) = parsed(original.as_bytes());
    // Of names with zeros or signs of a terminal only the number is known.
    for damage in ["\0", "\u{1b}[31m"] {
        let (events, coverage) =
            read_everywhere(&original.replace("app[app]", &format!("app{damage}[app{damage}]")));
        let known: Vec<_> = expected
            .iter()
            .map(|event| Seen { user: String::new(), host: String::new(), ..event.clone() })
            .collect();
        assert_eq!((events, coverage.unread_accounts), (known, 4));
    }
    // Whatever is older than what was said of the database has none: never that of others.
    let newest_first = [&events[3][..], &events[2], &events[1], &events[0]].concat();
    let (events, coverage) = read_everywhere(&newest_first);
    let databases: Vec<_> = events.iter().map(|event| event.database.as_str()).collect();
    assert_eq!((databases, coverage.unknown_databases), (vec!["", "shop", "crm", "shop"], 0));
    let mixed = newest_first + &original.replace("use shop;\n", "");
    let (events, coverage) = read_everywhere(&mixed);
    let databases: Vec<_> = events.iter().map(|event| event.database.as_str()).collect();
    assert_eq!(
        (databases, coverage.unknown_databases),
        (vec!["", "shop", "crm", "shop", "shop", "crm", "crm", "crm"], 0)
    );
    let late =
        [of(9, 8, "use shop;\n", "select 1"), of(1, 8, "", "select 2"), of(9, 8, "", "select 3")].concat();
    let (events, coverage) = read_everywhere(&late);
    let databases: Vec<_> = events.iter().map(|event| event.database.as_str()).collect();
    assert_eq!((databases, coverage.unknown_databases), (vec!["shop", "", "shop"], 1));
}

#[test]
fn a_statement_whose_line_was_cut_off_is_said_to_be() {
    let log = event(1, 8, "select 1 where a in (1, 2, 3)") + &event(2, 8, "select 2");
    let (events, coverage) = read_everywhere(&log.replace(", 3);", ","));
    assert_eq!((events.len(), coverage.unterminated_events, coverage.damaged), (2, 1, 1));
    // One that only lacks its `;` is whole.
    let (events, coverage) = read_everywhere(&log.replace("3);", "3)"));
    assert_eq!((events.len(), coverage.unterminated_events, coverage.damaged), (2, 1, 0));
}
