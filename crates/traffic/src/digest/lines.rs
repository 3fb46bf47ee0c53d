//! A digest as JSON lines: `docs/reference/digest-format.md`.

use std::io::Write;

use serde_json::{Map, Value, json};

use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::digest::class_stats::{ClassStats, Sample, Times};
use crate::digest::group::read_key;
use crate::digest::measured::Summed;
use crate::digest::names::Names;
use crate::digest::pages::Pages;
use crate::digest::slices::width_ns;
use crate::measures::Measure;
use sql::{self, Mode};

const VERSION: u32 = 1;

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
        write_line(out, &self.header(source))?;
        write_line(out, &self.totals_line())?;
        self.write_heat(out)?;
        let mut classes: Vec<_> = self.classes().collect();
        classes.sort_unstable_by(|a, b| {
            b.1.response.sum_ns.cmp(&a.1.response.sum_ns).then_with(|| a.0.cmp(b.0))
        });
        for (key, stats) in &classes {
            write_line(out, &self.class_line(Some(key), stats))?;
        }
        if let Some(others) = &self.others {
            write_line(out, &self.class_line(None, others))?;
        }
        let count = classes.len() + usize::from(self.others.is_some());
        write_line(out, &json!({"type": "end", "classes": count}))?;
        Ok(out.flush()?)
    }

    /// As it is made: as a tree of values it would be the largest thing in memory.
    fn write_heat(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        write!(out, r#"{{"type":"heat","slices":["#)?;
        for (place, (number, pages)) in self.heat.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            write!(out, "{comma}[{},{}]", start_s(*number, self.heat_shift), buckets(pages))?;
        }
        out.write_all(b"]}\n")?;
        Ok(())
    }

    fn header(&self, source: &Source) -> Value {
        let selection = &self.options.selection;
        let filters: Vec<_> = selection.filters.iter().map(|filter| filter.source.as_str()).collect();
        let totals = self.totals();
        json!({
            "type": "digest",
            "version": VERSION,
            "measures": Measure::ALL.map(Measure::name),
            "mode": match self.options.mode { Mode::Strict => "strict", Mode::Pt => "pt" },
            "group": self.options.group.iter().map(|dimension| dimension.name()).collect::<Vec<_>>(),
            "inputs": source.inputs,
            "filter": {"since_ns": selection.since_ns, "until_ns": selection.until_ns, "filters": filters},
            "host": rustix::system::uname().nodename().to_string_lossy(),
            "agent": env!("CARGO_PKG_VERSION"),
            "first_ns": dated(totals.first_ns, &totals),
            "last_ns": dated(totals.last_ns, &totals),
            "slice_ns": width_ns(self.shift),
            "heat_slice_ns": width_ns(self.heat_shift),
            "coverage": source.coverage,
            "events": self.events,
            "filtered": self.filtered,
            "undated": self.undated,
            "others": self.others.as_ref().map_or(0, |others| others.count),
        })
    }

    fn totals_line(&mut self) -> Value {
        let totals = self.totals();
        let [users, hosts, databases] = self.everybody.names();
        let mut line = Map::new();
        line.insert("type".to_owned(), "totals".into());
        put_counts(&mut line, &totals);
        put_names(&mut line, [users, hosts, databases]);
        line.into()
    }

    fn class_line(&self, key: Option<&[u8]>, stats: &ClassStats) -> Value {
        let (parts, fingerprint) =
            key.map_or_else(Default::default, |key| read_key(&self.options.group, key));
        let id = fingerprint.map(|fingerprint| sql::class_id(self.options.mode, fingerprint));
        let mut values = Map::new();
        if let Some(id) = &id {
            values.insert("class".to_owned(), id.as_str().into());
        }
        for (dimension, value) in parts {
            values.insert(dimension.name().to_owned(), text(value));
        }
        let tables = fingerprint.map(sql::tables).unwrap_or_default();
        let mut line = Map::new();
        line.insert("type".to_owned(), "class".into());
        line.insert("id".to_owned(), id.into());
        line.insert("key".to_owned(), if key.is_some() { values.into() } else { Value::Null });
        line.insert("is_others".to_owned(), key.is_none().into());
        line.insert("fingerprint".to_owned(), fingerprint.map_or(Value::Null, text));
        line.insert("verb".to_owned(), fingerprint.map_or(Value::Null, |found| text(sql::verb(found))));
        line.insert("tables".to_owned(), tables.iter().map(|table| text(table)).collect());
        put_counts(&mut line, stats);
        let slices = stats.slices.iter().map(|(number, slice)| {
            json!([start_s(*number, self.shift), slice.count, slice.sum_ns, slice.max_ns, slice.failed])
        });
        line.insert("slices".to_owned(), slices.collect());
        put_names(&mut line, [&stats.users, &stats.hosts, &stats.databases]);
        line.insert("sample".to_owned(), stats.sample.as_deref().map_or(Value::Null, sample));
        line.into()
    }
}

