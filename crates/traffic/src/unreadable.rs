//! Recognises files that cannot be read: says what they seem to be, and the command that makes a readable form.

use memchr::memmem;

use crate::packets::dump;

/// How much of a file is examined.
const HEAD_BYTES: usize = 64 << 10;

/// How a file is recognised.
enum Mark {
    /// It begins with this.
    Begin(&'static [u8]),
    /// One of its first lines begins with this.
    Line(&'static [u8]),
    /// Its head has all of these, in any case.
    All(&'static [&'static str]),
    /// It has this at an offset from its beginning.
    At(usize, &'static [u8]),
}

use Mark::{All, At, Begin, Line};

const SLOW_LOG: &str = "export the slow log itself, or mysql.slow_log with `mysql --batch`";

/// What it is, and what to do. The first match is reported, so the surest come first.
#[rustfmt::skip]
const KNOWN: &[(Mark, &str, &str)] = &[
    (Begin(b"\xfe\xfe\x0c\x01"), "an index of GTIDs, which MariaDB keeps beside a binary log", "leave it out and name the log"),
    (Begin(b"%PDF-"), "a PDF document", "export as text or CSV"),
    (Begin(b"SQLite format 3"), "a database of SQLite", "export its table as CSV: sqlite3 -csv -header FILE 'SELECT * FROM ...'"),
    (Begin(b"PAR1"), "a Parquet file", "a digest that headrace saved is read by `headrace digest`; export any other as CSV"),
    (Begin(b"\xd0\xcf\x11\xe0"), "an old document of Excel or Word", "save the sheet as CSV"),
    (Begin(b"\x7fELF"), "a program", "name the log that it wrote"),
    (Begin(b"PMLZ"), "a capture of another program", "convert it with `tshark -F pcap`"),
    (Begin(b"\x7fcap"), "a capture of another program", "convert it with `tshark -F pcap -r FILE -w out.pcap`"),
    (Begin(b"snoop\0"), "a capture of Solaris' snoop", "convert it with `tshark -F pcap -r FILE -w out.pcap`"),
    (Begin(b"\x34\xcd\xb2\xa1"), "a capture of a patched tcpdump", "convert it with `tshark -F pcap -r FILE -w out.pcap`"),
    (Begin(b"\xa1\xb2\xcd\x34"), "a capture of a patched tcpdump", "convert it with `tshark -F pcap -r FILE -w out.pcap`"),
    (Begin(b"\x1f\x8b"), "a file that was compressed twice", "`gzip -dc FILE | headrace digest -`"),
    (Begin(b"L3Vzci9"), "a log in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"IyBUaW1lOi"), "a log in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"IyBVc2VyQE"), "a log in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"1MOyoQ"), "a capture in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"TTyyoQ"), "a capture in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"Cg0NCg"), "a capture in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"H4sI"), "a compressed file in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"KLUv/"), "a compressed file in base64", "`base64 -d FILE | headrace digest -`"),
    (Begin(b"/mJpbg"), "a binary log in base64", "`base64 -d FILE | headrace digest -`"),
    (Line(b"begin 644 "), "a file in uuencode", "`uudecode -o /dev/stdout FILE | headrace digest -`"),
    (Line(b"00000000: "), "bytes as xxd prints them", "`xxd -r FILE | headrace digest -`"),
    (Line(b"00000000  "), "bytes as hexdump prints them", "give the file that was printed"),
    (Line(b"0000000 "), "bytes as hexdump or od prints them", "give the file that was printed"),
    (All(&["\"awslogs\"", "\"data\"", "\"h4si"]), "what CloudWatch sends a function", "`jq -r .awslogs.data FILE | base64 -d | gzip -dc | headrace digest -`"),
    (All(&["\"kinesis\"", "\"data\"", "\"h4si"]), "what CloudWatch sends by Kinesis", "`jq -r '.Records[].kinesis.data' FILE | while read -r data; do echo \"$data\" | base64 -d | gzip -dc; done | headrace digest -`"),
    (All(&["\"records\"", "\"data\"", "\"h4si"]), "what CloudWatch sends by Firehose", "`jq -r '.records[].data' FILE | while read -r data; do echo \"$data\" | base64 -d | gzip -dc; done | headrace digest -`"),
    (All(&["msg=\"# user@host"]), "lines of logfmt with a log in them", SLOW_LOG),
    (All(&["\"# user@host", "\":"]), "a log as texts of JSON", "`jq -r '.. | strings' FILE | headrace digest -`"),
    (All(&["| # user@host"]), "a table with a log in it", SLOW_LOG),
    (All(&["\"_source\"", "\"layers\"", "\"frame"]), "packets as tshark prints them", "give the capture itself: `tshark -w FILE`"),
    (Line(b"Frame 1: "), "packets as tshark prints them", "give the capture itself: `tshark -w FILE`"),
    (All(&["<pdml"]), "packets as tshark prints them", "give the capture itself: `tshark -w FILE`"),
    (All(&["query^i"]), "the output of `cat -A`", "give the log itself"),
    (All(&["interface: ", "\nfilter: ", "\nt "]), "text of ngrep", "capture with `tcpdump -w FILE`, or `ngrep -O FILE`"),
    (Begin(b"RTSS"), "a capture of Microsoft's Network Monitor", "convert it with `tshark -F pcap -r FILE -w out.pcap`"),
    (Begin(b"GMBU"), "a capture of Microsoft's Network Monitor", "convert it with `tshark -F pcap -r FILE -w out.pcap`"),
    (At(257, b"ustar"), "a tar archive", "`tar -xOf FILE NAME | headrace digest -` reads one of its files"),
    (Begin(b"7z\xbc\xaf\x27\x1c"), "a 7z archive", "`7z x -so FILE | headrace digest -`"),
    (Begin(b"Rar!"), "a rar archive", "unpack it first"),
    (Line(b"{\"type\":\"digest\""), "a digest", "give it to `headrace digest` by its name: files of digests are merged there"),
    (Line(b"data: {\"__CURSOR\""), "the journal as a stream of events", "journalctl -o json, or -o cat"),
    (Begin(b"\"# Time: "), "a log as one text of JSON", "`jq -r . FILE | headrace digest -`"),
    (Begin(b"\"/"), "a log as one text of JSON", "`jq -r . FILE | headrace digest -`"),
    (All(&["\"stdout_lines\"", "query_time"]), "a result of Ansible", "`jq -r '.stdout_lines[]' FILE | headrace digest -`"),
    (All(&["user@host", "<br"]), "a page of HTML", "save the log itself, not the page that shows it"),
    (Line(b"<!DOCTYPE html"), "a page of HTML", "save the log itself, not the page that shows it (mysql: leave out --html)"),
    (Line(b"<html"), "a page of HTML", "save the log itself, not the page that shows it (mysql: leave out --html)"),
    (Line(b"<TABLE BORDER=1>"), "a table of HTML", "mysql: leave out --html, use --batch"),
    (All(&["<audit_record", "sqltext"]), "an audit log in XML", SLOW_LOG),
    (All(&["\"audit_record\""]), "an audit log: it has no response times", SLOW_LOG),
    (All(&["\"general_data\"", "\"connection_id\""]), "an audit log: it has no response times", SLOW_LOG),
    (All(&["insert into", "sql_text"]), "rows as INSERT statements", "export them as CSV or JSON"),
    (All(&["insert into", "digest_text"]), "rows as INSERT statements", "export them as CSV or JSON"),
    (All(&["|--", "digest_text"]), "a table of Markdown", "export it as CSV or JSON"),
    (All(&["|--", "sql_text"]), "a table of Markdown", "export it as CSV or JSON"),
    (All(&["\"duration_us\"", "\"hostgroup_id\"", "\"query\""]), "ProxySQL's log of events", "`jq -c '{start_time: .starttime, query_time: (.duration_us / 1e6), sql_text: .query, db: .schemaname, user_host: \"\\(.username)[\\(.username)] @ [\\(.client / \":\" | .[0])]\", rows_sent}' FILE | headrace digest -`"),
    (Line(b"ProxySQL LOG QUERY:"), "ProxySQL's log of events as text", "write it as JSON: SET mysql-eventslog_format = 2"),
    (All(&["\"num_queries\"", "m_query_time"]), "PMM's query analytics, which sum up statements in their own classes", SLOW_LOG),
    (All(&["insert into", "query_review"]), "the history of pt-query-digest or Anemometer, whose classes are counted already", "digest the logs that it was made of"),
    (All(&["queries total,", "grand totals:"]), "a report of mysqlsla", "digest the log that it was made of"),
    (All(&["hostgroup", "digest_text", "count_star"]), "ProxySQL's stats_mysql_query_digest, which counts in other units", "export the server's performance_schema.events_statements_summary_by_digest"),
    (All(&["timer_wait", "sql_text", "event_name"]), "rows of performance_schema.events_statements_history, which has only the last few of each thread", "export performance_schema.events_statements_summary_by_digest"),
    (All(&["\"columnmetadata\""]), "the Data API's rows without names", "aws rds-data execute-statement --format-records-as JSON"),
    (All(&["\"primaryresult\"", "\"columns\""]), "Log Analytics' rows without names", "az monitor log-analytics query, or *Export to CSV*"),
    (Line(b"Date,User@Host,Query"), "a query log of MaxScale: it has no response times of the server", SLOW_LOG),
    (Line(b"Date,Service,"), "a query log of MaxScale: it has no response times of the server", SLOW_LOG),
    (All(&["command", "state", "info", "show processlist"]), "a list of processes: what runs at one moment, not what ended", SLOW_LOG),
    (All(&["count: ", "time=", "lock=", "rows="]), "a report of mysqldumpslow", "digest the log that it was made of"),
    (All(&["<resultset", "<row>"]), "a result in XML", "mysql: leave out --xml, use --batch"),
    (Line(b"<?xml"), "a document of XML", SLOW_LOG),
    (Line(b"-- MySQL dump"), "a dump of tables", "export the rows with `mysql --batch -e 'SELECT * FROM mysql.slow_log'`"),
    (Line(b"-- MariaDB dump"), "a dump of tables", "export the rows with `mysql --batch -e 'SELECT * FROM mysql.slow_log'`"),
    (Line(b"/*M!999999"), "a dump of tables", "export the rows with `mysql --batch -e 'SELECT * FROM mysql.slow_log'`"),
    (All(&["# overall:", "# profile"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["# query 1:", "# attribute"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["# query 1:", "# exec time"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["# item 1:", "# attribute"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["# report grouped by"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["# rank query id"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["# distill report"]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["$var1 = {", "attribute_types"]), "results that pt-query-digest saved", "digest the log that they were made of"),
    (All(&["delimiter /*!*/;"]), "the short form of mysqlbinlog, which has no times", "leave out --short-form (-s), or digest the binary log itself"),
    (All(&["\n  message: ", "# user@host"]), "a document of YAML", "ask for JSON: aws ... --output json, gcloud ... --format=json"),
    (All(&["message: ", "# user@host", "timestamp: "]), "a document of YAML", "ask for JSON: aws ... --output json, gcloud ... --format=json"),
    (All(&["textpayload: "]), "a document of YAML", "ask for JSON: gcloud logging read ... --format=json"),
    (All(&["\"global\"", "\"classes\"", "\"attribute\""]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["\"checksum\"", "\"distillate\""]), "a report of pt-query-digest", "digest the log that it was made of"),
    (All(&["reading mysql slow query log from", "count:"]), "a report of mysqldumpslow", "digest the log that it was made of"),
    (All(&["\"query_block\"", "\"select_id\""]), "a plan of EXPLAIN", "digest the log; `headrace digest --explain` shows the plans"),
    (All(&["select_type", "possible_keys", "key_len"]), "a plan of EXPLAIN", "digest the log; `headrace digest --explain` shows the plans"),
    (All(&["(cost=", "actual time="]), "a plan of EXPLAIN ANALYZE", "digest the log; `headrace digest --explain` shows the plans"),
    (All(&["\"alignedstarttime\"", "\"metriclist\""]), "Performance Insights' metrics: average active sessions, not calls", "export the digests: SELECT * FROM performance_schema.events_statements_summary_by_digest"),
    (All(&["\"db.sql"]), "Performance Insights' top statements: average active sessions, not calls", "export the digests: SELECT * FROM performance_schema.events_statements_summary_by_digest"),
    (All(&["\"events\": []"]), "CloudWatch's answer without events", "widen --start-time and --end-time"),
    (All(&["\"events\":[]"]), "CloudWatch's answer without events", "widen --start-time and --end-time"),
    (All(&["\"results\":", "\"status\":"]), "Logs Insights' answer without @message", "query `fields @timestamp, @logStream, @message | sort @timestamp asc`"),
    (Line(b"EVENTS\t"), "CloudWatch's events as text", "aws logs get-log-events --output json"),
    (All(&["innodb monitor output"]), "the output of SHOW ENGINE INNODB STATUS", "it has no statements that ended; digest the slow log"),
    (All(&["# headrace"]), "a report of headrace", "digest the log that it was made of"),
    (All(&["[system] [my-"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[note] [my-"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[warning] [my-"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[error] [my-"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[note] innodb"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[note] server socket"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[note] starting mariadb"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["[warning] aborted connection"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["ready for connections"]), "an error log", "the slow log is another file: SELECT @@slow_query_log_file"),
    (All(&["content-transfer-encoding: base64"]), "a mail with its text or attachment in base64", "save the attachment from the mail program, and give that"),
    (All(&["\u{2502}", "user@host"]), "a log inside of the frame of a terminal", "give the log's own file, or take the frame off: sed 's/\u{2502}//g; s/ *$//' FILE | headrace digest -"),
    (All(&["user@host", "query_time: "]), "a slow log in the cells or texts of another form", "write its lines alone, each as a line of its own"),
    (All(&["log:  duration:", "statement:"]), "a log of PostgreSQL", "headrace reads MySQL and MariaDB; pgBadger reads this"),
];

/// Files that are refused although they contain lines of a log, which would be misread.
#[rustfmt::skip]
const CERTAIN: &[(Mark, &str, &str)] = &[
    (Begin(b"{\\rtf"), "a document of RTF", "save it as plain text"),
    (All(&["events:\n- ", "\n  message: "]), "a document of YAML", "ask for JSON: aws logs ... --output json"),
    (All(&["\"message\" => \"", "\"@timestamp\" => "]), "what Logstash prints for people (rubydebug)", "write it with `codec => json_lines`, or give the log itself"),
    (All(&["[s=", ";i=", "\n    message="]), "the journal's verbose form", "`journalctl -o cat` or -o json"),
];

/// Files that are certainly not readable here, whatever their lines look like.
pub(super) fn certain(head: &[u8]) -> Option<String> {
    let lower = head.to_ascii_lowercase();
    of_frame(head).or_else(|| first_of(CERTAIN, head, &lower))
}

/// Rows of a log as pandas writes them by default: one JSON object per column or per row, with row numbers as keys.
fn of_frame(head: &[u8]) -> Option<String> {
    let begin: Vec<u8> =
        head.iter().take(HEAD_BYTES).copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let has = |mark: &[u8]| memmem::find(&begin, mark).is_some();
    // The form `split` of rows, which have no names of their own; of lines it is read.
    if begin.starts_with(b"{\"columns\":[")
        && (has(b"\"sql_text\"") || has(b"\"argument\"") || has(b"\"digest_text\""))
    {
        let rows = ". as $all | .data[] | [$all.columns, .] | transpose | map({(.[0]): .[1]}) | add";
        return Some(format!(
            "a data frame in the form `split` with rows of a log in it: `jq -c '{rows}' FILE | headrace digest -`, or write \
             it with pandas' to_json(orient='records')"
        ));
    }
    let lists =
        ["start_time", "user_host", "query_time", "sql_text", "event_time", "argument", "digest_text"];
    if lists.iter().filter(|name| has(format!("\"{name}\":[").as_bytes())).count() > 1 {
        let rows = ". as $all | (.[keys_unsorted[0]] | keys[]) as $row | $all | map_values(.[$row])";
        return Some(format!(
            "a data frame by lists with a log in it: `jq -c '{rows}' FILE | headrace digest -`, or write it with pandas' \
             to_json(orient='records')"
        ));
    }
    let mut rest = head.trim_ascii_start().strip_prefix(b"{")?;
    let mut keys = Vec::new();
    for _ in 0..2 {
        rest = rest.trim_ascii_start().strip_prefix(b"\"")?;
        let (key, after) = rest.split_at(memchr::memchr(b'"', rest)?);
        keys.push(key);
        rest = after[1..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
        rest = rest.strip_prefix(b"{").unwrap_or(rest);
    }
    let lower = head[..head.len().min(HEAD_BYTES)].to_ascii_lowercase();
    let is_log = [&b"user@host"[..], b"query_time", b"sql_text", b"argument", b"digest_text"]
        .iter()
        .any(|mark| memmem::find(&lower, mark).is_some());
    let is_number = |key: &[u8]| !key.is_empty() && key.iter().all(u8::is_ascii_digit);
    let (by, command) = match (is_number(keys[0]), is_number(keys[1])) {
        (false, true) => {
            let rows =
                ". as $all | .[keys_unsorted[0]] | keys_unsorted[] as $row | $all | map_values(.[$row])";
            ("columns", format!("jq -c '{rows}' FILE | headrace digest -"))
        }
        (true, false) => ("rows", "jq -c '.[]' FILE | headrace digest -".to_owned()),
        _ => return None,
    };
    let how = format!("`{command}`, or write it with pandas' to_json(orient='records')");
    is_log.then(|| format!("a data frame by {by} with a log in it: {how}"))
}

/// Why a file cannot be read, with the likely cause.
pub(super) fn reason(name: &str, head: &[u8]) -> String {
    match sentence(head) {
        Some(sentence) => format!("{name} seems to be {sentence}"),
        None => format!(
            "{name} is no capture, slow log, general log, recording or export that can be told; headrace reads slow and \
             general logs, pcap and pcapng, exports of mysql.slow_log and of \
             performance_schema.events_statements_summary_by_digest (CSV, JSON, `mysql --batch`), and what clouds make of \
             these logs (docs/reference/sources.md)"
        ),
    }
}

/// What a text or file seems to be, and what to do; `None` if nothing here fits.
pub(super) fn sentence(head: &[u8]) -> Option<String> {
    let head = &head[..head.len().min(HEAD_BYTES)];
    if let Some(what) = server_audit(head) {
        return Some(format!("{what}: {SLOW_LOG}"));
    }
    if dump::is_without_bytes(head) {
        let how = "print them with `tcpdump -n -x -tttt`, or write them with `tcpdump -w FILE`";
        return Some(format!("text of tcpdump without the bytes of the packets: {how}"));
    }
    let lower = head.to_ascii_lowercase();
    of_frame(head).or_else(|| first_of(KNOWN, head, &lower))
}

fn first_of(known: &[(Mark, &str, &str)], head: &[u8], lower: &[u8]) -> Option<String> {
    let marked = known.iter().find(|(mark, ..)| is_marked(mark, head, lower));
    marked.map(|(_, what, how)| format!("{what}: {how}"))
}

fn is_marked(mark: &Mark, head: &[u8], lower: &[u8]) -> bool {
    match mark {
        Begin(begin) => head.starts_with(begin),
        At(place, begin) => head.get(*place..).is_some_and(|rest| rest.starts_with(begin)),
        Line(begin) => head
            .split(|byte| *byte == b'\n')
            .take(20)
            .any(|line| line.get(..begin.len()).is_some_and(|start| start.eq_ignore_ascii_case(begin))),
        All(parts) => parts.iter().all(|part| memmem::find(lower, part.as_bytes()).is_some()),
    }
}

/// `20240501 10:11:12,host,user,client,7,42,QUERY,db,'SELECT 1',0`: MariaDB's plugin.
fn server_audit(head: &[u8]) -> Option<&'static str> {
    let is_record = |line: &[u8]| {
        let fields: Vec<_> = line.splitn(9, |byte| *byte == b',').collect();
        let is_number = |field: &[u8]| !field.is_empty() && field.iter().all(u8::is_ascii_digit);
        fields.len() == 9
            && fields[0].len() == 17
            && fields[0][8] == b' '
            && is_number(&fields[0][..8])
            && is_number(fields[4])
            && is_number(fields[5])
            && fields[6].iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_')
    };
    head.split(|byte| *byte == b'\n')
        .take(5)
        .any(is_record)
        .then_some("an audit log, which has no response times")
}

#[cfg(test)]
mod tests {
    use super::{certain, reason, sentence};

    #[test]
    fn lines_of_a_log_in_another_form_are_not_taken_for_a_log() {
        let journal = "Sun 2026-03-01 10:33:00.1 UTC [s=a;i=1;b=2]\n    _PID=8\n    MESSAGE=# Time: x\n";
        let ruby = "{\n  \"message\" => \"# User@Host: a[a] @ b []\",\n  \"@timestamp\" => 2026-03-01T10:33:00Z\n}\n";
        for (head, what) in [
            ("{\\rtf1\\ansi # Time: 2026\\par\n", "RTF"),
            (journal, "journalctl -o cat"),
            (ruby, "json_lines"),
        ] {
            assert!(certain(head.as_bytes()).is_some_and(|found| found.contains(what)), "{head}");
        }
        assert_eq!(
            certain(b"# Time: 2026-03-01T10:33:00Z\n# User@Host: a[a] @ b []\n    message=1;\n"),
            None
        );
    }

    #[test]
    fn what_people_give_is_named_with_what_to_do() {
        for (head, what) in [
            ("%PDF-1.4\n", "PDF"),
            ("<!doctype HTML>\n<html>", "HTML"),
            ("-- MySQL dump 10.13  Distrib 8.0.36\n", "dump"),
            (
                "2024-05-01T10:11:12.345678Z 0 [System] [MY-010116] [Server] /usr/sbin/mysqld starting\n",
                "error log",
            ),
            ("2026-11-28 13:07:07 0 [Note] Starting MariaDB 10.11.19\n", "error log"),
            ("[{\"_index\": \"packets-2026\",\n \"_source\": {\"layers\": {\"frame\": {}}}}]", "tshark -w"),
            ("Frame 1: 74 bytes on wire (592 bits), 74 bytes captured\nEthernet II\n", "tshark -w"),
            (
                "interface: lo (127.0.0.0/255.0.0.0)\nfilter: ( port 3306 )\n####\nT 127.0.0.1:5 -> 127.0.0.1:3306 [AP]",
                "ngrep",
            ),
            ("# Profile\n# Rank Query ID  Response time Calls\n# ==== ====\n", "pt-query-digest"),
            ("# ####\n# Report grouped by tables\n# ####\n\n# Item 1: 0.03 QPS\n", "pt-query-digest"),
            (
                "# Query 1: 0 QPS, 0x concurrency, ID 0x66\n#    pct\n# Exec time  95 726ms\n",
                "pt-query-digest",
            ),
            (
                "/*!50530 SET @@SESSION.PSEUDO_SLAVE_MODE=1*/;\nDELIMITER /*!*/;\nROLLBACK/*!*/;\n",
                "--short-form",
            ),
            ("---\ninsertId: x\ntextPayload: '# Time: 2026-03-01T10:32:03Z'\n", "--format=json"),
            ("# 120ms user time\n# Overall: 12 total, 3 unique\n# Profile\n", "pt-query-digest"),
            ("20240501 10:11:12,db1,app,10.0.0.1,7,42,QUERY,shop,'SELECT 1',0\n", "audit"),
            ("{\"audit_record\":{\"name\":\"Query\",\"sqltext\":\"select 1\"}}\n", "audit"),
            (
                "{\"AlignedStartTime\":1,\"MetricList\":[{\"Key\":{\"Metric\":\"db.load.avg\"}}]}",
                "Performance Insights",
            ),
            ("{\"query_block\":{\"select_id\":1}}", "EXPLAIN"),
            ("id\tselect_type\ttable\tpossible_keys\tkey\tkey_len\n", "EXPLAIN"),
            (
                "INSERT INTO `slow_log` (`start_time`,`sql_text`) VALUES ('2026-03-01','select 1');\n",
                "INSERT",
            ),
            (
                "Count: 2  Time=1.50s (3s)  Lock=0.00s (0s)  Rows=1.0 (2), app[app]@localhost\n",
                "mysqldumpslow",
            ),
            ("hostgroup,digest,digest_text,count_star,sum_time\n", "ProxySQL"),
            ("data: {\"__CURSOR\":\"s=1\"}\n\n", "journal"),
            ("\"# Time: 2026-03-01T10:32:03Z\\n# User@Host: a[a] @ b []\\n\"\n", "jq -r"),
            ("# User@Host: a[a] @ b []<br>", "HTML"),
            ("{\"stdout_lines\": [\"# Query_time: 1  Lock_time: 0\"]}", "Ansible"),
            ("{\"type\":\"digest\",\"version\":1}\n", "digest"),
            ("IyBUaW1lOiAyMDI2LTAzLTAxVDEwOjMyOjAzWgo=\n", "base64 -d"),
            ("1MOyoQIABAAAAAAAAAAAAP//AAABAAAA\n", "base64 -d"),
            ("{\n \"lines\": [\n  \"# User@Host: a[a] @ b []\"]}", "jq -r '.. | strings'"),
            ("| line |\n|---|\n| # User@Host: a[a] @ b [] |\n", "table"),
            ("From: a@b\nContent-Transfer-Encoding: base64\n\nL3Vzci9\n", "attachment"),
            ("\u{2502}# User@Host: a[a] @ b []   \u{2502}\n", "frame"),
            ("line,text\n3,\"# User@Host: a[a] @ b []\"\n4,# Query_time: 1\n", "each as a line of its own"),
            ("begin 644 slow.log\nM(R!4:6UE\n", "uudecode"),
            ("00000000: d4c3 b2a1 0200 0400  ........\n", "xxd -r"),
            ("00000000  d4 c3 b2 a1 02 00 04 00  |........|\n", "hexdump"),
        ] {
            let found = sentence(head.as_bytes());
            assert!(
                found.as_deref().is_some_and(|found| found.contains(what) && found.contains(": ")),
                "{head}: {found:?}"
            );
        }
        assert!(sentence(b"\x1f\x8b\x08\0").is_some_and(|what| what.contains("twice")));
        assert_eq!(sentence(b"hello\nworld\n"), None);
        assert!(reason("a.txt", b"hello").contains("a.txt is no capture"));
    }

    #[test]
    fn data_frames_are_named_with_what_turns_them() {
        for (head, what) in [
            (r#"{"time":{"0":1},"message":{"0":"\# User@Host: a[a] @ b []"}}"#, Some("by columns")),
            (
                r#"{ "start_time" : { "0" : 1, "1" : 2 }, "sql_text" : { "0" : "select 1" } }"#,
                Some("by columns"),
            ),
            (r#"{"0":{"time":1,"message":"\# Query_time: 1"},"1":{}}"#, Some("by rows")),
            (r#"{"columns":["start_time", "sql_text"],"data":[["2026","select 1"]]}"#, Some("split")),
            (r#"{"columns":["time","message"],"data":[["2026","\# Query_time: 1"]]}"#, None),
            (r#"{"start_time": ["2026"], "sql_text": ["select 1"]}"#, Some("by lists")),
            (r#"{"a":{"0":1}}"#, None),
            (r#"{"events":{"message":"\# Query_time: 1"}}"#, None),
        ] {
            let found = certain(head.as_bytes());
            assert_eq!(found.is_some(), what.is_some(), "{head}: {found:?}");
            assert!(what.is_none_or(|what| found.unwrap().contains(what)), "{head}");
        }
    }

    #[test]
    fn what_clouds_proxies_and_other_programs_write_is_named_with_what_to_do() {
        for (head, what) in [
            (
                "{\"client\":\"10.0.0.7:5\",\"duration_us\":1,\"hostgroup_id\":1,\"query\":\"select 1\"}\n",
                ".duration_us / 1e6",
            ),
            ("ProxySQL LOG QUERY: thread_id=\"2\"\nselect 1\n", "eventslog_format = 2"),
            ("[{\"queryid\":\"A\",\"num_queries\":5,\"m_query_time_sum\":1.5}]", "PMM"),
            ("INSERT INTO `global_query_review_history` VALUES (1,'db1');\n", "Anemometer"),
            (
                "Report for slow logs: slow.log\n3 queries total, 2 unique\nGrand Totals: Time 3 s\n",
                "mysqlsla",
            ),
            ("{\"awslogs\": {\"data\": \"H4sIAAAA\"}}", "jq -r .awslogs.data FILE"),
            ("{\"Records\":[{\"kinesis\":{\"data\":\"H4sIAAAA\"}}]}", ".Records[].kinesis.data"),
            ("{\"records\":[{\"recordId\":\"1\",\"data\":\"H4sIAAAA\"}]}", "'.records[].data'"),
        ] {
            let sentence = reason("x", head.as_bytes());
            assert!(sentence.contains(what), "{head}: {sentence}");
        }
    }
}
