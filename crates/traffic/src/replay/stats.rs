//! What one thread found out about the classes: how long they took then and now, and how their answers differ.

use serde_json::{Value, json};

use super::classes::{Class, NONE};
use super::kills::{Kills, NO_SUCH_THREAD, is_interrupted};
use super::queue::{Expected, Item, Request};
use super::refusals::hint_of_statement;
use crate::event::Outcome;
use base::histogram::{Histogram, Sparse};
use engine::lines::summary;
use mysql::Error;
use mysql::answers::Answers;
use sql::Varying;

/// Examples of differences that are kept of each class.
const EXAMPLES: usize = 3;
/// Errors of a class that are kept apart.
const ERRORS: usize = 8;
/// An example shows so much of its statement, in bytes.
const SHOWN_TEXT: usize = 2_000;

/// The client libraries' own code for it.
const CONNECTION_LOST: u16 = 2013;
/// The servers' own for a request that is longer than `max_allowed_packet`.
const PACKET_TOO_LARGE: u16 = 1153;

/// How an answer may differ from the recorded one, the worst first.
const KINDS: [&str; 5] = ["error", "rows", "checksum", "affected", "warnings"];

/// What came back.
#[derive(Clone, Copy, Debug)]
pub struct Got {
    pub error: Option<u16>,
    pub rows: u64,
    pub affected: u64,
    pub warnings: Option<u16>,
    pub checksum: Option<u64>,
}

impl Got {
    pub fn of(answers: &Answers, error: Option<u16>) -> Self {
        Self {
            error,
            rows: answers.row_count(),
            affected: answers.affected_rows(),
            warnings: answers.warnings(),
            checksum: answers.checksum(),
        }
    }
}

#[derive(Default)]
pub struct ReplayStats {
    classes: Vec<Entry>,
    /// Prepared here because the recording began after they were.
    pub prepared_late: u64,
    /// Executions of a statement whose text is unknown.
    pub unknown_statements: u64,
    /// Statements that were due and never answered: their connection was lost, or could not be made.
    pub unanswered: u64,
    /// Statements that are longer than the server takes; none of them was sent.
    pub too_long: u64,
    /// Connections made again in the middle of a session: their variables and transactions are lost.
    pub sessions_broken: u64,
    /// Sessions whose connection a KILL ended, as recorded.
    pub sessions_killed: u64,
    pub kills: Kills,
}

#[derive(Default)]
struct Entry {
    count: u64,
    errors: u64,
    rows: u64,
    recorded: Histogram,
    service: Histogram,
    compared: u64,
    different: u64,
    /// Answers that a KILL ended, when recorded or here, and not both.
    interrupted: u64,
    kinds: [u64; KINDS.len()],
    examples: Vec<Example>,
    failures: Vec<Failures>,
}

/// Answers with one error that the recording does not have.
struct Failures {
    code: u16,
    /// Of the first of them.
    message: String,
    count: u64,
}

struct Example {
    kind: usize,
    value: Value,
}

/// A class of all threads together.
#[derive(Default)]
struct Sum {
    count: u64,
    errors: u64,
    rows: u64,
    recorded: Sparse,
    service: Sparse,
    compared: u64,
    different: u64,
    interrupted: u64,
    set_apart: u64,
    kinds: [u64; KINDS.len()],
    examples: Vec<Example>,
    failures: Vec<Failures>,
}

/// What the comparison came to, over all classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    pub compared: u64,
    pub different: u64,
    pub classes_different: u64,
    /// Differences that are no news: all of those below, and those of statements that ask for the clock, chance or the
    /// server itself.
    pub set_apart: u64,
    /// Of statements that ask for the number of their connection, and of those that a KILL met.
    pub own_number: u64,
    pub interrupted: u64,
}

