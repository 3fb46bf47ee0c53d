//! Classes that a server summed up itself: counts, sums and extremes, and what it says of percentiles.
//!
//! Nothing is made up for them: no histogram, no sum of squares, no slice of time. A class that has such calls has no
//! percentiles but those that the server gave for the whole class.

use std::cmp::Reverse;

use crate::digest::class_stats::Sample;
use crate::digest::group::{Dimension, fingerprint};
use crate::digest::slices::second_of;
use crate::digest::{Digest, sample_of};
use crate::event::{Command, Event, Summary};
use base::error::AgentError;

impl Digest {
    /// Adds one row of a server's summary.
    pub(super) fn summarise(&mut self, summary: &Summary<'_>) -> anyhow::Result<()> {
        self.check_that_sums_can_answer()?;
        let (sample_text, sample_ns, took_ns) = summary.sample.unwrap_or((b"", 0, None));
        let mut event = Event::new(sample_ns, 0, Command::Query);
        event.database = summary.database;
        event.response_ns = took_ns;
        // The statement itself names its class best; the server's digest quotes every name.
        event.text = if sample_text.is_empty() { summary.text.unwrap_or_default() } else { sample_text };
        if !self.options.selection.accepts(&event) {
            self.filtered += summary.count;
            return Ok(());
        }
        let has_class = match summary.text {
            Some(_) => {
                fingerprint(self.options.mode, &event, &mut self.fingerprint);
                if sample_text.is_empty() && !summary.cut_id.is_empty() {
                    // Two statements may begin alike.
                    self.fingerprint.extend_from_slice(b" /* digest ");
                    self.fingerprint.extend_from_slice(summary.cut_id);
                    self.fingerprint.extend_from_slice(b" */");
                }
                if !self.key_of(&event) {
                    self.filtered += summary.count;
                    return Ok(());
                }
                true
            }
            None if self.options.selection.needs_class() => {
                self.filtered += summary.count;
                return Ok(());
            }
            None => false,
        };
        self.events += summary.count;
        if summary.first_ns > 0 && summary.last_ns > 0 {
            self.widen(second_of(summary.first_ns), second_of(summary.last_ns.max(summary.first_ns)));
        } else {
            self.undated += summary.count;
        }
        let sender = self.everybody.count_many(&event, summary.count, summary.sum_ns);
        let is_example = self.options.keeps_samples && !sample_text.is_empty() && summary.text.is_some();
        let example =
            is_example.then(|| Box::new(Sample { response_ns: Reverse(took_ns), ..sample_of(&event) }));
        let key = has_class.then_some(&*self.key);
        self.classes.count_summary(key, summary, &sender.database, example);
        Ok(())
    }

    /// # Errors
    /// What was asked is not in sums: an answer would be made up.
    fn check_that_sums_can_answer(&self) -> anyhow::Result<()> {
        let unknown = |dimension: &&Dimension| {
            matches!(dimension, Dimension::User | Dimension::Host | Dimension::Session)
        };
        let asked = match self.options.group.iter().find(unknown) {
            Some(dimension) => Some(format!("--group {}", dimension.name())),
            None => self.options.selection.needs_calls().map(str::to_owned),
        };
        let Some(asked) = asked else { return Ok(()) };
        let reason = format!(
            "{asked} cannot be answered: this is a server's summary by statement, which does not know single calls, \
             their users, hosts and times; take a slow log or a capture for that"
        );
        Err(AgentError::Named(reason).into())
    }
}
