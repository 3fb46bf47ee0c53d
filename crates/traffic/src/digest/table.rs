//! A digest for a terminal: what was covered, then the classes that took the most time.

use std::fmt::Write as _;

use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::digest::class_stats::ClassStats;
use crate::digest::group::read_key;
use crate::digest::lines::Source;
use sql;

/// What is left of a long name.
const NAME_CHARACTERS: usize = 40;

impl Digest {
    /// The `top` classes of the largest sums of response times; `width` is that of the terminal in characters.
    #[must_use]
    pub fn table(&self, source: &Source, top: usize, width: usize) -> String {
        let totals = self.totals();
        let mut out = String::new();
        let _ = writeln!(out, "Inputs   {}", clean(source.inputs.join(", ").as_bytes(), width.max(40)));
        let _ = writeln!(out, "Coverage {}", coverage_line(&source.coverage));
        for place in source.coverage.places.iter().take(3) {
            let input = clean(place.input.as_bytes(), NAME_CHARACTERS);
            let reason = clean(place.reason.as_bytes(), 200);
            let at = match (place.item, place.offset) {
                (0, 0) => String::new(),
                (item, offset) => format!(", item {item} at byte {offset}"),
            };
            let _ = writeln!(out, "         {input}{at}: {reason}");
        }
        let span_s = self.span_ns().map_or(0.0, |(start_ns, end_ns)| (end_ns - start_ns) as f64 / 1e9);
        let _ = writeln!(
            out,
            "Counted  {} events in {} classes over {}, {} of response time, {} errors{}\n",
            self.events,
            self.classes.len(),
            seconds(span_s),
            seconds(totals.response.sum_ns as f64 / 1e9),
            failed(&totals),
            if self.filtered > 0 {
                format!("; {} left out by filters", self.filtered)
            } else {
                String::new()
            },
        );
        let _ = writeln!(
            out,
            "{:>4}  {:34} {:>9} {:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>6} {:>7}  what",
            "rank", "id", "time", "share", "calls", "mean", "p50", "p95", "p99", "V/M", "errors"
        );
        let mut classes: Vec<_> = self.classes().map(|(key, stats)| (Some(key), stats)).collect();
        classes.extend(self.others.as_deref().map(|others| (None, others)));
        // The others come last, however much they took.
        classes.sort_unstable_by(|a, b| {
            (a.0.is_none(), b.1.response.sum_ns, b.1.count)
                .cmp(&(b.0.is_none(), a.1.response.sum_ns, a.1.count))
                .then_with(|| a.0.cmp(&b.0))
        });
        for (rank, (key, stats)) in (1..).zip(classes.iter().take(top)) {
            self.write_class(&mut out, rank, *key, stats, totals.response.sum_ns, width);
        }
        if classes.len() > top {
            let _ = writeln!(out, "      and {} more", classes.len() - top);
        }
        out
    }

    fn write_class(
        &self,
        out: &mut String,
        rank: usize,
        key: Option<&[u8]>,
        stats: &ClassStats,
        all_ns: u128,
        width: usize,
    ) {
        let (parts, fingerprint) =
            key.map_or_else(Default::default, |key| read_key(&self.options.group, key));
        let id = fingerprint.map_or_else(|| "-".to_owned(), |found| sql::class_id(self.options.mode, found));
        let mut what =
            if key.is_none() { "all classes that found no room ".to_owned() } else { String::new() };
        for (dimension, value) in parts {
            let _ = write!(what, "{}={} ", dimension.name(), clean(value, NAME_CHARACTERS));
        }
        if let Some(fingerprint) = fingerprint {
            what.push_str(&clean(fingerprint, width));
        }
        let response = &stats.response;
        let share = if all_ns > 0 { response.sum_ns as f64 / all_ns as f64 } else { 0.0 };
        let percentile = |share| {
            response.percentile_ns(share).map_or_else(|| "-".to_owned(), |value| seconds(value as f64 / 1e9))
        };
        let mean = match response.count {
            0 => "-".to_owned(),
            count => seconds(response.sum_ns as f64 / count as f64 / 1e9),
        };
        let line = format!(
            "{rank:>4}  {id:34} {:>9} {:>6} {:>10} {mean:>9} {:>9} {:>9} {:>9} {:>6.2} {:>7}  {what}",
            seconds(response.sum_ns as f64 / 1e9),
            format!("{:.1}%", share * 100.0),
            stats.count,
            percentile(0.5),
            percentile(0.95),
            percentile(0.99),
            response.variance_to_mean_s(),
            failed(stats),
        );
        let cut: String = line.chars().take(width).collect();
        let _ = writeln!(out, "{}", cut.trim_end());
    }
}

