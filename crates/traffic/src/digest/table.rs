//! A digest for a terminal: what was covered, then the classes that took the most time.

use std::fmt::Write as _;

use crate::coverage::Coverage;
use crate::digest::Digest;
use crate::digest::class_stats::ClassStats;
use crate::digest::group::read_key;
use crate::digest::lines::Source;
use crate::digest::listing::Listing;
use sql;

/// What is left of a long name.
const NAME_CHARACTERS: usize = 40;

/// So much of the time in no class of its own is said before everything else.
const WORTH_SAYING: f64 = 0.05;

impl Digest {
    /// The `top` classes of the largest sums of response times; `width` is that of the terminal in characters.
    #[must_use]
    pub fn table(&mut self, source: &Source, top: usize, width: usize) -> String {
        let listing = self.listing();
        match &listing.digest.transactions {
            Some(transactions) => listing.changes_table(transactions, source, top, width),
            None => listing.table(source, top, width),
        }
    }
}

impl Listing<'_> {
    fn table(&self, source: &Source, top: usize, width: usize) -> String {
        let totals = &self.totals;
        let mut out = self.beyond_line();
        write_source(&mut out, source, width);
        let span_s = self.span_ns().map_or(0.0, |(start_ns, end_ns)| (end_ns - start_ns) as f64 / 1e9);
        let _ = writeln!(
            out,
            "Counted  {} events in {} classes over {}, {} of response time, {} errors{}\n",
            self.digest.events,
            self.listed.len(),
            seconds(span_s),
            seconds(totals.response.sum_ns as f64 / 1e9),
            failed(totals),
            if self.digest.filtered > 0 {
                format!("; {} left out by filters", self.digest.filtered)
            } else {
                String::new()
            },
        );
        let (alike, fingerprints) = self.digest.alike_but_for_names();
        if alike * 2 > fingerprints {
            let _ = writeln!(
                out,
                "Names    {alike} of {fingerprints} classes differ from another only in digits or hashes of table names; \
                 --fold-names counts them together\n"
            );
        }
        let _ = writeln!(
            out,
            "{:>4}  {:34} {:>9} {:>6} {:>10} {:>9} {:>9} {:>9} {:>9} {:>6} {:>7}  what",
            "rank", "id", "time", "share", "calls", "mean", "p50", "p95", "p99", "V/M", "errors"
        );
        for (rank, (key, class)) in (1..).zip(self.listed.iter().take(top)) {
            self.write_class(&mut out, rank, Some(key), &class.stats(self.shift), width);
        }
        // The others come last, however much they took.
        let shown = self.listed.len().min(top);
        if let Some(others) = self.others.as_deref().filter(|_| shown < top) {
            self.write_class(&mut out, shown + 1, None, others, width);
        }
        let count = self.listed.len() + usize::from(self.others.is_some());
        if count > top {
            let _ = writeln!(out, "      and {} more", count - top);
        }
        out
    }

    /// What is in no class of its own, where that is much.
    pub(super) fn beyond_line(&self) -> String {
        let share = self.others_share();
        if share <= WORTH_SAYING {
            return String::new();
        }
        let most = seconds(self.unlisted_most_ns as f64 / 1e9);
        let classes = self.other_classes.map_or_else(|| "more".to_owned(), |count| count.to_string());
        format!(
            "{:.1}% of the time is in {classes} classes that are not listed, each with at most {most}: --classes N lists \
             more, --group table,user merges them\n",
            share * 100.0
        )
    }

    fn write_class(
        &self,
        out: &mut String,
        rank: usize,
        key: Option<&[u8]>,
        stats: &ClassStats,
        width: usize,
    ) {
        let (parts, fingerprint) =
            key.map_or_else(Default::default, |key| read_key(&self.digest.options.group, key));
        let id = fingerprint
            .map_or_else(|| "-".to_owned(), |found| sql::class_id(self.digest.options.mode, found));
        let mut what =
            if key.is_none() { "all classes that are not listed ".to_owned() } else { String::new() };
        for (dimension, value) in parts {
            let _ = write!(what, "{}={} ", dimension.name(), clean(value, NAME_CHARACTERS));
        }
        if let Some(fingerprint) = fingerprint {
            what.push_str(&clean(fingerprint, width));
        }
        let response = &stats.response;
        let all_ns = self.totals.response.sum_ns;
        let share = if all_ns > 0 { response.sum_ns as f64 / all_ns as f64 } else { 0.0 };
        let percentile = |share| {
            stats.percentile_ns(share).map_or_else(|| "-".to_owned(), |value| seconds(value as f64 / 1e9))
        };
        let mean = match response.count {
            0 => "-".to_owned(),
            count => seconds(response.sum_ns as f64 / count as f64 / 1e9),
        };
        let spread =
            stats.variance_to_mean_s().map_or_else(|| "-".to_owned(), |spread| format!("{spread:.2}"));
        let line = format!(
            "{rank:>4}  {id:34} {:>9} {:>6} {:>10} {mean:>9} {:>9} {:>9} {:>9} {spread:>6} {:>7}  {what}",
            seconds(response.sum_ns as f64 / 1e9),
            format!("{:.1}%", share * 100.0),
            stats.count,
            percentile(0.5),
            percentile(0.95),
            percentile(0.99),
            failed(stats),
        );
        let cut: String = line.chars().take(width).collect();
        let _ = writeln!(out, "{}", cut.trim_end());
    }
}

