//! Turns the results of the threads into the final lines.

use serde_json::{Map, Value, json};

use super::classes::Class;
use super::dispatch::Counts;
use super::kills::Kills;
use super::queue::Budget;
use super::refusals::Refusal;
use super::stats::{ReplayStats, class_lines};
use crate::recording::Position;
use base::histogram::Sparse;
use engine::lines::{ThreadEnd, summary};

/// Above it a reader should know that the recorded timing was not kept.
const WARN_LAG_NS: u64 = 1_000_000;

/// What makes a replay invalid, beside the driver's own lateness.
pub struct Verdict {
    /// The largest p99 of the schedule lag, whatever its cause.
    pub max_lag_ns: Option<u64>,
    pub is_checked: bool,
    /// The account has a database of its own.
    pub has_database: bool,
    /// As fast as possible there is no schedule to be behind.
    pub has_schedule: bool,
    /// What makes sessions late besides a slower server: the speed, or waiting for other sessions' commits.
    pub hurries: Option<String>,
    /// When the recording began, and where the server's binary log stood then.
    pub began_ns: u64,
    pub position: Option<Position>,
}

/// Of all threads.
#[derive(Default)]
pub struct Results {
    lag: Sparse,
    threads: Vec<ReplayStats>,
}

/// Sums over the threads.
struct Totals {
    prepared_late: u64,
    unknown_statements: u64,
    too_long: u64,
    sessions_broken: u64,
    sessions_killed: u64,
    unanswered: u64,
    kills: Kills,
}

impl Totals {
    fn of(threads: &[ReplayStats], counts: &Counts) -> Self {
        let mut kills = counts.kills;
        threads.iter().for_each(|stats| kills.add(&stats.kills));
        let total = |value: fn(&ReplayStats) -> u64| threads.iter().map(value).sum();
        Self {
            prepared_late: total(|stats| stats.prepared_late),
            unknown_statements: total(|stats| stats.unknown_statements),
            too_long: total(|stats| stats.too_long),
            sessions_broken: total(|stats| stats.sessions_broken),
            sessions_killed: total(|stats| stats.sessions_killed),
            unanswered: total(|stats| stats.unanswered),
            kills,
        }
    }
}

impl Results {
    pub fn add(&mut self, end: &ThreadEnd, stats: ReplayStats) {
        self.lag.add(&end.whole.lag);
        self.threads.push(stats);
    }

    /// What the line `end` says beside what the driver says, and the lines of the classes.
    pub fn finish(
        self,
        counts: &Counts,
        classes: &[Class],
        budget: &Budget,
        verdict: &Verdict,
        refusal: Option<&Refusal>,
    ) -> (Map<String, Value>, Vec<Value>) {
        let total = Totals::of(&self.threads, counts);
        let (invalid, warnings) = self.judge(&total, counts, budget, verdict);
        let mut replay = counts.to_json();
        replay["prepared_late"] = total.prepared_late.into();
        replay["skipped"]["unknown_statements"] = total.unknown_statements.into();
        replay["skipped"]["too_long"] = total.too_long.into();
        replay["skipped"]["kills"] = (total.kills.left_out() + total.kills.servers).into();
        replay["kills"] = total.kills.to_json();
        replay["sessions_broken"] = total.sessions_broken.into();
        replay["sessions_killed"] = total.sessions_killed.into();
        replay["unanswered"] = total.unanswered.into();
        replay["not_sent"] = budget.events().into();
        replay["max_queued_bytes"] = budget.largest().into();
        let (comparison, lines) = class_lines(self.threads, classes, verdict.is_checked);
        let mut invalid = invalid;
        if let Some(refusal) = refusal {
            invalid.insert(0, refusal.sentence());
        }
        if verdict.is_checked && counts.sent > 0 && comparison.compared == 0 {
            invalid.push("no answer was compared".to_owned());
        }
        let mut also = Map::new();
        if verdict.is_checked {
            also.insert(
                "comparison".to_owned(),
                json!({
                    "compared": comparison.compared,
                    "different": comparison.different,
                    "classes_different": comparison.classes_different,
                    "set_apart": comparison.set_apart,
                    "own_number": comparison.own_number,
                    "interrupted": comparison.interrupted,
                    "began_ns": verdict.began_ns,
                    "position": verdict.position,
                }),
            );
        }
        also.insert("refused".to_owned(), refusal.map(Refusal::to_json).into());
        also.insert("lag".to_owned(), summary(&self.lag));
        also.insert("replay".to_owned(), replay);
        also.insert("invalid".to_owned(), invalid.into());
        also.insert("warnings".to_owned(), warnings.into());
        (also, lines)
    }