/// How many failed, where the source says it of any.
fn failed(stats: &ClassStats) -> String {
    if stats.unjudged == stats.count && stats.count > 0 { "?".to_owned() } else { stats.failed.to_string() }
}

/// What was read and what could not be: only what there is.
fn coverage_line(coverage: &Coverage) -> String {
    let mut line = format!("{} events", coverage.events);
    if coverage.bytes > 0 {
        let _ = write!(line, " in {:.1} MB", coverage.bytes as f64 / 1e6);
    }
    let rest = [
        (coverage.damaged, "damaged"),
        (coverage.skipped_bytes, "bytes skipped"),
        (coverage.sampled_events, "of a sampled log"),
        (coverage.represented_events, "of all statements that these stand for"),
        (coverage.sessions, "sessions"),
        (coverage.tls_sessions, "of them encrypted"),
        (coverage.midstream_sessions, "of them joined in mid-stream"),
        (coverage.unknown_statements, "executions of unknown statements"),
        (coverage.unanswered, "unanswered"),
        (coverage.dropped_packets, "packets dropped"),
        (coverage.cut_packets, "packets cut"),
        (coverage.gaps, "gaps"),
        (coverage.other_packets, "packets of others"),
    ];
    for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(line, ", {count} {what}");
    }
    line
}

/// A length of time with three digits and its unit.
fn seconds(value_s: f64) -> String {
    let (value, unit) = match value_s {
        value if value >= 1.0 => (value, "s"),
        value if value >= 1e-3 => (value * 1e3, "ms"),
        value if value >= 1e-6 => (value * 1e6, "us"),
        value => (value * 1e9, "ns"),
    };
    let decimals = if value >= 100.0 || value == 0.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {unit}")
}

/// Text of a stranger for a terminal: nothing that moves the cursor or reverses a line, and no longer than asked.
fn clean(text: &[u8], characters: usize) -> String {
    let is_hidden = |letter: char| {
        letter.is_control()
            || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
    };
    let whole = String::from_utf8_lossy(&text[..text.len().min(characters.saturating_mul(4))]).into_owned();
    whole.chars().take(characters).map(|letter| if is_hidden(letter) { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::{clean, seconds};
    use crate::digest::lines::Source;
    use crate::digest::{Digest, DigestOptions};
    use crate::event::{Command, Event};

    #[test]
    fn times_have_three_digits() {
        let texts = [0.0, 3e-9, 1.25e-6, 0.0123, 1.5, 12_345.0].map(seconds);
        assert_eq!(texts, ["0 ns", "3.00 ns", "1.25 us", "12.3 ms", "1.50 s", "12345 s"]);
    }

    #[test]
    fn a_terminal_gets_no_control_characters() {
        assert_eq!(clean(b"a\x1b[31mb\xff\n", 10), "a\u{fffd}[31mb\u{fffd}\u{fffd}");
        assert_eq!(clean("é\u{202e}x".as_bytes(), 2), "é\u{fffd}");
        let mut digest = Digest::new(&DigestOptions::default());
        let mut event = Event::new(1_700_000_000_000_000_000, 1, Command::Query);
        (event.text, event.response_ns) = (b"SELECT \x1b]0;x\x07 FROM t", Some(1_000_000));
        digest.count(&event);
        let table = digest.table(&Source::default(), 10, 160);
        assert!(table.contains("1.00 ms") && table.contains("100.0%"), "{table}");
        assert!(table.chars().all(|letter| letter == '\n' || !letter.is_control()), "{table}");
    }
}
