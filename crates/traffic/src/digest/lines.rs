//! A digest as JSON lines: `docs/reference/digest-format.md`.

use std::io::Write;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::digest::class_stats::{ClassStats, Sample, Summarised, Times};
use crate::digest::group::{read_key, tables};
use crate::digest::listing::Listing;
use crate::digest::measured::Summed;
use crate::digest::names::Names;
use crate::digest::pages::Pages;
use crate::digest::parts::in_parts;
use crate::digest::slices::width_ns;
use crate::measures::Measure;
use sql::{self, Mode};

const VERSION: u32 = 1;
/// Classes of which a thread makes lines before they are written: more would be much memory.
const AT_ONCE: usize = 1024;

/// Where the events came from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    pub inputs: Vec<String>,
    pub coverage: Coverage,
}

impl Digest {
    /// Writes the whole digest.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_lines(&mut self, source: &Source, out: &mut dyn Write) -> anyhow::Result<()> {
        self.listing().write_lines(source, out)
    }
}

impl Listing<'_> {
    fn write_lines(&self, source: &Source, out: &mut dyn Write) -> anyhow::Result<()> {
        write_line(out, &self.header(source))?;
        let mut line = Line::new("totals");
        self.put_totals(&mut line);
        line.write(out)?;
        self.write_heat(out)?;
        if let Some(transactions) = &self.digest.transactions {
            write_line(out, &transactions.line())?;
        }
        let threads = self.digest.options.threads;
        for some in self.listed.chunks(AT_ONCE * threads.max(1)) {
            // Only their places are cut into parts: classes are read by many.
            let lines = in_parts(&mut some.to_vec(), threads, |some| {
                let mut line = Line { json: Vec::new() };
                for (key, class) in some {
                    line.start("class");
                    self.put_class(&mut line, Some(key), &class.stats(self.shift));
                    line.end();
                }
                line.json
            });
            lines.iter().try_for_each(|lines| out.write_all(lines))?;
        }
        if let Some(others) = &self.others {
            line.begin("class");
            self.put_class(&mut line, None, others);
            line.write(out)?;
        }
        let count = self.listed.len() + usize::from(self.others.is_some());
        write_line(out, &json!({"type": "end", "classes": count}))?;
        Ok(out.flush()?)
    }

    /// Slice by slice: all of them together would be the largest thing in memory.
    fn write_heat(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        let mut json = br#"{"type":"heat","slices":["#.to_vec();
        for (place, (number, pages)) in self.digest.heat.iter().enumerate() {
            if place > 0 {
                json.push(b',');
            }
            let slice = (start_s(*number, self.digest.heat_shift), Buckets(pages));
            serde_json::to_writer(&mut json, &slice).expect("memory takes all");
            out.write_all(&json)?;
            json.clear();
        }
        json.extend_from_slice(b"]}\n");
        Ok(out.write_all(&json)?)
    }

    fn header(&self, source: &Source) -> Value {
        let digest = self.digest;
        let selection = &digest.options.selection;
        let filters: Vec<_> = selection.filters.iter().map(|filter| filter.source.as_str()).collect();
        let totals = &self.totals;
        json!({
            "type": "digest",
            "version": VERSION,
            "measures": Measure::ALL.map(Measure::name),
            "mode": match digest.options.mode { Mode::Strict => "strict", Mode::Folded => "folded", Mode::Pt => "pt" },
            "group": digest.options.group.iter().map(|dimension| dimension.name()).collect::<Vec<_>>(),
            "inputs": source.inputs,
            "filter": {"since_ns": selection.since_ns, "until_ns": selection.until_ns, "filters": filters},
            "host": rustix::system::uname().nodename().to_string_lossy(),
            "agent": env!("CARGO_PKG_VERSION"),
            "first_ns": dated(totals.first_ns, totals),
            "last_ns": dated(totals.last_ns, totals),
            "slice_ns": width_ns(self.shift),
            "heat_slice_ns": width_ns(digest.heat_shift),
            "coverage": source.coverage,
            "events": digest.events,
            "filtered": digest.filtered,
            "undated": digest.undated,
            "others": self.others.as_ref().map_or(0, |others| others.count),
            "other_classes": self.other_classes,
            "unlisted_most_ns": self.unlisted_most_ns,
            "lost_most_ns": self.lost_most_ns,
        })
    }

    fn put_totals(&self, line: &mut Line) {
        let [users, hosts, databases] = &self.names;
        put_counts(line, &self.totals);
        put_names(line, [users, hosts, databases]);
    }

    fn put_class(&self, line: &mut Line, key: Option<&[u8]>, stats: &ClassStats) {
        let (parts, fingerprint) =
            key.map_or_else(Default::default, |key| read_key(&self.digest.options.group, key));
        let id = fingerprint.map(|fingerprint| sql::class_id(self.digest.options.mode, fingerprint));
        let mut values = Map::new();
        if let Some(id) = &id {
            values.insert("class".to_owned(), id.as_str().into());
        }
        for (dimension, value) in parts {
            values.insert(dimension.name().to_owned(), text(value));
        }
        line.put("id", &id);
        line.put("key", &key.is_some().then_some(values));
        line.put("is_others", &key.is_none());
        line.put("fingerprint", &fingerprint.map(Text));
        line.put("folded_id", &fingerprint.and_then(|fingerprint| self.digest.folded_id(fingerprint)));
        line.put("verb", &fingerprint.map(|found| Text(sql::verb(found))));
        let tables = fingerprint.map(tables).unwrap_or_default();
        line.list("tables", tables.iter().map(|table| Text(table)));
        put_counts(line, stats);
        let slices = stats.slices.iter().map(|(number, slice)| {
            (start_s(*number, self.shift), slice.count, slice.sum_ns, slice.max_ns, slice.failed)
        });
        line.list("slices", slices);
        put_names(line, [&stats.users, &stats.hosts, &stats.databases]);
        line.put("sample", &stats.sample.as_deref().map(OfSample));
    }
}

