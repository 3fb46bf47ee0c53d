//! Logs whose lines have something before them: what containers, syslog, mails, tickets and `grep` put there.
//!
//! The first line that is one of a log behind such a prefix tells how all lines begin: `form` peels known layers off it
//! (a container's name and a timestamp, say), or learns a common shape from the first two. `reading` takes the prefix off
//! each line and gives what is left to the reader of the log, for each container or host its own, so that lines of two
//! servers are never mixed. What was taken off is a note of the coverage.

mod characters;
mod form;
mod layers;
mod order;
mod pages;
mod reading;
mod returns;
mod reversed;
mod turned;

use std::io::{Cursor, Read};

pub use self::form::First;
pub(crate) use self::form::{Form, first as first_form};
use self::order::Order;
use self::reversed::Begins;
use crate::coverage::Coverage;
use crate::event::Sink;

/// What a text is, by its first line that tells, and perhaps the next one: only whole lines count, so that it does not
/// matter how it comes. `at_end`: nothing follows.
#[must_use]
pub fn first(head: &[u8], at_end: bool) -> Option<First> {
    form::first(head, at_end).map(|(first, _)| first)
}

/// Reads a log of which [`first`] said that its lines have prefixes; `head` was read already.
///
/// # Errors
/// Reading failed, or the sink refused an event.
pub fn read(
    head: Vec<u8>,
    input: impl Read,
    name: &str,
    follow: bool,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let mut form = told(&head).map(|(_, form)| form).unwrap_or_default();
    if !follow && form.order == Order::Oldest {
        form.order = reversed::order(&form, &head);
    }
    let input = Cursor::new(head).chain(input);
    if form.order.is_turned() {
        let turned = reversed::turned(input, name, Begins::new(&form, form.order))?;
        return reading::read(&form, turned, name, follow, sink);
    }
    reading::read(&form, input, name, follow, sink)
}

/// Whether a longer beginning of a log shows what its first line did not: that lines were changed, or that its newest events
/// come first. What a log says once of all that follow would be said of the wrong ones.
#[must_use]
pub fn is_changed(head: &[u8]) -> bool {
    told(head).is_some_and(|(first, form)| {
        first == First::Prefixed
            || form.order != Order::Oldest
            || reversed::order(&form, head) != Order::Oldest
    })
}

/// What a beginning tells of which nothing is to come.
fn told(head: &[u8]) -> Option<(First, Form)> {
    let (first, form) = form::first(head, true)?;
    match first {
        First::SlowLog => Some((first, form)),
        First::GeneralLog => {
            Some(form::of_general(head).map_or((first, form), |form| (First::Prefixed, form)))
        }
        First::Prefixed => Some((first, form.with_statements(head))),
    }
}

#[cfg(test)]
mod tests;
