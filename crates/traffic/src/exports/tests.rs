use std::io::Cursor;

use super::{Export, is_export, read};
use crate::coverage::Coverage;
use crate::digest::lines::Source;
use crate::digest::{Digest, DigestOptions};
use crate::event::{Command, Event, Sink, Summary};
use crate::filter::Selection;
use crate::measures::Measure;

/// What tests compare of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    start_ns: u64,
    response_ns: Option<u64>,
    session: u64,
    who: String,
    text: String,
    rows_examined: Option<u64>,
}

#[derive(Default)]
struct Seer(Vec<Seen>, Vec<(Option<String>, u64, u64)>);

impl Sink for Seer {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.0.push(Seen {
            start_ns: event.start_ns,
            response_ns: event.response_ns,
            session: event.session,
            who: format!("{}@{}/{}", text(event.user), text(event.host), text(event.database)),
            text: if event.command == Command::Query {
                text(event.text)
            } else {
                format!("{:?}", event.command)
            },
            rows_examined: event.measures.get(Measure::RowsExamined),
        });
        Ok(())
    }

    fn summary(&mut self, summary: &Summary<'_>) -> anyhow::Result<()> {
        let text = summary.text.map(|text| String::from_utf8_lossy(text).into_owned());
        self.1.push((text, summary.count, summary.sum_ns));
        Ok(())
    }
}

fn all(text: &[u8]) -> anyhow::Result<(Seer, Coverage)> {
    // What is read already is a part only, as with a pipe.
    let (head, rest) = text.split_at(text.len().min(4096));
    let mut seer = Seer::default();
    let coverage = read(head.to_vec(), Cursor::new(rest), "x", false, &mut seer)?;
    assert!(coverage.skipped_bytes <= coverage.bytes, "{coverage:?}");
    Ok((seer, coverage))
}

fn events(text: &str) -> Vec<Seen> {
    let (seer, coverage) = all(text.as_bytes()).unwrap();
    assert_eq!((coverage.damaged, coverage.skipped_bytes), (0, 0), "{coverage:?}");
    assert_eq!(coverage.bytes, text.len() as u64);
    seer.0
}

/// An entry of a slow log without its last end of line, as clouds give it.
fn entry(second: u32, database: &str, number: u32) -> String {
    let used = if database.is_empty() { String::new() } else { format!("use {database};\n") };
    format!(
        "# Time: 2024-05-01T10:11:{second:02}.500000Z\n# User@Host: app[app] @ web [10.0.0.1]  Id:    {number}\n\
         # Query_time: 0.250000  Lock_time: 0.000010 Rows_sent: 1  Rows_examined: {number}\n{used}\
         SET timestamp=17145582{second:02};\nselect *\nfrom t where id = {number};"
    )
}

