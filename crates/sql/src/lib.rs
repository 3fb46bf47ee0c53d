//! SQL as far as traffic needs it: literals, fingerprints, tables, what writes, passwords.

mod anonymise;
mod classes;
pub mod command;
mod comments;
mod definition;
mod functions;
mod kept;
mod kill;
pub mod lexer;
mod literals;
mod order;
mod places;
mod pseudonyms;
mod pt;
pub mod readings;
mod redact;
mod statements;
mod strict;
mod tables;
mod uses;
mod words;

pub use anonymise::{anonymise, anonymise_string};
pub use functions::{Varying, varying};
pub use kept::kept_placeholders;
pub use kill::{Ending, Kill, Manner, ending, has_kill, mentions_kill, runs_other_text};
pub use order::{Order, Scheme};
pub use redact::{is_redacted, redact};
pub use statements::{is_dynamic, is_execute_immediate, is_read_only, verb};
pub use tables::tables;
pub use uses::{rename_used, used_database};

/// Whose classes: our own, or percona-toolkit's for those who have a history of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Mode {
    /// A lexer's work: one class whatever the spaces, comments and lengths of lists; no literal is left.
    #[default]
    Strict,
    /// pt-query-digest's, byte by byte, with what it leaves of literals.
    Pt,
}

/// Replaces what `out` holds by the fingerprint of `text`: the statement without its literals.
pub fn fingerprint(mode: Mode, text: &[u8], out: &mut Vec<u8>) {
    match mode {
        Mode::Strict => strict::fingerprint(text, out),
        Mode::Pt => {
            pt::fingerprint(text, out);
            // It leaves a string without an end as it is, and with it the password that it may be.
            let mut shown = Vec::new();
            if memchr::memchr2(b'\'', b'"', out).is_some() && redact(text, &mut shown) {
                pt::fingerprint(&shown, out);
            }
        }
    }
}

/// The name of a fingerprint's class: 16 hex digits (xxh3 with seed 0, never to change), or pt-query-digest's query
/// id (MD5, 32 upper-case hex digits).
#[must_use]
pub fn class_id(mode: Mode, fingerprint: &[u8]) -> String {
    match mode {
        Mode::Strict => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(fingerprint)),
        Mode::Pt => pt::query_id(fingerprint),
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, fingerprint};

    #[test]
    fn a_password_without_an_end_is_in_no_fingerprint() {
        let text = b"alter user bob@localhost identified by 'BobSecretJ;";
        for mode in [Mode::Strict, Mode::Pt] {
            let mut out = Vec::new();
            fingerprint(mode, text, &mut out);
            assert!(!String::from_utf8_lossy(&out).to_lowercase().contains("bobsecret"), "{mode:?}");
        }
        // What is no password stays as the other tool has it.
        let mut out = Vec::new();
        fingerprint(Mode::Pt, b"select 'a", &mut out);
        assert_eq!(out, b"select 'a");
    }
}