impl ReplayStats {
    fn entry(&mut self, class: usize) -> &mut Entry {
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, Entry::default);
        }
        &mut self.classes[class]
    }

    /// A statement failed that had not failed so when it was recorded.
    pub fn unlike_recorded(&mut self, item: &Item, error: &Error) {
        let (Some(code), false) = (error.code(), item.class == NONE) else { return };
        let message = match error {
            Error::Server { message, .. } => message.as_str(),
            _ => "",
        };
        add_failures(&mut self.entry(item.class as usize).failures, code, message, 1);
    }

    /// No answer will come, because the connection is gone.
    pub fn lost(&mut self, item: &Item, is_checked: bool) {
        if item.class == NONE {
            return;
        }
        self.unanswered += 1;
        self.failed(item, CONNECTION_LOST, is_checked);
    }

    /// The server would refuse it for its length, so it was not sent.
    pub fn refused(&mut self, item: &Item, is_checked: bool) {
        self.too_long += 1;
        if item.class != NONE {
            self.failed(item, PACKET_TOO_LARGE, is_checked);
        }
    }

    fn failed(&mut self, item: &Item, code: u16, is_checked: bool) {
        let entry = self.entry(item.class as usize);
        entry.count += 1;
        entry.errors += 1;
        // If the recorded client did not wait for the answer either, the expected answer is unknown.
        if is_checked && item.expected.outcome != Outcome::Unanswered {
            let got = Got { error: Some(code), rows: 0, affected: 0, warnings: None, checksum: None };
            let as_recorded = item.expected.outcome == Outcome::Error(code);
            entry.compared += 1;
            entry.differs(item, &got, [!as_recorded, false, false, false, false]);
        }
    }

    /// A KILL of this replay ended the connection, so no answer will come.
    pub fn killed(&mut self, item: &Item, is_checked: bool) {
        if item.class == NONE {
            return;
        }
        let entry = self.entry(item.class as usize);
        entry.count += 1;
        entry.errors += 1;
        if is_checked && item.expected.outcome != Outcome::Unanswered {
            let was_ended = matches!(item.expected.outcome, Outcome::Error(code)
                if is_interrupted(code) || code == CONNECTION_LOST);
            entry.compared += 1;
            entry.interrupted += u64::from(!was_ended);
        }
    }

    /// An answer is whole; `was_hit` if a KILL was sent to its session meanwhile.
    pub fn answered(&mut self, item: &Item, service_ns: u64, got: &Got, was_hit: bool, is_checked: bool) {
        if item.class == NONE {
            return;
        }
        let entry = self.entry(item.class as usize);
        // A class is what is executed; that its statement was prepared is another matter.
        if !matches!(item.request, Request::Prepare { .. }) {
            entry.count += 1;
            entry.rows += got.rows;
            entry.errors += u64::from(got.error.is_some());
            entry.service.record(service_ns);
            if let Some(response_ns) = item.expected.response_ns {
                entry.recorded.record(response_ns);
            }
        }
        if !is_checked {
            return;
        }
        let (is_compared, differences) = compare(&item.expected, got);
        entry.compared += u64::from(is_compared);
        if differences.contains(&true) && (was_hit || is_race_with_kill(item, got)) {
            entry.interrupted += 1;
        } else {
            entry.differs(item, got, differences);
        }
    }
}

/// Whether what a KILL met was sooner over than when it was recorded: the statement, or the connection.
fn is_race_with_kill(item: &Item, got: &Got) -> bool {
    match item.expected.outcome {
        Outcome::Error(code) if is_interrupted(code) => got.error.is_none(),
        Outcome::Ok => matches!(item.request, Request::Kill(_)) && got.error == Some(NO_SUCH_THREAD),
        _ => false,
    }
}

impl Entry {
    /// Counts and shows in what an answer differs, if it does.
    fn differs(&mut self, item: &Item, got: &Got, differences: [bool; KINDS.len()]) {
        let Some(worst) = differences.iter().position(|differs| *differs) else { return };
        self.different += 1;
        for (count, differs) in self.kinds.iter_mut().zip(differences) {
            *count += u64::from(differs);
        }
        if self.examples.len() < EXAMPLES || self.examples.iter().any(|example| example.kind > worst) {
            let value = example(item, worst, got);
            self.examples.push(Example { kind: worst, value });
            keep_worst(&mut self.examples);
        }
    }
}

fn add_failures(failures: &mut Vec<Failures>, code: u16, message: &str, count: u64) {
    if let Some(same) = failures.iter_mut().find(|same| same.code == code) {
        same.count += count;
    } else if failures.len() < ERRORS {
        failures.push(Failures { code, message: message.chars().take(SHOWN_TEXT).collect(), count });
    }
}

fn keep_worst(examples: &mut Vec<Example>) {
    examples.sort_by_key(|example| example.kind);
    examples.truncate(EXAMPLES);
}