/// A line, written as its fields come: a tree of values of each class would cost more than all the counting.
struct Line {
    json: Vec<u8>,
}

impl Line {
    fn new(kind: &str) -> Self {
        let mut line = Self { json: Vec::new() };
        line.begin(kind);
        line
    }

    fn begin(&mut self, kind: &str) {
        self.json.clear();
        self.start(kind);
    }

    /// Begins a line behind those that are there.
    fn start(&mut self, kind: &str) {
        write!(self.json, r#"{{"type":"{kind}""#).expect("memory takes all");
    }

    fn name(&mut self, name: &str) {
        write!(self.json, r#","{name}":"#).expect("memory takes all");
    }

    /// A field; names need no escapes.
    fn put(&mut self, name: &str, value: &impl Serialize) {
        self.name(name);
        serde_json::to_writer(&mut self.json, value).expect("memory takes all");
    }

    fn list(&mut self, name: &str, values: impl Iterator<Item = impl Serialize>) {
        self.name(name);
        serde_json::Serializer::new(&mut self.json).collect_seq(values).expect("memory takes all");
    }

    fn end(&mut self) {
        self.json.extend_from_slice(b"}\n");
    }

    fn write(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        self.end();
        Ok(out.write_all(&self.json)?)
    }
}

/// A bucket's number and its count, for each that has one.
struct Buckets<'a>(&'a Pages);

impl Serialize for Buckets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter())
    }
}

/// Bytes as text; what is no UTF-8 is replaced.
struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&String::from_utf8_lossy(self.0))
    }
}

