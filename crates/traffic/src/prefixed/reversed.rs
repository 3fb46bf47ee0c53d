//! Lines and events that come with the newest first, as queries and exports of log stores give them.

use std::io::{self, Read};

use anyhow::bail;

use super::form::Form;
use super::order::Order;
use super::returns::Ends;
use super::turned::{self, Lines};
use crate::event::Event;
use crate::general_log;
use crate::pieces::{Pieces, is_of_banner};
use crate::slow_log::{self, is_header_line};
use base::error::AgentError;

/// The whole text is kept to be turned round.
const MOST_BYTES: usize = 128 << 20;
/// A log of which less time goes by is in no order that its times tell.
const LEAST_NS: u64 = 1_000_000_000;
/// Of the steps of a log in no order, at least one in so many goes far back.
const MIXED_SHARE: usize = 5;

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
    if read.is_err() {
        return Order::Oldest;
    }
    if !is_slow && is_mixed(&times) && has_continued(&text) {
        return Order::Mixed;
    }
    if !is_falling(&times) {
        return Order::Oldest;
    }
    if is_slow {
        return Order::Events;
    }
    match turned::lines(&text) {
        Lines::Own => Order::Events,
        Lines::Turned => Order::Lines,
        Lines::Unclear => Order::Unclear,
    }
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

/// Whether many of the times of a general log are before and many are behind the one above: somebody's program gave the lines
/// another order than that in which they were written. Sessions that end at the same time are no such.
fn is_mixed(times: &[u64]) -> bool {
    let far = |one: u64, next: u64| next > one + LEAST_NS;
    let count = |is_step: fn(u64, u64) -> (u64, u64)| {
        times
            .windows(2)
            .filter(|pair| {
                let (one, next) = is_step(pair[0], pair[1]);
                far(one, next)
            })
            .count()
    };
    let (up, down) = (count(|one, next| (one, next)), count(|one, next| (next, one)));
    let least = (times.len() / MIXED_SHARE).max(2);
    up >= least && down >= least
}

/// Whether a general log has statements of several lines.
fn has_continued(text: &[u8]) -> bool {
    let lines = text.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines
        .skip_while(|line| !general_log::is_event(line))
        .any(|line| !general_log::is_event(line) && !is_of_banner(line.trim_ascii_end()))
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
    fn times_in_no_order_are_told_from_clocks_and_from_merged_logs() {
        const S: u64 = 1_000_000_000;
        let times = |list: &[u64]| list.iter().map(|time| time * S).collect::<Vec<_>>();
        assert!(is_mixed(&times(&[9, 3, 7, 1, 8, 2, 6, 4])));
        for list in [
            &[1, 2, 3, 4, 5, 6][..],
            &[6, 5, 4, 3, 2, 1],
            &[1, 5, 9, 2, 6, 9, 9, 9, 9, 9],
            &[5, 5, 4, 5, 6, 6],
            &[],
        ] {
            assert!(!is_mixed(&times(list)), "{list:?}");
        }
    }
}