/// Whether there was anything to compare, and which kinds differ.
fn compare(expected: &Expected, got: &Got) -> (bool, [bool; KINDS.len()]) {
    let mut differs = [false; KINDS.len()];
    let is_known = match expected.outcome {
        Outcome::Ok => {
            differs[0] = got.error.is_some();
            true
        }
        Outcome::Error(code) => {
            let are_interrupted = is_interrupted(code) && got.error.is_some_and(is_interrupted);
            differs[0] = got.error != Some(code) && !are_interrupted;
            true
        }
        // Nobody knows what would have come.
        Outcome::Unanswered => return (false, differs),
        Outcome::Unknown => false,
    };
    if got.error.is_some() || matches!(expected.outcome, Outcome::Error(_)) {
        return (is_known, differs);
    }
    let affected = expected.rows_affected;
    differs[1] = expected.rows_sent.is_some_and(|rows| rows != got.rows);
    differs[2] = matches!((expected.checksum, got.checksum), (Some(a), Some(b)) if a != b);
    differs[3] = affected.is_some_and(|rows| rows != got.affected);
    differs[4] = matches!((expected.warnings, got.warnings), (Some(a), Some(b)) if a != u64::from(b));
    let is_known =
        is_known || expected.rows_sent.is_some() || expected.checksum.is_some() || affected.is_some();
    (is_known, differs)
}

fn example(item: &Item, kind: usize, got: &Got) -> Value {
    let text: &[u8] = match &item.request {
        Request::Query(text) => text,
        Request::Prepare { text, .. } | Request::Execute { text, .. } => text,
        Request::Kill(aim) => &aim.kill.to_sql(aim.kill.connection).into_bytes(),
        _ => b"",
    };
    let expected = &item.expected;
    json!({
        "differs": KINDS[kind],
        "recorded_ns": item.recorded_ns,
        "statement": shown(text),
        "recorded": {
            "error": match expected.outcome { Outcome::Error(code) => Some(code), _ => None },
            "rows": expected.rows_sent,
            "affected": expected.rows_affected,
            "warnings": expected.warnings,
            "checksum": expected.checksum.map(|sum| format!("{sum:016x}")),
        },
        "replayed": {
            "error": got.error,
            "rows": got.rows,
            "affected": got.affected,
            "warnings": got.warnings,
            "checksum": got.checksum.map(|sum| format!("{sum:016x}")),
        },
    })
}

/// A statement for people: without passwords, and not endless.
pub fn shown(text: &[u8]) -> String {
    let mut redacted = Vec::new();
    sql::redact(text, &mut redacted);
    let cut = &redacted[..redacted.len().min(SHOWN_TEXT)];
    let mut shown: String = String::from_utf8_lossy(cut)
        .chars()
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if cut.len() < redacted.len() {
        shown.push('…');
    }
    shown
}

/// The lines of all classes, those with most differences and then those with most time first.
pub fn class_lines(
    threads: Vec<ReplayStats>,
    classes: &[Class],
    is_checked: bool,
) -> (Comparison, Vec<Value>) {
    let mut sums: Vec<Sum> = classes.iter().map(|_| Sum::default()).collect();
    for stats in threads {
        for (sum, entry) in sums.iter_mut().zip(stats.classes) {
            sum.add(entry);
        }
    }
    let mut comparison = Comparison::default();
    let mut lines = Vec::new();
    for (mut sum, class) in sums.into_iter().zip(classes) {
        if sum.count == 0 && sum.different == 0 && sum.failures.is_empty() {
            continue;
        }
        if let Some(varying) = class.varying {
            // An error is one all the same.
            sum.set_apart = sum.different - sum.kinds[0];
            sum.different = sum.kinds[0];
            comparison.own_number += if varying == Varying::Connection { sum.set_apart } else { 0 };
        }
        sum.set_apart += sum.interrupted;
        comparison.interrupted += sum.interrupted;
        comparison.set_apart += sum.set_apart;
        comparison.compared += sum.compared;
        comparison.different += sum.different;
        comparison.classes_different += u64::from(sum.different > 0);
        let time_ns = sum.service.count() as f64 * sum.service.percentile_ns(0.5).unwrap_or(0) as f64;
        lines.push((sum.different, time_ns, sum.line(class, is_checked)));
    }
    lines.sort_by(|a, b| b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)));
    (comparison, lines.into_iter().map(|(_, _, line)| line).collect())
}

fn varying_name(varying: Varying) -> &'static str {
    match varying {
        Varying::Connection => "connection",
        Varying::Moment => "moment",
    }
}