fn write_line(out: &mut dyn Write, line: &Value) -> anyhow::Result<()> {
    // With the kind of the failed write: a reader that is gone is no error.
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn put_counts(line: &mut Line, stats: &ClassStats) {
    let mut errors: Map<_, _> =
        stats.errors.iter().map(|(number, count)| (number.to_string(), Value::from(count))).collect();
    if stats.errors.other > 0 {
        errors.insert("other".to_owned(), stats.errors.other.into());
    }
    let response = &stats.response;
    let summarised = stats.summarised.as_deref();
    let extreme = |value: u64, is_lacking: bool| (response.count > 0 && !is_lacking).then_some(value);
    line.put("count", &stats.count);
    line.put("timed", &response.count);
    line.put("errors", &errors);
    line.put("failed", &stats.failed);
    line.put("unanswered", &stats.unanswered);
    line.put("unjudged", &stats.unjudged);
    line.put("response_sum_ns", &wide(response.sum_ns));
    line.put("response_sum_squares", &response.sum_squares.to_string());
    let is_lacking = |lacks: fn(&Summarised) -> bool| summarised.is_some_and(lacks);
    line.put("response_min_ns", &extreme(response.min_ns, is_lacking(|found| found.lacks_min)));
    line.put("response_max_ns", &extreme(response.max_ns, is_lacking(|found| found.lacks_max)));
    line.list("buckets", response.pages.iter());
    line.put("first_byte", &stats.first_byte.as_deref().map(first_byte));
    line.put("summarised", &summarised.map(by_server));
    for measure in Measure::ALL {
        line.put(measure.name(), &stats.measures.get(measure).as_ref().map(OfMeasure));
    }
    line.put("first_ns", &dated(stats.first_ns, stats));
    line.put("last_ns", &dated(stats.last_ns, stats));
}

fn by_server(summarised: &Summarised) -> Value {
    let [p95_ns, p99_ns, p999_ns] = summarised.quantiles_ns;
    json!({
        "calls": summarised.calls,
        "rows": summarised.rows,
        "p95_ns": p95_ns,
        "p99_ns": p99_ns,
        "p999_ns": p999_ns,
    })
}

struct OfMeasure<'a>(&'a Summed);

impl Serialize for OfMeasure<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let summed = self.0;
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("known", &summed.known)?;
        if summed.summed > 0 {
            // Of the calls that the server summed up nothing else is known, so of all together neither.
            fields.serialize_entry("summed", &summed.summed)?;
            fields.serialize_entry("sum", &summed.sum)?;
            fields.serialize_entry("max", &())?;
            return fields.end();
        }
        fields.serialize_entry("sum", &summed.sum)?;
        fields.serialize_entry("sum_squares", &summed.sum_squares.to_string())?;
        fields.serialize_entry("min", &summed.min)?;
        fields.serialize_entry("max", &summed.max)?;
        fields.serialize_entry("buckets", &summed.buckets)?;
        fields.end()
    }
}

fn first_byte(times: &Times) -> Value {
    json!({
        "count": times.count,
        "sum_ns": wide(times.sum_ns),
        "min_ns": times.min_ns,
        "max_ns": times.max_ns,
        "buckets": buckets(&times.pages),
    })
}

/// A sum of ns: past 2^64 (584 years of response time) it is said to be that.
pub(super) fn wide(sum_ns: u128) -> Value {
    u64::try_from(sum_ns).unwrap_or(u64::MAX).into()
}

fn dated(time_ns: u64, stats: &ClassStats) -> Option<u64> {
    (stats.last_ns > 0).then_some(time_ns)
}

fn put_names(line: &mut Line, names: [&Names; 3]) {
    for (field, names) in ["users", "hosts", "databases"].into_iter().zip(names) {
        let entries = names.by_count().into_iter();
        line.list(
            field,
            entries.map(|entry| (Text(entry.name.text()), entry.count, entry.sum_ns, entry.name.hash())),
        );
    }
}

struct OfSample<'a>(&'a Sample);

impl Serialize for OfSample<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sample = self.0;
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("text", &Text(&sample.text))?;
        fields.serialize_entry("text_bytes", &sample.text_bytes)?;
        fields.serialize_entry("is_cut", &sample.is_cut)?;
        fields.serialize_entry("is_redacted", &sample.is_redacted)?;
        fields.serialize_entry("start_ns", &sample.start_ns)?;
        fields.serialize_entry("response_ns", &sample.response_ns.0)?;
        fields.serialize_entry("session", &sample.session)?;
        fields.serialize_entry("user", &Text(&sample.user))?;
        fields.serialize_entry("host", &Text(&sample.host))?;
        fields.serialize_entry("database", &Text(&sample.database))?;
        fields.serialize_entry("command", &sample.command)?;
        fields.serialize_entry("error", &sample.error)?;
        for (measure, value) in sample.measures.iter() {
            fields.serialize_entry(measure.name(), &value)?;
        }
        fields.end()
    }
}

pub(super) fn buckets(pages: &Pages) -> Value {
    pages.iter().map(|(bucket, count)| json!([bucket, count])).collect()
}

fn start_s(number: u64, shift: u32) -> u64 {
    number << shift
}

pub(super) fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}
