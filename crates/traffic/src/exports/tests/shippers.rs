//! What shippers and clouds put around lines: each case is the same four events.

use super::*;

const THROTTLE: &str = "# Time: 2024-05-01T10:11:04.500000Z\n# User@Host: [] @  []  Id:     0\n\
    # Query_time: 913.000000  Lock_time: 0.000010 Rows_sent: 0  Rows_examined: 0\nSET timestamp=1714558264;\n\
    throttle:         39 'index not used' warning(s) suppressed.;";

fn lines() -> Vec<String> {
    let log = [entry(1, "shop", 11), entry(2, "", 12), THROTTLE.to_owned(), entry(3, "", 13)].join("\n");
    log.lines().map(str::to_owned).collect()
}

#[track_caller]
fn is_whole(name: &str, text: &[u8], servers: usize) {
    let (seer, coverage) = all(text).unwrap();
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{name}: {coverage:?}");
    assert_eq!(coverage.throttled_events, 39 * servers as u64, "{name}: {coverage:?}");
    assert_eq!(coverage.bytes, text.len() as u64, "{name}");
    let mut found = texts(&seer.0);
    found.sort_unstable();
    let mut expected: Vec<_> = (11..14).map(|id| format!("select *\nfrom t where id = {id}")).collect();
    expected.extend(vec![expected.clone(); servers - 1].concat());
    expected.sort_unstable();
    let expected: Vec<_> = expected.iter().map(|text| ("app@web/shop", text.as_str())).collect();
    assert_eq!(found, expected, "{name}");
}

fn objects(of: impl Fn(usize, &str) -> String) -> String {
    lines().iter().enumerate().map(|(number, line)| of(number, line) + "\n").collect()
}