impl Sum {
    fn add(&mut self, mut entry: Entry) {
        self.count += entry.count;
        self.errors += entry.errors;
        self.rows += entry.rows;
        self.recorded.add(&entry.recorded.take());
        self.service.add(&entry.service.take());
        self.compared += entry.compared;
        self.different += entry.different;
        self.interrupted += entry.interrupted;
        for (sum, count) in self.kinds.iter_mut().zip(entry.kinds) {
            *sum += count;
        }
        for Failures { code, message, count } in entry.failures {
            add_failures(&mut self.failures, code, &message, count);
        }
        self.examples.append(&mut entry.examples);
        keep_worst(&mut self.examples);
    }

    fn line(self, class: &Class, is_checked: bool) -> Value {
        let mut line = json!({
            "kind": "class",
            "class": class.id,
            "fingerprint": shown(&class.fingerprint),
            "count": self.count,
            "errors": self.errors,
            "rows": self.rows,
            "recorded": summary(&self.recorded),
            "service": summary(&self.service),
        });
        let mut failures = self.failures;
        failures.sort_by_key(|one| std::cmp::Reverse(one.count));
        line["failures"] = failures
            .iter()
            .map(|one| {
                json!({"code": one.code, "message": one.message, "count": one.count, "hint": hint_of_statement(one.code)})
            })
            .collect();
        if is_checked {
            line["compared"] = self.compared.into();
            line["different"] = self.different.into();
            line["set_apart"] = self.set_apart.into();
            line["interrupted"] = self.interrupted.into();
            line["varies_by"] = class.varying.map(varying_name).into();
            for (kind, count) in KINDS.iter().zip(self.kinds) {
                line[format!("different_{kind}")] = count.into();
            }
            line["examples"] = self.examples.into_iter().map(|example| example.value).collect();
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::classes::Class;
    use crate::replay::order::Step;

    fn item(outcome: Outcome) -> Item {
        Item {
            at_ns: 0,
            recorded_ns: 0,
            number: 0,
            request: Request::Query(b"SELECT 1".as_slice().into()),
            operation: 0,
            class: 0,
            expected: Expected { outcome, rows_sent: Some(1), ..Expected::NOTHING },
            step: Step::default(),
            size: 0,
        }
    }

    fn got(error: Option<u16>, rows: u64) -> Got {
        Got { error, rows, affected: 0, warnings: None, checksum: None }
    }

    /// Compared, different, and set apart because of a KILL.
    fn sums(varying: Option<Varying>, tell: impl Fn(&mut ReplayStats)) -> (u64, u64, u64, u64) {
        let mut stats = ReplayStats::default();
        tell(&mut stats);
        let class = Class { id: String::new(), fingerprint: Vec::new(), varying };
        let comparison = class_lines(vec![stats], &[class], true).0;
        assert_eq!(comparison.set_apart, comparison.interrupted + comparison.own_number);
        (comparison.compared, comparison.different, comparison.interrupted, comparison.own_number)
    }

    #[test]
    fn what_a_kill_met_is_compared_as_far_as_it_can_be() {
        let answered = |outcome, got: Got, was_hit| {
            sums(None, |stats| stats.answered(&item(outcome), 1, &got, was_hit, true))
        };
        assert_eq!(answered(Outcome::Error(1317), got(Some(1317), 0), true), (1, 0, 0, 0));
        assert_eq!(answered(Outcome::Error(1317), got(Some(1927), 0), true), (1, 0, 0, 0));
        // It was sooner over here, or the KILL came sooner.
        assert_eq!(answered(Outcome::Error(1317), got(None, 1), false), (1, 0, 1, 0));
        assert_eq!(answered(Outcome::Ok, got(Some(1317), 0), true), (1, 0, 1, 0));
        assert_eq!(answered(Outcome::Ok, got(None, 0), true), (1, 0, 1, 0));
        // Nobody of ours did that.
        assert_eq!(answered(Outcome::Ok, got(Some(1317), 0), false), (1, 1, 0, 0));
        assert_eq!(answered(Outcome::Error(1317), got(Some(1064), 0), false), (1, 1, 0, 0));
        let killed = |outcome| sums(None, |stats| stats.killed(&item(outcome), true));
        assert_eq!(killed(Outcome::Unanswered), (0, 0, 0, 0));
        assert_eq!(killed(Outcome::Error(1927)), (1, 0, 0, 0));
        assert_eq!(killed(Outcome::Ok), (1, 0, 1, 0));
    }

    #[test]
    fn the_number_of_a_connection_is_set_apart_by_its_name() {
        let tell =
            |stats: &mut ReplayStats| stats.answered(&item(Outcome::Ok), 1, &got(None, 2), false, true);
        assert_eq!(sums(Some(Varying::Connection), tell), (1, 0, 0, 1));
    }
}
