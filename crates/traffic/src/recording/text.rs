//! What of a statement is kept.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use super::window::Window;
use crate::event::Event;
use sql::{self, Mode};

/// Prepared statements of which it is remembered whether a parameter is a password.
const MAX_REMEMBERED: usize = 10_000;
/// Stands for a parameter in a statement whose passwords are looked for.
const PROBE: &[u8] = b"'headrace probe'";

/// Takes from events what a recording must not have.
pub struct Cleaner {
    with_literals: bool,
    text: Vec<u8>,
    fingerprint: Vec<u8>,
    takes_password: HashMap<u64, bool>,
}

impl Cleaner {
    pub fn new(with_literals: bool) -> Self {
        Cleaner { with_literals, text: Vec::new(), fingerprint: Vec::new(), takes_password: HashMap::new() }
    }

    /// Puts the event into the window without what is not kept; true where a password was removed.
    pub fn clean(&mut self, event: &Event<'_>, window: &mut Window) -> bool {
        if event.text.is_empty() && event.parameters.is_empty() && event.checksum.is_none() {
            window.push(event);
            return false;
        }
        // A value cut in two is not a string any more: nothing of such a statement is sure but its class.
        if self.with_literals && !event.is_cut {
            return self.clean_literals(event, window);
        }
        self.fingerprint.clear();
        if event.command.has_text() {
            sql::fingerprint(Mode::Strict, event.text, event.is_cut, &mut self.fingerprint);
        }
        // Rows of few possible values could be found by trying their checksums.
        window.push(&Event { text: &self.fingerprint, parameters: b"", checksum: None, ..event.clone() });
        false
    }

    fn clean_literals(&mut self, event: &Event<'_>, window: &mut Window) -> bool {
        if !event.command.has_text() {
            // What is there is not ours to understand, and so not to keep.
            window.push(&Event { text: b"", parameters: b"", ..event.clone() });
            return false;
        }
        let mut is_redacted = sql::redact(event.text, &mut self.text);
        let text = if is_redacted { &self.text[..] } else { event.text };
        let mut cleaned = Event { text, ..event.clone() };
        if !event.parameters.is_empty() && self.takes_password.len() >= MAX_REMEMBERED {
            self.takes_password.clear();
        }
        if !event.parameters.is_empty()
            && *self.takes_password.entry(xxh3_64(event.text)).or_insert_with(|| takes_password(event.text))
        {
            // Without its parameters it cannot be sent again.
            (cleaned.parameters, cleaned.is_cut) = (b"", true);
            is_redacted = true;
        }
        window.push(&cleaned);
        is_redacted
    }
}

/// Whether any parameter of a prepared statement stands where a password does.
fn takes_password(text: &[u8]) -> bool {
    let mut probe = Vec::with_capacity(text.len() * 2);
    for &byte in text {
        if byte == b'?' {
            probe.extend_from_slice(PROBE);
        } else {
            probe.push(byte);
        }
    }
    let mut redacted = Vec::new();
    let count = |text: &[u8]| memchr::memmem::find_iter(text, PROBE).count();
    sql::redact(&probe, &mut redacted) && count(&redacted) < count(&probe)
}

#[cfg(test)]
mod tests {
    use super::takes_password;

    #[test]
    fn a_parameter_may_be_a_password() {
        for text in [
            "ALTER USER app IDENTIFIED BY ?",
            "SET PASSWORD FOR app = ?",
            "update u set password = ? where id = ?",
            "insert into u (name, password) values (?, ?)",
        ] {
            assert!(takes_password(text.as_bytes()), "{text}");
        }
        for text in ["select c from sbtest1 where id = ?", "insert into t values (?, '?', ?)", "select '?'"] {
            assert!(!takes_password(text.as_bytes()), "{text}");
        }
    }
}