    /// Why the replay is invalid, and what a reader should know of it.
    fn judge(
        &self,
        total: &Totals,
        counts: &Counts,
        budget: &Budget,
        verdict: &Verdict,
    ) -> (Vec<String>, Vec<String>) {
        let Totals { unknown_statements, too_long, sessions_broken, unanswered, .. } = *total;
        let (mut invalid, mut warnings) = (Vec::new(), Vec::new());
        if verdict.has_schedule {
            judge_lag(&self.lag, verdict, counts.has_whole_seconds(), &mut invalid, &mut warnings);
        }
        if sessions_broken > 0 {
            invalid.push(format!(
                "{sessions_broken} sessions lost their connection on the way, and with it their variables and \
                 transactions"
            ));
        }
        if unanswered > 0 {
            invalid.push(format!("{unanswered} statements were due while their session had no connection"));
        }
        if counts.sent == 0 {
            invalid.push("nothing was sent".to_owned());
        }
        if counts.damaged > 0 {
            let said =
                format!("damaged places of the recording: {}; what stood there was not sent", counts.damaged);
            // A damaged recording cannot prove equality.
            if verdict.is_checked { &mut invalid } else { &mut warnings }.push(said);
        }
        if counts.redacted > 0 {
            warnings.push(format!(
                "statements that were not sent because their passwords are not recorded: {}",
                counts.redacted
            ));
        }
        if unknown_statements > 0 {
            warnings.push(format!(
                "{unknown_statements} executions of statements whose text the recording does not have were left out"
            ));
        }
        if counts.qualified > 0 {
            warnings.push(format!(
                "{} statements name a database of --database-map themselves (as in shop.item) and were not sent: \
                 only the sessions' database and USE are mapped, so they would read and write the recorded one",
                counts.qualified
            ));
        }
        warnings.extend(total.kills.warning());
        if counts.without_database > 0 && !verdict.has_database {
            warnings.push(format!(
                "sessions that began before the recording, which does not know their database: {}; give \
                 --mysql-database",
                counts.without_database
            ));
        }
        if too_long > 0 {
            warnings.push(format!(
                "{too_long} statements are longer than this server's max_allowed_packet and were not sent"
            ));
        }
        if budget.excess() > 0 {
            warnings.push(format!(
                "sessions had to be given {:.0} MB of statements more than --memory has room for: each keeps the \
                 one that it waits for and the next",
                budget.excess() as f64 / 1e6
            ));
        }
        (invalid, warnings)
    }
}

/// The driver's own part of the lag is judged where its lateness is; the rest is the server's, unless the recording's
/// own times make sessions late.
fn judge_lag(
    lag: &Sparse,
    verdict: &Verdict,
    has_whole_seconds: bool,
    invalid: &mut Vec<String>,
    warnings: &mut Vec<String>,
) {
    let Some(p99_ns) = lag.percentile_ns(0.99) else { return };
    let ms = |ns: u64| ns as f64 / 1e6;
    let behind = format!("statements were sent p99 {:.2} ms after their time", ms(p99_ns));
    let coarse = "the recording's source wrote whole seconds, so what ran one after the other is due at once";
    let causes: Vec<&str> =
        verdict.hurries.as_deref().into_iter().chain(has_whole_seconds.then_some(coarse)).collect();
    let why = match causes.as_slice() {
        [] => "the server was slower than recorded".to_owned(),
        _ => format!("{}, or the server was slower", causes.join("; ")),
    };
    let why = format!("because the answer before was not there yet: {why}");
    match verdict.max_lag_ns {
        Some(limit_ns) if p99_ns > limit_ns => {
            invalid.push(format!("{behind} (limit {:.2} ms), {why}", ms(limit_ns)));
        }
        None if p99_ns > WARN_LAG_NS => warnings.push(format!("{behind}, {why}")),
        _ => {}
    }
}
