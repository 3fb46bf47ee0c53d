//! What a record is, by the names of its fields.

use super::record::Record;
use crate::slow_log;

/// What the records of an export are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A piece of a log's text, with what a shipper or a cloud says of it.
    Text,
    /// A row of mysql.slow_log, or what has the same names: Azure's diagnostics.
    SlowRow,
    /// A document of Filebeat's module, which has read the slow log.
    Ecs,
    /// A row of mysql.general_log.
    GeneralRow,
    /// A row of performance_schema.events_statements_summary_by_digest.
    Summary,
    /// A row of sys.statement_analysis, or of its x$ twin.
    Analysis,
}

impl Shape {
    pub(super) fn of(record: &Record) -> Option<Shape> {
        let has_all = |names: &[&str]| names.iter().all(|name| record.has(&[name]));
        if has_all(&["count_star", "sum_timer_wait"])
            && (record.has(&["digest_text"]) || record.has(&["digest"]))
        {
            return Some(Shape::Summary);
        }
        if has_all(&["query", "exec_count", "total_latency"]) {
            return Some(Shape::Analysis);
        }
        if record.has(QUERY_TIME) && record.has(SQL_TEXT) {
            return Some(Shape::SlowRow);
        }
        if record.has(&["mysql.slowlog.query"]) {
            return Some(Shape::Ecs);
        }
        if has_all(&["command_type", "argument"]) && record.has(&["event_time"]) {
            return Some(Shape::GeneralRow);
        }
        let is_told = record.has(BESIDE_TEXT) || record.has(&["@message", "textpayload", "logfiledata"]);
        let is_text =
            if is_told { record.has(TEXT) } else { record.text(TEXT).is_some_and(slow_log::is_header_line) };
        is_text.then_some(Shape::Text)
    }
}

pub(super) const QUERY_TIME: &[&str] = &["query_time"];
/// With the names that people give it, and the bytes as Node.js writes them into JSON.
pub(super) const SQL_TEXT: &[&str] = &["sql_text", "sql_text.data", "query", "sql"];

/// Where the text of a log is: CloudWatch, Logs Insights, docker and fluentd, GCP, journald, Loki, Splunk, Azure, Elastic,
/// RDS, GELF (whose short text may be the first line only), OpenTelemetry, Datadog.
pub(super) const TEXT: &[&str] = &[
    "@message",
    "message",
    "log",
    "textpayload",
    "msg",
    "line",
    "_raw",
    "logmessage",
    "logentry",
    "event.original",
    "logfiledata",
    "full_message",
    "short_message",
    "body.stringvalue",
    "body",
    "attributes.message",
];
/// What stands beside it: of these, one is enough to tell that a table holds texts of logs.
const BESIDE_TEXT: &[&str] = &[
    "@timestamp",
    "timestamp",
    "time",
    "ts",
    "stream",
    "@logstream",
    "logstreamname",
    "logname",
    "ingestiontime",
    "__realtime_timestamp",
    "timegenerated",
    "_time",
    "_messagetime",
    "date",
    "timeunixnano",
    "observedtimeunixnano",
    "attributes.timestamp",
];
/// Whose text it is. All of these that a record has name its stream.
pub(super) const STREAM: &[&str] = &[
    super::tagged::TAG,
    "@log",
    "@logstream",
    "logstreamname",
    "logstream",
    "logname",
    "resource.labels.database_id",
    "stream",
    "container_id",
    "kubernetes.pod_name",
    "kubernetes.pod.name",
    "kubernetes.container_name",
    "labels.instance",
    "log.file.path",
    "_systemd_unit",
    "_hostname",
    "host.name",
    "attributes.host",
    "host",
    "source",
];
/// When it was written.
pub(super) const TIME: &[&str] = &[
    "@timestamp",
    "timestamp",
    "time",
    "ts",
    "__realtime_timestamp",
    "timegenerated",
    "_time",
    "date",
    "timeunixnano",
    "attributes.timestamp",
];