/// What was read, and what was wrong with it.
pub(super) fn write_source(out: &mut String, source: &Source, width: usize) {
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
    if coverage.throttled_events > 0 {
        let took = seconds(coverage.throttled_ns as f64 / 1e9);
        let _ = write!(line, ", {} statements ({took}) that the server left out", coverage.throttled_events);
    }
    let rest = [
        (coverage.damaged, "damaged"),
        (coverage.skipped_bytes, "bytes skipped"),
        (coverage.sampled_events, "of a sampled log"),
        (coverage.summarised_events, "summed up by the server"),
        (coverage.represented_events, "of all statements that these stand for"),
        (coverage.unread_times, "times that cannot be read"),
        (coverage.unread_accounts, "accounts that cannot be read"),
        (coverage.unknown_databases, "of an unknown database"),
        (coverage.unterminated_events, "statements without their ;"),
        (coverage.touched_lines, "changed header lines"),
        (coverage.other_lines, "lines of other logs"),
        (coverage.repeated_events, "that count twice"),
        (coverage.sessions, "sessions"),
        (coverage.tls_sessions, "of them encrypted"),
        (coverage.midstream_sessions, "of them joined in mid-stream"),
        (coverage.joined_sessions, "of them joined in mid-stream and named by the server"),
        (coverage.one_sided_sessions, "of them captured in one direction only"),
        (coverage.unknown_statements, "executions of unknown statements"),
        (coverage.unbound_executions, "executions without their values"),
        (coverage.unanswered, "unanswered"),
        (coverage.dropped_packets, "packets dropped"),
        (coverage.cut_packets, "packets cut"),
        (coverage.gaps, "gaps"),
        (coverage.other_packets, "packets of others"),
    ];
    for (count, what) in rest.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(line, ", {count} {what}");
    }
    let named = [
        (&coverage.foreign_sessions, "sessions of other protocols"),
        (&coverage.proxied_sessions, "sessions announced by a balancer"),
        (&coverage.tunnels, "packets in tunnels"),
        (&coverage.other_kinds, "packets of others are"),
    ];
    for (names, what) in named.into_iter().filter(|(names, _)| names.total() > 0) {
        let _ = write!(line, "; {what}: {}", names.listed());
    }
    line
}

/// A length of time with three digits and its unit.
pub(super) fn seconds(value_s: f64) -> String {
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
pub(super) fn clean(text: &[u8], characters: usize) -> String {
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