#[test]
fn prefixes_inside_of_texts() {
    let prefixes = [
        "2026-03-01T10:32:01.000000000Z stdout F ",
        "Mar  1 10:32:01 db1 mysqld[812]: ",
        "[pod/mysql-0/mysql] 2026-03-01T10:32:01.000000000Z ",
        "db-1  | ",
        "{any} INFO: ",
    ];
    for prefix in prefixes {
        let events = lines();
        let events: Vec<_> = events
            .iter()
            .enumerate()
            .map(|(n, line)| {
                format!(r#"{{"timestamp":171455826{n:04},"message":{}}}"#, json(&format!("{prefix}{line}")))
            })
            .collect();
        is_whole(prefix, format!("{{\"events\":[{}]}}", events.join(",")).as_bytes(), 1);
        let lines = objects(|_, line| {
            format!(r#"{{"log":{},"stream":"stdout","time":"x"}}"#, json(&format!("{prefix}{line}\n")))
        });
        is_whole(prefix, lines.as_bytes(), 1);
    }
    // Two pods whose lines are in one stream.
    let two = objects(|_, line| {
        let of = |pod: u32| {
            format!(
                r#"{{"timestamp":1714558260000,"message":{}}}"#,
                json(&format!("[pod/m-{pod}/mysql] {line}"))
            )
        };
        format!("{}\n{}", of(0), of(1))
    });
    is_whole("two pods", two.as_bytes(), 2);
}

#[test]
fn lines_in_pieces() {
    let in_pieces = |of: &dyn Fn(&str, bool) -> String| {
        objects(|_, line| {
            let (one, two) = line.split_at(line.len() / 2);
            format!("{}\n{}", of(one, false), of(two, true))
        })
    };
    let fluentd = in_pieces(&|text, is_last| {
        format!(
            r#"{{"container_id":"a","source":"stdout","log":{},"partial_message":"true","partial_last":"{is_last}"}}"#,
            json(text)
        )
    });
    is_whole("fluentd", fluentd.as_bytes(), 1);
    let cri = in_pieces(&|text, is_last| {
        format!(
            r#"{{"stream":"stdout","logtag":"{}","log":{}}}"#,
            if is_last { "F" } else { "P" },
            json(text)
        )
    });
    is_whole("fluent-bit", cri.as_bytes(), 1);
}

#[test]
fn the_journal() {
    let field =
        |n: usize| format!("__CURSOR=s=1;i={n}\n__REALTIME_TIMESTAMP=17145582600000{n:02}\n_HOSTNAME=db1\n");
    let plain = objects(|n, line| format!("{}MESSAGE={line}\n_PID=812\n", field(n)));
    is_whole("export", plain.as_bytes(), 1);
    let mut binary = Vec::new();
    for (n, line) in lines().iter().enumerate() {
        binary.extend_from_slice(format!("{}MESSAGE\n", field(n)).as_bytes());
        binary.extend_from_slice(&(line.len() as u64).to_le_bytes());
        binary.extend_from_slice(format!("{line}\n_PID=812\n\n").as_bytes());
    }
    is_whole("export of bytes", &binary, 1);
    // What ends inside of a value is told.
    let coverage = all(&binary[..binary.len() - 30]).unwrap().1;
    assert!(coverage.places[0].reason.contains("cut off"), "{coverage:?}");
    let numbers = objects(|n, line| {
        let message = if n % 2 == 0 { json(line) } else { format!("{:?}", line.as_bytes()) };
        format!(r#"{{"__REALTIME_TIMESTAMP":"17145582600000{n:02}","MESSAGE":{message},"_HOSTNAME":"db1"}}"#)
    });
    is_whole("bytes as numbers", numbers.as_bytes(), 1);
    is_whole("a JSON sequence", format!("\u{1e}{}", numbers.replace("}\n{", "}\n\u{1e}{")).as_bytes(), 1);
}

#[test]
fn answers_of_services() {
    for is_backwards in [false, true] {
        let stream = |host: &str| {
            let mut values: Vec<_> = lines()
                .iter()
                .enumerate()
                .map(|(n, line)| format!(r#"["17145582600000000{n:02}",{}]"#, json(line)))
                .collect();
            if is_backwards {
                values.reverse();
            }
            format!(r#"{{"stream":{{"job":"mysql","host":"{host}"}},"values":[{}]}}"#, values.join(","))
        };
        let loki = format!(
            r#"{{"status":"success","data":{{"resultType":"streams","result":[{},{}],"stats":{{}}}}}}"#,
            stream("a"),
            stream("b")
        );
        is_whole("Loki", loki.as_bytes(), 2);
    }
    let log = lines().join("\n") + "\n";
    is_whole(
        "RDS",
        format!(r#"{{"LogFileData":{},"Marker":"0:1","AdditionalDataPending":false}}"#, json(&log))
            .as_bytes(),
        1,
    );
    // Portions end anywhere.
    let (one, two) = log.split_at(200);
    let portion =
        |text: &str| format!("{{\n    \"LogFileData\": {},\n    \"Marker\": \"0:1\"\n}}\n", json(text));
    is_whole("RDS in portions", (portion(one) + &portion(two)).as_bytes(), 1);
    let records: Vec<_> = lines()
        .iter()
        .map(|line| {
            format!(r#"{{"timeUnixNano":"1714558260000000000","body":{{"stringValue":{}}}}}"#, json(line))
        })
        .collect();
    let otel = format!(
        r#"{{"resourceLogs":[{{"resource":{{}},"scopeLogs":[{{"scope":{{}},"logRecords":[{}]}}]}}]}}"#,
        records.join(",")
    );
    is_whole("OpenTelemetry", otel.as_bytes(), 1);
    is_whole(
        "GELF",
        objects(|_, line| {
            format!(
                r#"{{"version":"1.1","host":"db1","short_message":{},"timestamp":1714558260.1}}"#,
                json(line)
            )
        })
        .as_bytes(),
        1,
    );
    // Nothing beside the text, which itself tells.
    is_whole(
        "a text alone",
        objects(|_, line| format!(r#"{{"attributes":{{"filename":"a"}},"body":{}}}"#, json(line))).as_bytes(),
        1,
    );
}

/// Rows of mysql.slow_log: a statement, and what the server writes in the place of those that it left out.
fn rows(delimiter: &str, name: impl Fn(&str) -> String, took: &str) -> String {
    let names = [
        "start_time",
        "user_host",
        "query_time",
        "lock_time",
        "rows_sent",
        "rows_examined",
        "db",
        "sql_text",
        "thread_id",
    ];
    let row = |took: &str, text: &str| {
        let values = [
            "2024-05-01 10:11:01.5",
            "app[app] @ web [10.0.0.1]",
            took,
            "00:00:00",
            "1",
            "11",
            "shop",
            text,
            "7",
        ];
        values.map(|value| format!("\"{value}\"")).join(delimiter) + "\n"
    };
    names.map(name).join(delimiter)
        + "\n"
        + &row(took, "select 1")
        + &row("00:15:13", "throttle:         39 'index not used' warning(s) suppressed.")
}

#[test]
fn what_a_server_left_out_is_no_row() {
    for delimiter in [",", ";", "|", "\t", "^", "~", "\u{1}"] {
        for name in [
            |name: &str| name.to_owned(),
            |name: &str| name.to_uppercase(),
            |name: &str| format!("`l`.`{name}`"),
        ] {
            let (seer, coverage) = all(rows(delimiter, name, "00:00:02.500000").as_bytes()).unwrap();
            assert_eq!(texts(&seer.0), [("app@web/shop", "select 1")], "{delimiter:?}");
            assert_eq!(seer.0[0].response_ns, Some(2_500_000_000));
            assert_eq!((coverage.throttled_events, coverage.throttled_ns), (39, 913_000_000_000));
            assert_eq!((coverage.events, coverage.damaged), (1, 0), "{coverage:?}");
        }
    }
    // Names in a statement are those of no table of values.
    let insert = "INSERT INTO `slow_log` (`start_time`,`query_time`,`sql_text`) VALUES ('2024-05-01 10:11:01','00:00:02','select 1');\n";
    assert!(!is_export(insert.as_bytes()));
    let document = r#"{"@timestamp":"2024-05-01T10:11:01Z","mysql":{"slowlog":{"query":"throttle:  39 'index not used' warning(s) suppressed.","query_time":{"sec":913}}},"host":{"name":"db1"}}"#;
    let (seer, coverage) = all(document.as_bytes()).unwrap();
    assert_eq!((seer.0.len(), coverage.throttled_events, coverage.events), (0, 39, 0));
}

#[test]
fn names_and_times_of_other_programs() {
    let spaced = |name: &str| name.replace('_', " ");
    let camel = |name: &str| {
        name.split('_')
            .enumerate()
            .map(|(at, word)| if at == 0 { word.to_owned() } else { word[..1].to_uppercase() + &word[1..] })
            .collect()
    };
    for log in [rows(",", spaced, "0 days 00:00:02.500000"), rows(";", camel, "2.5")] {
        let (seer, coverage) = all(log.as_bytes()).unwrap();
        assert_eq!(texts(&seer.0), [("app@web/shop", "select 1")], "{log}");
        assert_eq!((seer.0[0].response_ns, coverage.throttled_events), (Some(2_500_000_000), 39));
    }
}

#[test]
fn documents_behind_what_a_shipper_writes_before_them() {
    let wrapped = |before: &str| {
        objects(|_, line| format!(r#"{before}{{"log":{},"stream":"stdout"}}"#, json(&format!("{line}\n"))))
    };
    for before in [
        "2026-03-01T10:32:03+00:00\tmysql.slow\t",
        "2026-03-01 10:32:03.000000000 +0000 mysql.slow: ",
        "Mar  1 10:32:03 db1 fluentd[8]: ",
        "Mar  1 10:32:03 db1 app: @cee: ",
        "db-1  | ",
        "[pod/mysql-0/mysql] 2026-03-01T10:32:03Z ",
        "2026-03-01T10:32:03.000000000Z stdout F ",
    ] {
        is_whole(before, wrapped(before).as_bytes(), 1);
    }
    // Two servers by their tags, line by line.
    let (one, two) =
        (wrapped("2026-03-01T10:32:03+00:00\ta.slow\t"), wrapped("2026-03-01T10:32:03+00:00\tb.slow\t"));
    let both: String = one.lines().zip(two.lines()).map(|(one, two)| format!("{one}\n{two}\n")).collect();
    is_whole("two tags", both.as_bytes(), 2);
    let hashes = objects(|n, line| {
        format!(r#"[{n}] tail.0: [[1772361120.000000000, {{}}], {{"log"=>{}}}]"#, json(line))
    });
    is_whole("hashes", hashes.as_bytes(), 1);
}

#[test]
fn rows_of_a_store_that_keeps_the_text_among_attributes() {
    let rows: Vec<_> = lines()
        .iter()
        .enumerate()
        .map(|(n, line)| {
            let text = json(line);
            format!(r#"{{"id":"{n}","type":"log","attributes":{{"timestamp":"2026-03-01T10:32:03.{n:03}Z","message":{text}}}}}"#)
        })
        .collect();
    is_whole("attributes", format!(r#"{{"data":[{}]}}"#, rows.join(",")).as_bytes(), 1);
}

/// `aws logs ... --query 'events[].message'`, and the results of programs that ran a command.
#[test]
fn arrays_of_texts_with_nothing_around_them() {
    let entries = [entry(1, "shop", 11), entry(2, "", 12), entry(3, "", 13)];
    let expected = texts_of(&format!("{}\n", entries.join("\n")));
    let array = |texts: Vec<&str>, between: &str| {
        format!(
            "[{between}{}{between}]",
            texts.into_iter().map(json).collect::<Vec<_>>().join(&format!(",{between}"))
        )
    };
    let lines = || entries.iter().flat_map(|entry| entry.lines()).collect::<Vec<_>>();
    for document in [
        array(entries.iter().map(String::as_str).collect(), "\n    "),
        array(entries[..2].iter().map(String::as_str).collect(), ""),
        array(lines(), "\n  "),
        format!("{{\"rc\": 0, \"stdout_lines\": {}}}", array(lines(), "")),
    ] {
        let found = events(&document);
        let found = found.iter().map(|event| (event.who.clone(), event.text.clone())).collect::<Vec<_>>();
        assert_eq!(found, expected[..found.len()], "{document}");
        assert!(found.len() >= 2, "{document}");
    }
}

fn texts_of(log: &str) -> Vec<(String, String)> {
    let all = events(&format!("message\n{log}"));
    all.into_iter().map(|event| (event.who, event.text)).collect()
}

#[test]
fn a_general_log_whose_newest_rows_come_first_has_no_databases_of_later_rows() {
    let row = |second: u32, command: &str, argument: &str| {
        format!("2024-05-01 10:11:0{second},app[app] @ web [10.0.0.1],11,1,{command},{argument}\n")
    };
    let rows = [row(5, "Query", "select 2"), row(4, "Init DB", "crm"), row(2, "Query", "select 1")];
    let names = "event_time,user_host,thread_id,server_id,command_type,argument\n";
    let (seer, coverage) = all((names.to_owned() + &rows.concat()).as_bytes()).unwrap();
    assert_eq!(
        texts(&seer.0),
        [("app@web/", "select 2"), ("app@web/crm", "InitDb"), ("app@web/", "select 1")]
    );
    assert_eq!(coverage.unknown_databases, 1);
    assert!(coverage.places.iter().any(|place| place.reason.contains("newest rows come first")));
    let oldest_first: String = rows.iter().rev().map(String::as_str).collect();
    let (seer, coverage) = all((names.to_owned() + &oldest_first).as_bytes()).unwrap();
    assert_eq!((texts(&seer.0)[2], coverage.unknown_databases), (("app@web/crm", "select 2"), 0));
}

#[test]
fn rows_without_names_are_said_to_be_such() {
    let rows = r#"[["2026-11-30 00:05:19","root[root] @  [127.0.0.1]","00:00:01","select 1"]]"#;
    let error = all(rows.as_bytes()).err().unwrap().to_string();
    assert!(error.contains("without the names of their columns"), "{error}");
}

#[test]
fn the_first_line_of_docker_in_pieces_and_messages_that_end_with_a_byte_of_0() {
    let select = format!("select {}b", "a, ".repeat(9000));
    let log =
        format!("2024-05-01T10:11:01.5Z\t    5 Query\t{select}\n2024-05-01T10:11:02.5Z\t    5 Quit\t\n");
    // No end of line tells before the second piece that texts have theirs.
    let docker: String = log
        .as_bytes()
        .chunks(16 << 10)
        .map(|part| {
            let text = json(std::str::from_utf8(part).unwrap());
            format!(r#"{{"stream":"stdout","time":"2024-05-01T10:11:01.5Z","log":{text}}}"#) + "\n"
        })
        .collect();
    assert_eq!(events(&docker)[0].text, select);
    let gelf: String = entry(1, "shop", 11)
        .lines()
        .map(|text| {
            format!(r#"{{"version":"1.1","host":"db","short_message":{},"timestamp":1.5}}"#, json(text))
                + "\n"
        })
        .collect();
    assert_eq!(events(&gelf.replace('\n', "\0")), events(&gelf));
}
