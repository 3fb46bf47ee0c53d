//! Lines and events that come with the newest first, as queries and exports of log stores give them.

use std::io::{self, Read};

use anyhow::bail;

use super::form::Form;
use super::order::Order;
use super::returns::Ends;
use crate::event::Event;
use crate::general_log;
use crate::pieces::{Pieces, is_of_banner};
use crate::slow_log::{self, is_header_line};
use base::error::AgentError;

/// The whole text is kept to be turned round.
const MOST_BYTES: usize = 128 << 20;
/// A log of which less time goes by is in no order that its times tell.
const LEAST_NS: u64 = 1_000_000_000;

/// The order of a log with this beginning, by the times of its events.
pub(super) fn order(form: &Form, head: &[u8]) -> Order {
    if form.changed.ends != Ends::Usual {
        return Order::Oldest;
    }
    let mut text = Vec::with_capacity(head.len());
    for line in head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let mut line = line.to_vec();
        form.take_off(&mut line);
        text.extend_from_slice(&line);
    }
    let is_slow = text.split_inclusive(|byte| *byte == b'\n').any(is_header_line);
    let mut times = Vec::new();
    let mut keep = |event: &Event<'_>| {
        times.push(event.start_ns + event.response_ns.unwrap_or(0));
        Ok(())
    };
    let read = if is_slow {
        slow_log::Parser::new("").feed(&text, true, &mut keep)
    } else {
        general_log::Parser::new("", &general_log::Options::default()).feed(&text, true, &mut keep)
    };
    // Reading from memory does not fail.
    if read.is_err() || !is_falling(&times) {
        return Order::Oldest;
    }
    if !is_slow && are_lines_turned(&text) { Order::Lines } else { Order::Events }
}

/// Whether the lines of statements of a general log come behind those that they continue, or before them: by what only a
/// statement that goes on ends with.
fn are_lines_turned(text: &[u8]) -> bool {
    let (mut turned, mut own) = (0, 0);
    let mut before: Option<&[u8]> = None;
    let mut is_run = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        if line.is_empty() || is_of_banner(line) {
            continue;
        }
        if !general_log::is_event(&[line, b"\n"].concat()) {
            is_run = true;
            continue;
        }
        if std::mem::take(&mut is_run) {
            // Between two events: what belongs to the one above, or to the one below.
            let goes_on = |line: &[u8]| CONTINUED.iter().any(|end| ends_with(line, end));
            let may_go_on =
                |line: &[u8]| [&b"Query"[..], b"Prepare", b"Execute"].iter().any(|name| has(line, name));
            own += u32::from(before.is_some_and(goes_on)) + u32::from(!may_go_on(line));
            turned += u32::from(goes_on(line)) + u32::from(!before.is_some_and(may_go_on));
        }
        before = Some(line);
    }
    turned > own
}

/// Ends of a line behind which a statement goes on.
const CONTINUED: [&[u8]; 12] =
    [b",", b"(", b"=", b"select", b"from", b"where", b"and", b"or", b"on", b"set", b"values", b"by"];

fn ends_with(line: &[u8], end: &[u8]) -> bool {
    line.len() >= end.len() && line[line.len() - end.len()..].eq_ignore_ascii_case(end)
}

fn has(line: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(line, part).is_some()
}

/// Whether most of what changes gets less. A clock that was set back once is no order.
fn is_falling(times: &[u64]) -> bool {
    let times: Vec<u64> = times.iter().copied().filter(|time| *time > 0).collect();
    let steps =
        |is_step: fn(u64, u64) -> bool| times.windows(2).filter(|pair| is_step(pair[0], pair[1])).count();
    let (down, up) = (steps(|one, next| next < one), steps(|one, next| next > one));
    let is_all = down + 1 == times.len();
    let (Some(first), Some(last)) = (times.first(), times.last()) else { return false };
    down > up && (down > 1 || is_all) && *first >= last + LEAST_NS
}

/// Where the events of a log begin, asked of one line after the other.
pub(super) struct Begins<'f> {
    form: &'f Form,
    order: Order,
    /// What came before is whole.
    is_ended: bool,
    is_in_banner: bool,
}

impl<'f> Begins<'f> {
    pub(super) fn new(form: &'f Form, order: Order) -> Self {
        Self { form, order, is_ended: true, is_in_banner: false }
    }