fn write_line(out: &mut dyn Write, line: &Value) -> anyhow::Result<()> {
    // With the kind of the failed write: a reader that is gone is no error.
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    Ok(())
}

fn put_counts(line: &mut Map<String, Value>, stats: &ClassStats) {
    let mut errors: Map<_, _> =
        stats.errors.iter().map(|(number, count)| (number.to_string(), Value::from(count))).collect();
    if stats.errors.other > 0 {
        errors.insert("other".to_owned(), stats.errors.other.into());
    }
    let response = &stats.response;
    let extreme = |value: u64| if response.count > 0 { Value::from(value) } else { Value::Null };
    let fields = [
        ("count", stats.count.into()),
        ("timed", response.count.into()),
        ("errors", errors.into()),
        ("failed", stats.failed.into()),
        ("unanswered", stats.unanswered.into()),
        ("unjudged", stats.unjudged.into()),
        ("response_sum_ns", wide(response.sum_ns)),
        ("response_sum_squares", response.sum_squares.to_string().into()),
        ("response_min_ns", extreme(response.min_ns)),
        ("response_max_ns", extreme(response.max_ns)),
        ("buckets", buckets(&response.pages)),
        ("first_byte", stats.first_byte.as_deref().map_or(Value::Null, first_byte)),
    ];
    line.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    for measure in Measure::ALL {
        let value = stats.measures.get(measure).as_ref().map_or(Value::Null, measured);
        line.insert(measure.name().to_owned(), value);
    }
    line.insert("first_ns".to_owned(), dated(stats.first_ns, stats));
    line.insert("last_ns".to_owned(), dated(stats.last_ns, stats));
}

fn measured(summed: &Summed) -> Value {
    let buckets: Value = summed.buckets.iter().map(|(bucket, count)| json!([bucket, count])).collect();
    json!({
        "known": summed.known,
        "sum": summed.sum,
        "sum_squares": summed.sum_squares.to_string(),
        "min": summed.min,
        "max": summed.max,
        "buckets": buckets,
    })
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
fn wide(sum_ns: u128) -> Value {
    u64::try_from(sum_ns).unwrap_or(u64::MAX).into()
}

fn dated(time_ns: u64, stats: &ClassStats) -> Value {
    if stats.last_ns > 0 { time_ns.into() } else { Value::Null }
}

fn put_names(line: &mut Map<String, Value>, names: [&Names; 3]) {
    for (field, names) in ["users", "hosts", "databases"].into_iter().zip(names) {
        let listed = names
            .by_count()
            .into_iter()
            .map(|entry| json!([text(entry.name.text()), entry.count, entry.sum_ns, entry.name.hash()]));
        line.insert(field.to_owned(), listed.collect());
    }
}

fn sample(sample: &Sample) -> Value {
    let mut line = json!({
        "text": text(&sample.text),
        "text_bytes": sample.text_bytes,
        "is_cut": sample.is_cut,
        "is_redacted": sample.is_redacted,
        "start_ns": sample.start_ns,
        "response_ns": sample.response_ns.0,
        "session": sample.session,
        "user": text(&sample.user),
        "host": text(&sample.host),
        "database": text(&sample.database),
        "command": sample.command,
        "error": sample.error,
    });
    for (measure, value) in sample.measures.iter() {
        line[measure.name()] = value.into();
    }
    line
}

fn buckets(pages: &Pages) -> Value {
    pages.iter().map(|(bucket, count)| json!([bucket, count])).collect()
}

fn start_s(number: u64, shift: u32) -> u64 {
    number << shift
}

fn text(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}