fn json(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn texts(events: &[Seen]) -> Vec<(&str, &str)> {
    events.iter().map(|event| (event.who.as_str(), event.text.as_str())).collect()
}

const START_NS: u64 = 1_714_558_261_250_000_000;

#[test]
fn cloudwatch_events_of_two_streams_out_of_order() {
    // `use` holds for what follows in its own stream.
    let entries =
        [(2000, "a", entry(2, "", 12)), (1000, "a", entry(1, "shop", 11)), (1500, "b", entry(1, "crm", 11))];
    let objects: Vec<_> = entries
        .iter()
        .map(|(time, stream, text)| {
            format!(r#"{{"logStreamName":"{stream}","timestamp":171455826{time},"message":{},"ingestionTime":1,"eventId":"3"}}"#, json(text))
        })
        .collect();
    let document =
        format!("{{\n  \"events\": [{}],\n  \"searchedLogStreams\": []\n}}\n", objects.join(",\n"));
    let found = events(&document);
    assert_eq!(
        texts(&found),
        [
            ("app@web/shop", "select *\nfrom t where id = 11"),
            ("app@web/shop", "select *\nfrom t where id = 12"),
            ("app@web/crm", "select *\nfrom t where id = 11"),
        ]
    );
    assert_eq!(
        (found[0].start_ns, found[0].response_ns, found[0].rows_examined),
        (START_NS, Some(250_000_000), Some(11))
    );
    assert!(found[0].session != found[2].session, "thread 11 of two servers is two sessions");
}

/// A sheet puts those of its lines in quotes that have commas or quotes in them.
#[test]
fn lines_of_a_sheet_of_one_column_are_those_of_the_log() {
    let log = entry(1, "shop", 11).replace("select *", "select \"a\", 'b'") + "\n" + &entry(2, "", 12);
    let cell = |line: &str| match line.contains([',', '"']) {
        true => format!("\"{}\"\n", line.replace('"', "\"\"")),
        false => format!("{line}\n"),
    };
    let cells: String = log.lines().map(cell).collect();
    for name in ["message", "Line", "\"textPayload\""] {
        let found = events(&format!("{name}\n{cells}"));
        assert_eq!(
            texts(&found),
            [
                ("app@web/shop", "select \"a\", 'b'\nfrom t where id = 11"),
                ("app@web/shop", "select *\nfrom t where id = 12"),
            ]
        );
    }
}

/// rsyslog's messages begin with the blank behind the tag.
#[test]
fn messages_that_begin_with_a_blank_say_the_same() {
    let text = format!("{}\n{}\n", entry(1, "shop", 11), entry(2, "", 12));
    let lines = |before: &str| -> String {
        let of =
            |line| format!("{{\"syslogtag\":\"mysqld:\",\"msg\":{}}}\n", json(&format!("{before}{line}")));
        text.lines().map(of).collect()
    };
    let (plain, blank) = (events(&lines("")), events(&lines(" ")));
    assert_eq!(texts(&plain), texts(&blank));
    assert_eq!(blank.len(), 2);
}

#[test]
fn insights_the_newest_first() {
    let rows =
        [(3, ""), (2, ""), (1, "shop")].map(|(second, database)| (second, entry(second, database, second)));
    let csv: String = rows
        .iter()
        .map(|(second, text)| format!("2024-05-01 10:11:0{second}.500,\"{}\"\n", text.replace('"', "\"\"")))
        .collect();
    let found = events(&format!("@timestamp,@message\n{csv}"));
    assert_eq!(
        found.iter().map(|event| event.start_ns).collect::<Vec<_>>(),
        [0, 1, 2].map(|s| START_NS + s * 1_000_000_000)
    );
    assert!(found.iter().all(|event| event.who == "app@web/shop"), "{found:?}");
    let results: Vec<_> = rows
        .iter()
        .map(|(second, text)| {
            format!(
                r#"[{{"field":"@timestamp","value":"2024-05-01 10:11:0{second}.500"}},{{"field":"@message","value":{}}},{{"field":"@ptr","value":"x"}}]"#,
                json(text)
            )
        })
        .collect();
    let document = format!(
        r#"{{"results":[{}],"statistics":{{"recordsMatched":3.0}},"status":"Complete"}}"#,
        results.join(",")
    );
    assert_eq!(events(&document), found);
}

#[test]
fn aws_logs_tail_and_awslogs() {
    let (one, two) = (entry(1, "shop", 11), entry(1, "crm", 11));
    let tail =
        format!("2024-05-01T10:11:01.500000+00:00 a {one}\n2024-05-01T10:11:01.600000+00:00 b {two}\n");
    let found = events(&tail);
    assert_eq!(
        found.iter().map(|event| event.who.as_str()).collect::<Vec<_>>(),
        ["app@web/shop", "app@web/crm"]
    );
    assert_eq!(
        events(&format!("2024-05-01T10:11:01 {one}\n2024-05-01T10:11:02 {}\n", entry(2, "", 12))).len(),
        2
    );
    let group = format!("/aws/rds/instance/a/slowquery a {one}\n/aws/rds/instance/a/slowquery b {two}\n");
    assert_eq!(texts(&events(&group)), texts(&found));
}

#[test]
fn lines_of_docker_fluentd_gcp_and_a_cloud_in_a_cloud() {
    let one = entry(1, "shop", 11);
    let lines =
        |line: &dyn Fn(&str) -> String| -> String { one.lines().map(|text| line(text) + "\n").collect() };
    let docker = lines(&|text| {
        format!(
            r#"{{"log":{},"stream":"stdout","time":"2024-05-01T10:11:01.5Z"}}"#,
            json(&format!("{text}\n"))
        )
    });
    let found = events(&docker);
    assert_eq!((found.len(), found[0].who.as_str()), (1, "app@web/shop"));
    // Docker writes a long line in pieces.
    let pieces = docker.replace(
        "from t",
        r#"from","stream":"stdout","time":"2024-05-01T10:11:01.5Z"}
{"log":" t"#,
    );
    assert_eq!(events(&pieces), found);
    let fluentd = lines(&|text| {
        format!(r#"{{"date":1714558261.5,"log":{},"kubernetes":{{"pod_name":"db-0"}}}}"#, json(text))
    });
    assert_eq!(events(&fluentd), found);
    let gcp = lines(&|text| {
        format!(
            r#"{{"textPayload":{},"logName":"projects/p/logs/cloudsql.googleapis.com%2Fmysql-slow.log","timestamp":"2024-05-01T10:11:01.500000Z"}}"#,
            json(text)
        )
    });
    assert_eq!(events(&gcp), found);
}

#[test]
fn texts_of_one_moment_are_turned_round_with_the_rest() {
    let lines: Vec<String> = [entry(1, "shop", 11), entry(2, "", 12)]
        .iter()
        .zip(1..)
        .flat_map(|(text, second)| {
            text.lines()
                .map(|line| {
                    format!(
                        r#"{{"jsonPayload":{{"message":{}}},"timestamp":"2024-05-01T10:11:0{second}.5Z"}}"#,
                        json(line)
                    )
                })
                .collect::<Vec<_>>()
        })
        .collect();
    let ordered = events(&lines.join("\n"));
    let backwards: Vec<_> = lines.into_iter().rev().collect();
    assert_eq!((events(&backwards.join("\n")), ordered.len()), (ordered, 2));
}

#[test]
fn a_document_in_a_text() {
    let inner = format!(r#"{{"log":{},"kubernetes":{{"pod_name":"db-0"}}}}"#, json(&entry(1, "shop", 11)));
    let document = format!(r#"{{"events":[{{"timestamp":1714558261500,"message":{}}}]}}"#, json(&inner));
    assert_eq!(texts(&events(&document))[0].0, "app@web/shop");
}

#[test]
fn general_logs_in_texts() {
    let document = r#"{"events":[
        {"timestamp":1,"message":"2026-11-21T10:00:00.123456Z\t    8 Connect\troot@localhost on db1 using Socket"},
        {"timestamp":2,"message":"2026-11-21T10:00:00.200000Z\t    8 Query\tselect 1"}]}"#;
    assert_eq!(
        texts(&events(document)),
        [("root@localhost/db1", "Connect"), ("root@localhost/db1", "select 1")]
    );
}

const ROW: &str = "2024-05-01 10:11:01.500000\tapp[app] @ web [10.0.0.1]\t00:00:00.250000\t00:00:00.000010\t1\t11\tshop\t0\t0\t1";
const NAMES: &str = "start_time\tuser_host\tquery_time\tlock_time\trows_sent\trows_examined\tdb\tlast_insert_id\tinsert_id\tserver_id\tsql_text\tthread_id";

#[test]
fn rows_of_the_slow_log_as_every_client_writes_them() {
    let seen = Seen {
        start_ns: START_NS,
        response_ns: Some(250_000_000),
        session: 11,
        who: "app@web/shop".to_owned(),
        text: "select 'a\tb', \"c\"\nfrom t".to_owned(),
        rows_examined: Some(11),
    };
    let batch = format!("{NAMES}\n{ROW}\tselect 'a\\tb', \"c\"\\nfrom t\t11\n");
    assert_eq!(events(&batch), std::slice::from_ref(&seen), "mysql --batch");
    let outfile = format!("{ROW}\tselect 'a\\\tb', \"c\"\\\nfrom t\t11\n");
    assert_eq!(events(&outfile), std::slice::from_ref(&seen), "INTO OUTFILE");
    let hexadecimal = format!("{NAMES}\n{ROW}\t0x73656C656374202761096227 2C\t11\n")
        .replace(" 2C", "2C202263220A66726F6D2074");
    assert_eq!(events(&hexadecimal), std::slice::from_ref(&seen), "a BLOB in hexadecimal");
    let quoted = |text: &str, quote: &str| {
        let values = ROW.split('\t').map(|value| format!("\"{value}\"")).collect::<Vec<_>>().join(",");
        format!("{values},\"{}\",\"11\"\n", text.replace('"', quote))
    };
    let header = NAMES.replace('\t', ",");
    let csv = format!("{header}\r\n{}", quoted(&seen.text, "\"\""));
    assert_eq!(events(&csv), std::slice::from_ref(&seen), "CSV");
    let converted = csv.replace("sql_text", "CONVERT(sql_text USING utf8mb4)");
    assert_eq!(events(&converted), std::slice::from_ref(&seen), "a column without a name of its own");
    let bars = |row: &str| row.replace('\t', " | ") + "\n";
    let bars = bars(NAMES) + &bars(&format!("{ROW}\tselect 1\t11"));
    assert_eq!(texts(&events(&bars)), [("app@web/shop", "select 1")], "blanks around bars");
    let nothing = csv.replace("\"shop\"", "\\N");
    assert_eq!(events(&nothing)[0].who, "app@web/", "NULL as servers write it");
    let buffer = format!(r#"{{"type":"Buffer","data":{:?}}}"#, seen.text.as_bytes());
    let node =
        format!(r#"[{{"start_time":"2024-05-01 10:11:01.500","query_time":0.25,"sql_text":{buffer}}}]"#);
    assert_eq!(events(&node)[0].text, seen.text, "a BLOB of Node.js");
    let semicolons = csv.replace("\",\"", "\";\"").replace(&header, &NAMES.replace('\t', ";"));
    assert_eq!(events(&semicolons), std::slice::from_ref(&seen), "CSV of a spreadsheet");
    let engine = quoted(&seen.text.replace('\n', "\\n"), "\\\"");
    assert_eq!(events(&engine), std::slice::from_ref(&seen), "slow_log.CSV");
    let object = |names: [&str; 6]| {
        let values = [
            "2024-05-01 10:11:01.500",
            "app[app] @ web [10.0.0.1]",
            "00:00:00.250000",
            "11",
            "shop",
            &seen.text,
        ];
        let members: Vec<_> =
            names.iter().zip(values).map(|(name, value)| format!("{}:{}", json(name), json(value))).collect();
        format!("{{{},\"thread_id\":11}}", members.join(","))
    };
    let names = ["start_time", "user_host", "query_time", "rows_examined", "db", "sql_text"];
    for document in [
        object(names),
        format!("[\n{}\n]", object(names)),
        format!("{{\"select * from mysql.slow_log\": [\n{}\n]}}", object(names)),
        format!(
            "{{\"RECORDS\":[{}]}}",
            object(names.map(|name| name.to_owned().to_uppercase()).each_ref().map(String::as_str))
        ),
    ] {
        assert_eq!(events(&document), std::slice::from_ref(&seen), "{document}");
    }
}

#[test]
fn the_start_is_the_start_where_the_server_says_so() {
    // MariaDB's table has one more column, and another time.
    let found = events(&format!("{NAMES}\trows_affected\n{ROW}\tselect 1\t11\t0\n"));
    assert_eq!(found[0].start_ns, START_NS + 250_000_000);
    let azure = r#"{"time":"2024-05-01T10:11:09Z","category":"MySqlSlowLogs","properties":{"event_class":"slow_log","start_time_t":"2024-05-01T10:11:01.25Z","query_time_d":2.5E-1,"user_host_s":"app[app] @ web [10.0.0.1]","rows_examined_d":11.0,"db_s":"shop","thread_id_s":"11","sql_text_s":"select 1"}}"#;
    let found = events(azure);
    assert_eq!(
        (found[0].start_ns, found[0].response_ns, found[0].session),
        (START_NS, Some(250_000_000), 11)
    );
    let filebeat = r#"{"@timestamp":"2024-05-01T10:11:02.000Z","event":{"duration":250000000},"mysql":{"thread_id":11,"slowlog":{"query":"select 1","rows_examined":11,"schema":"shop","lock_time":{"sec":1.0E-5},"current_user":"app"}},"source":{"domain":"web"},"message":"raw"}"#;
    let found = events(filebeat);
    assert_eq!(
        (found[0].who.as_str(), found[0].start_ns, found[0].rows_examined),
        ("app@web/shop", START_NS + 500_000_000, Some(11))
    );
}

#[test]
fn commands_blobs_and_rows_of_the_general_log() {
    assert_eq!(events(&format!("{NAMES}\n{ROW}\tQuit\t11\n"))[0].text, "Quit");
    let (_, coverage) = all(format!("{NAMES}\n{ROW}\tselect 1\t11\n{ROW}\tBLOB\t11\n").as_bytes()).unwrap();
    assert_eq!((coverage.events, coverage.damaged), (1, 1));
    let error = all(format!("{NAMES}\n{ROW}\tBLOB\t11\n").as_bytes()).err().unwrap().to_string();
    assert!(error.contains("CONVERT(sql_text"), "{error}");
    let general = "event_time,user_host,thread_id,server_id,command_type,argument\n\
                   2024-05-01 10:11:01.500000,app[app] @ web [10.0.0.1],11,1,Init DB,shop\n\
                   2024-05-01 10:11:01.600000,app[app] @ web [10.0.0.1],11,1,Query,\"select\n1\"\n";
    assert_eq!(texts(&events(general)), [("app@web/shop", "InitDb"), ("app@web/shop", "select\n1")]);
    for (text, is_cut) in [("select 1", false), ("select a from...", true), ("select a from\u{2026}", true)] {
        let row = "2024-05-01 10:11:01.600000,app[app] @ web [10.0.0.1],11,1,Query,";
        let (names, _) = general.split_once('\n').unwrap();
        for export in [format!("{names}\n{row}{text}\n"), format!("{NAMES}\n{ROW}\t{text}\t11\n")] {
            let mut cut = Vec::new();
            let mut sink = |event: &Event<'_>| {
                cut.push(event.is_cut);
                Ok(())
            };
            read(export.into_bytes(), Cursor::new(b""), "x", false, &mut sink).unwrap();
            assert_eq!(cut, [is_cut], "{text}");
        }
    }
}

const SUMMARY: &str = "SCHEMA_NAME,DIGEST,DIGEST_TEXT,COUNT_STAR,SUM_TIMER_WAIT,MIN_TIMER_WAIT,MAX_TIMER_WAIT,SUM_LOCK_TIME,SUM_ERRORS,SUM_ROWS_SENT,SUM_NO_INDEX_USED,FIRST_SEEN,LAST_SEEN,QUANTILE_95,QUANTILE_99,QUANTILE_999,QUERY_SAMPLE_TEXT,QUERY_SAMPLE_SEEN,QUERY_SAMPLE_TIMER_WAIT\n\
    shop,aa11,SELECT * FROM `t` WHERE `id` IN (...),4,8000000000,1000000000,5000000000,1000000,1,40,2,2024-05-01 10:00:00,2024-05-01 11:00:00,4000000000,5000000000,5000000000,\"SELECT * FROM t WHERE id IN (1,2)\",2024-05-01 10:30:00,2000000000\n\
    shop,bb22,SELECT `a` FROM `u` ...,2,2000000000,1000000000,1000000000,0,0,0,0,2024-05-01 10:10:00,2024-05-01 10:20:00,,,,,,\n\
    NULL,NULL,NULL,10,10000000000,1,2000000000,0,0,0,0,2024-05-01 09:00:00,2024-05-01 12:00:00,,,,,,\n";

fn digest(text: &str, options: &DigestOptions) -> anyhow::Result<(Vec<serde_json::Value>, String)> {
    let mut digest = Digest::new(options);
    let coverage = read(text.as_bytes().to_vec(), Cursor::new(b""), "x", false, &mut digest)?;
    let source = Source { inputs: vec!["x".to_owned()], coverage };
    let mut out = Vec::new();
    digest.write_lines(&source, &mut out)?;
    let lines = String::from_utf8(out)?.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    Ok((lines, digest.table(&source, 10, 400)))
}

#[test]
fn a_summary_has_its_sums_and_makes_up_nothing() {
    let (lines, table) = digest(SUMMARY, &DigestOptions::default()).unwrap();
    let class = |part: &str| {
        lines
            .iter()
            .find(|line| line["fingerprint"].as_str().is_some_and(|text| text.contains(part)))
            .unwrap()
    };
    let first = class("from t where id in (?+)");
    assert_eq!(first["count"], 4);
    assert_eq!(
        (&first["response_sum_ns"], &first["response_min_ns"], &first["response_max_ns"]),
        (&8_000_000.into(), &1_000_000.into(), &5_000_000.into())
    );
    assert_eq!(
        first["summarised"],
        serde_json::json!({"calls": 4, "rows": 1, "p95_ns": 4_000_000, "p99_ns": 5_000_000, "p999_ns": 5_000_000})
    );
    assert_eq!(
        (&first["failed"], &first["unjudged"], &first["buckets"]),
        (&1.into(), &0.into(), &serde_json::json!([]))
    );
    assert_eq!(first["rows_sent"], serde_json::json!({"known": 4, "summed": 4, "sum": 40, "max": null}));
    assert_eq!(
        (&first["is_full_scan"]["sum"], &first["rows_examined"]),
        (&2.into(), &serde_json::Value::Null)
    );
    // A text that the server cut is told apart by its digest.
    assert_eq!(class("/* digest bb22 */")["summarised"]["p95_ns"], serde_json::Value::Null);
    let others = lines.iter().find(|line| line["is_others"] == true).unwrap();
    assert_eq!((&others["count"], &lines[0]["others"]), (&10.into(), &10.into()));
    let coverage = &lines[0]["coverage"];
    assert_eq!((&coverage["events"], &coverage["summarised_events"]), (&16.into(), &16.into()));
    assert!(
        coverage["places"][0]["reason"].as_str().unwrap().starts_with("50% of the time (10 calls)"),
        "{coverage}"
    );
    let row = table.lines().find(|line| line.contains("from t where")).unwrap();
    let cells: Vec<_> = row.split_whitespace().collect();
    // time, share, calls, mean, p50, p95, p99, V/M
    assert_eq!(
        cells[2..16],
        ["8.00", "ms", "40.0%", "4", "2.00", "ms", "-", "4.00", "ms", "5.00", "ms", "-", "1", "select"][..]
            .iter()
            .copied()
            .chain(["*", "from"])
            .take(14)
            .collect::<Vec<_>>()[..],
        "{row}"
    );
}

#[test]
fn sums_do_not_answer_what_they_do_not_know() {
    let options = |group: Vec<_>, filter: &str| DigestOptions {
        group,
        selection: Selection {
            filters: filter.split_terminator(' ').map(|one| one.parse().unwrap()).collect(),
            ..Selection::default()
        },
        ..DigestOptions::default()
    };
    use crate::digest::group::Dimension;
    for (group, filter, asked) in [
        (vec![Dimension::User], "", "--group user"),
        (vec![Dimension::Class], "response>=100ms", "response>=100ms"),
    ] {
        let error = digest(SUMMARY, &options(group, filter)).err().unwrap().to_string();
        assert!(error.contains(asked) && error.contains("summary"), "{error}");
    }
    let (lines, _) = digest(SUMMARY, &options(vec![Dimension::Table], "table=t")).unwrap();
    assert_eq!((&lines[0]["events"], &lines[0]["filtered"]), (&4.into(), &12.into()));
    let mut refuses = |_: &Event<'_>| Ok(());
    let error = read(SUMMARY.as_bytes().to_vec(), Cursor::new(b""), "x", false, &mut refuses).err().unwrap();
    assert!(error.to_string().contains("neither printed as events nor recorded"), "{error}");
}

#[test]
fn sys_schema_with_its_formatted_times() {
    let text = "query\tdb\tfull_scan\texec_count\terr_count\twarn_count\ttotal_latency\tmax_latency\tdigest\n\
                SELECT * FROM `a ... WHERE `b` = ? \tshop\t*\t3\t0\t0\t1.50 s\t900.00 ms\tcc33\n";
    let (seer, coverage) = all(text.as_bytes()).unwrap();
    assert_eq!(seer.1, [(Some("SELECT * FROM `a ... WHERE `b` = ? ".to_owned()), 3, 1_500_000_000)]);
    assert!(coverage.places.iter().any(|place| place.reason.contains("rounded")), "{coverage:?}");
}

#[test]
fn a_document_cut_anywhere_gives_no_event_that_was_not_whole() {
    let objects: Vec<_> = (1..4)
        .map(|second| format!(r#"{{"start_time":"2024-05-01 10:11:0{second}","query_time":"00:00:00.250000","db":"s","sql_text":"select \u00e9{second}"}}"#))
        .collect();
    let document = format!("[{}]\n", objects.join(",\n"));
    let whole = events(&document);
    assert_eq!(whole.len(), 3);
    let texts = format!(
        r#"{{"events":[{{"timestamp":1,"message":{}}},{{"timestamp":2,"message":{}}}]}}"#,
        json(&entry(1, "s", 1)),
        json(&entry(2, "", 2))
    );
    let whole_texts = events(&texts);
    for (document, whole) in [(document, whole), (texts, whole_texts)] {
        for end in 0..document.len() {
            let cut = &document.as_bytes()[..end];
            match all(cut) {
                Ok((seer, coverage)) => {
                    assert!(whole.starts_with(&seer.0), "{end}");
                    let is_all = seer.0.len() == whole.len();
                    assert!(
                        is_all || coverage.damaged > 0 || !is_export(cut),
                        "{end}: nothing is lost in silence"
                    );
                }
                Err(error) => assert!(error.to_string().contains("texts of a log"), "{end}: {error}"),
            }
        }
    }
}

#[test]
fn hostile_exports_are_bounded() {
    // The first record tells what it is; what follows is anything.
    let first = r#"{"start_time":"2024-05-01 10:11:01","query_time":1,"db":"s","sql_text":"select 1"}"#;
    let long = format!("{first}\n{{\"query_time\":1,\"sql_text\":\"{}\"}}\n", "x".repeat(17 << 20));
    let (seer, _) = all(long.as_bytes()).unwrap();
    assert_eq!((seer.0.len(), seer.0[1].text.len()), (2, 16 << 20));
    let deep = format!("{first}\n{{\"query_time\":1,\"a\":{}", "[".repeat(1 << 20));
    assert_eq!(all(deep.as_bytes()).unwrap().0.0.len(), 1);
    let numbers = format!(
        "{first}\n{{\"query_time\":1e999,\"sql_text\":\"a\"}}\n{{\"query_time\":-1,\"sql_text\":\"a\"}}\n{{\"query_time\":\"nan\",\"sql_text\":\"a\"}}\n"
    );
    let (seer, coverage) = all(numbers.as_bytes()).unwrap();
    assert_eq!((seer.0.len(), coverage.damaged), (1, 3));
    let wide = format!("query_time,sql_text\n{}\n1,select 1\n", "1,".repeat(1 << 20));
    let (seer, coverage) = all(wide.as_bytes()).unwrap();
    assert_eq!((seer.0.len(), coverage.damaged), (1, 1));
}

#[test]
fn texts_of_another_log_are_an_error_that_names_it() {
    let line = r#"{"log":"2026-11-28 13:07:07 0 [Note] Starting MariaDB 10.11.19\n","stream":"stderr","time":"2024-05-01T10:11:01.5Z"}"#;
    let error = all(line.as_bytes()).err().unwrap().to_string();
    assert!(error.contains("error log") && error.contains("slow_query_log_file"), "{error}");
}

#[test]
fn other_files_are_no_exports() {
    for text in [
        "# Time: 2024-05-01T10:11:12Z\n# User@Host: a[a] @ b []\n",
        "{}",
        "[]",
        "[1,2]",
        "{\"a\":{\"message\":\"x\"}}",
        "hello,world\n1,2\n",
        "",
        "\n",
        "{\"type\":\"digest\",\"version\":1}\n",
        "2026-11-21T10:00:00.123456Z\t    8 Query\tselect 1\n",
    ] {
        assert_eq!(Export::of(text.as_bytes()), None, "{text}");
    }
}

/// The client's output for people: the same values as with `mysql --batch`.
#[test]
fn rows_that_a_client_printed_for_people() {
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
    let row = |statement: &str, id: &str| {
        [
            "2026-03-01 10:32:03.000100",
            "app[app] @ localhost []",
            "00:00:02.500000",
            "00:00:00.000010",
            "1",
            "5",
            "shop",
            statement,
            id,
        ]
        .map(str::to_owned)
    };
    let rows =
        [row("SELECT a\n  FROM t | u\n\n WHERE b = ': é'", "7"), row("SELECT 2", "8"), row("NULL | 3", "9")];
    let batch: String = std::iter::once(names.join("\t"))
        .chain(rows.iter().map(|row| row.clone().map(|value| value.replace('\n', "\\n")).join("\t")))
        .map(|line| line + "\n")
        .collect();
    let stars = "*".repeat(27);
    let vertical: String = rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let fields = names.iter().zip(row).map(|(name, value)| format!("{name:>13}: {value}\n"));
            format!("{stars} {}. row {stars}\n{}", number + 1, fields.collect::<String>())
        })
        .collect();
    let widths: Vec<usize> = (0..names.len())
        .map(|column| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap().max(names[column].len())
        })
        .collect();
    let border: String =
        widths.iter().map(|width| format!("+{}", "-".repeat(width + 2))).collect::<String>() + "+\n";
    let line = |cells: &[String]| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("| {cell:width$} "));
        cells.collect::<String>() + "|\n"
    };
    let framed: String = [border.clone(), line(&names.map(str::to_owned)), border.clone()]
        .into_iter()
        .chain(rows.iter().map(|row| line(row)))
        .chain([border.clone()])
        .collect();
    let expected = events(&batch);
    assert_eq!(expected.len(), 3);
    for before in ["", "mysql> select * from mysql.slow_log\\G\n"] {
        for (what, text) in [("vertical", &vertical), ("framed", &framed)] {
            let text = format!("{before}{text}3 rows in set (0.01 sec)\n\nmysql> \n");
            assert_eq!(events(&text), expected, "{what}:\n{text}");
            assert_eq!(events(&text.replace('\n', "\r\n")).len(), 3, "{what}");
        }
    }
    // A row that does not fit is counted, and costs no other one.
    let broken = framed.replacen("SELECT 2", "SELECT 20", 1);
    let (seer, coverage) = all(broken.as_bytes()).unwrap();
    assert_eq!((seer.0.len(), coverage.damaged), (2, 1));
}

mod forms;
mod shippers;