    fn begins(&mut self, line: &[u8]) -> bool {
        if self.order == Order::Lines {
            return true;
        }
        let mut line = line.to_vec();
        self.form.take_off(&mut line);
        let trimmed = line.trim_ascii_end();
        if trimmed.is_empty() {
            return false;
        }
        let was_in_banner = std::mem::replace(&mut self.is_in_banner, is_of_banner(trimmed));
        let is_first = if self.is_in_banner {
            !was_in_banner
        } else {
            self.is_ended && slow_log::begins_event(&line) || general_log::is_event(&line)
        };
        self.is_ended = trimmed.ends_with(b";") || self.is_in_banner;
        is_first
    }
}

/// The whole text, the last part first.
pub(super) fn turned(
    mut input: impl Read,
    name: &str,
    mut parts: Begins<'_>,
) -> anyhow::Result<io::Cursor<Vec<u8>>> {
    let mut text = Vec::new();
    input.by_ref().take(MOST_BYTES as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MOST_BYTES {
        let (what, how) = match parts.order {
            Order::Lines => ("lines", "`tac FILE | headrace digest -`"),
            _ => ("events", "export it with the oldest first, or in pieces of less than 128 MiB"),
        };
        bail!(AgentError::Named(format!(
            "{name} has its newest {what} first, and is too long to be turned round here: {how}"
        )));
    }
    // Of the last line, which comes first, the end may lack.
    let has_end = text.is_empty() || text.ends_with(b"\n");
    if !has_end {
        text.push(b'\n');
    }
    let (mut begins, mut at) = (Vec::new(), 0);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if parts.begins(line) || at == 0 {
            begins.push(at);
        }
        at += line.len();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut end = text.len();
    for begin in begins.into_iter().rev() {
        out.extend_from_slice(&text[begin..end]);
        end = begin;
    }
    if !has_end {
        out.pop();
    }
    Ok(io::Cursor::new(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_turned_round() {
        for (text, expected) in [("a\nb\n\nc\n", "c\n\nb\na\n"), ("a\nb", "b\na"), ("", ""), ("\n", "\n")] {
            let form = Form::default();
            let turned = turned(text.as_bytes(), "x", Begins::new(&form, Order::Lines)).unwrap();
            assert_eq!(turned.into_inner(), expected.as_bytes(), "{text:?}");
        }
    }

    #[test]
    fn times_that_fall_are_an_order() {
        const S: u64 = 1_000_000_000;
        for (times, expected) in [
            (&[3 * S, 2 * S, S][..], true),
            (&[3 * S, S], true),
            (&[9 * S, 9 * S, 7 * S, 0, 8 * S, 5 * S, 5 * S], true),
            // One clock that was set back, and what ended at nearly the same time.
            (&[9 * S, 9 * S, 7 * S, 7 * S], false),
            (&[3 * S + 2, 3 * S + 1, 3 * S], false),
            (&[S, 2 * S, 3 * S], false),
            (&[], false),
            (&[5 * S], false),
        ] {
            assert_eq!(is_falling(times), expected, "{times:?}");
        }
    }

    #[test]
    fn events_keep_their_lines_and_banners_are_apart() {
        let event = |n: u32| {
            format!(
                "# Time: 2026-03-01T10:00:0{n}Z\n# User@Host: a[a] @ b []\n# Query_time: 1\nselect {n}\nfrom t;\n"
            )
        };
        let banner = "mysqld, Version: 8.0.36. started with:\nTcp port: 3306\nTime  Id Command    Argument\n";
        let text = event(2) + &event(1) + "\n" + banner + &event(0);
        let form = Form::default();
        let turned = turned(text.as_bytes(), "x", Begins::new(&form, Order::Events)).unwrap().into_inner();
        let expected = event(0) + banner + &event(1) + "\n" + &event(2);
        assert_eq!(String::from_utf8(turned).unwrap(), expected);
    }

    #[test]
    fn lines_of_a_general_log_belong_to_the_event_that_they_continue() {
        let time = "2026-03-01T10:00:00Z\t    3 ";
        let events = [
            format!("{time}Connect\ta@b on shop\n"),
            format!("{time}Query\tselect a,\n  b\n"),
            format!("{time}Query\tselect 1\n"),
            format!("{time}Quit\t\n"),
        ];
        let newest_first: String = events.iter().rev().map(String::as_str).collect();
        let lines: String = events.concat().lines().rev().map(|line| format!("{line}\n")).collect();
        assert!(!are_lines_turned(newest_first.as_bytes()) && are_lines_turned(lines.as_bytes()));
    }
}
