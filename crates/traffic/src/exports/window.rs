//! Texts put in the order in which they were written: clouds give them as they were stored, or the newest first.

use super::streams::Streams;
use crate::coverage::Coverage;
use crate::event::Sink;

/// So many texts, or bytes of them, are put in order; Logs Insights gives no more at once.
const MOST_TEXTS: usize = 10_000;
const MOST_BYTES: usize = 32 << 20;

/// Holds texts until what comes can no longer be older.
#[derive(Default)]
pub(super) struct Window {
    held: Vec<Held>,
    bytes: usize,
    count: u64,
    last_ns: u64,
    /// How often a text was newer than the one before, and how often older.
    steps: (u64, u64),
    /// The time of the newest text that was given.
    given_ns: u64,
    late: u64,
    is_backwards: bool,
}

struct Held {
    time_ns: u64,
    /// The order in which they came.
    number: u64,
    stream: Box<[u8]>,
    text: Box<[u8]>,
}

impl Window {
    /// Takes a text of a moment (0 where that is not known).
    pub(super) fn push(
        &mut self,
        time_ns: u64,
        stream: &[u8],
        text: &[u8],
        streams: &mut Streams<'_>,
        sink: &mut dyn Sink,
    ) -> anyhow::Result<()> {
        // What has no time of its own belongs to what came before it.
        let time_ns = if time_ns == 0 { self.last_ns } else { time_ns };
        self.steps.0 += u64::from(time_ns > self.last_ns && self.count > 0);
        self.steps.1 += u64::from(time_ns < self.last_ns);
        self.last_ns = time_ns;
        self.count += 1;
        self.bytes += text.len();
        self.held.push(Held { time_ns, number: self.count, stream: stream.into(), text: text.into() });
        if self.held.len() >= MOST_TEXTS || self.bytes >= MOST_BYTES {
            self.give(self.held.len() / 2, streams, sink)?;
        }
        Ok(())
    }

    /// Gives everything: nothing more is waited for.
    pub(super) fn end(&mut self, streams: &mut Streams<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        self.give(0, streams, sink)
    }

    /// What is to be said of the order.
    pub(super) fn note(&self, name: &str, coverage: &mut Coverage) {
        if self.is_backwards {
            coverage.note(
                name,
                "its texts are the newest first, and too many to be turned round: databases are not known where a log \
                 says them only once; sort by @timestamp asc",
            );
        } else if self.late > 0 {
            let texts = if self.late == 1 { "1 text was" } else { &format!("{} texts were", self.late) };
            coverage.note(name, format!("{texts} too far out of order to be put back"));
        }
    }

    /// Gives the oldest, all but so many.
    fn give(&mut self, kept: usize, streams: &mut Streams<'_>, sink: &mut dyn Sink) -> anyhow::Result<()> {
        let is_backwards = self.steps.1 > self.steps.0;
        if is_backwards && (kept > 0 || self.is_backwards) {
            // They cannot be turned round without all of them. Each is read for itself: what a log says once would be
            // said by the wrong one.
            self.is_backwards = true;
            for held in std::mem::take(&mut self.held).iter().rev() {
                streams.push(&held.stream, &held.text, true, sink)?;
                streams.end_one(&held.stream, sink)?;
            }
            self.bytes = 0;
            return Ok(());
        }
        // Of one moment, the newest are first as well.
        self.held.sort_unstable_by_key(|held| {
            (held.time_ns, if is_backwards { u64::MAX - held.number } else { held.number })
        });
        let count = self.held.len() - kept;
        for held in self.held.drain(..count) {
            self.late += u64::from(held.time_ns < self.given_ns);
            self.given_ns = self.given_ns.max(held.time_ns);
            self.bytes -= held.text.len();
            streams.push(&held.stream, &held.text, true, sink)?;
        }
        Ok(())
    }
}
