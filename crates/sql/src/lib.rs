//! SQL as far as traffic needs it: literals, fingerprints, tables, what writes, passwords.

mod anonymise;
mod classes;
pub mod command;
mod comments;
mod definition;
mod finder;
mod fold;
mod functions;
mod inner;
mod kept;
mod kill;
pub mod lexer;
mod literals;
mod names;
mod order;
mod places;
mod pseudonyms;
mod pt;
pub mod readings;
mod redact;
mod shapes;
mod statements;
mod strict;
mod tables;
mod uses;
mod words;

pub use anonymise::{anonymise, anonymise_name};
pub use functions::{Varying, varying};
pub use kept::kept_placeholders;
pub use kill::{Ending, Kill, Manner, ending, has_kill, mentions_kill, runs_other_text};
pub use order::{Order, Scheme};
pub use redact::{is_redacted, redact};
pub use shapes::Shapes;
pub use statements::{is_dynamic, is_execute_immediate, is_read_only, verb};
pub use tables::tables;
pub use uses::{rename_used, used_database};

/// Whose classes: our own, or percona-toolkit's for those who have a history of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Mode {
    /// A lexer's work: one class whatever the spaces, comments and lengths of lists; no literal is left.
    #[default]
    Strict,
    /// Strict ones with folded names: what a program made up in a name is a value.
    #[value(skip)]
    Folded,
    /// pt-query-digest's, byte by byte, with what it leaves of literals.
    Pt,
}

/// Replaces what `out` holds by the fingerprint of `text`: the statement without its literals. `is_cut` says that the text
/// may end before its statement does: then less of it is certain.
pub fn fingerprint(mode: Mode, text: &[u8], is_cut: bool, out: &mut Vec<u8>) {
    fingerprint_of_shape(mode, text, is_cut, out);
}

/// As `fingerprint`; true where any text of its shape (`Shapes`) has the same one.
pub fn fingerprint_of_shape(mode: Mode, text: &[u8], is_cut: bool, out: &mut Vec<u8>) -> bool {
    match mode {
        Mode::Strict => strict::fingerprint(text, is_cut, out),
        Mode::Folded => {
            let is_plain = strict::fingerprint(text, is_cut, out);
            if let Some(folded) = folded(out) {
                *out = folded;
            }
            is_plain
        }
        Mode::Pt => {
            pt::fingerprint(text, out);
            // It leaves a string without an end as it is, and with it the password that it may be.
            let mut shown = Vec::new();
            if memchr::memchr2(b'\'', b'"', out).is_some() && redact(text, &mut shown) {
                pt::fingerprint(&shown, out);
            }
            false
        }
    }
}

/// The folded fingerprint of a strict one; `None` if it is the same.
#[must_use]
pub fn folded(strict: &[u8]) -> Option<Vec<u8>> {
    let (mut folded, mut out) = (Vec::new(), Vec::new());
    fold::fold(strict, &mut folded).then(|| {
        // Unions of tables that are now the same.
        strict::fingerprint(&folded, false, &mut out);
        out
    })
}

/// The name of a fingerprint's class: 16 hex digits (xxh3 with seed 0, never to change), or pt-query-digest's query
/// id (MD5, 32 upper-case hex digits).
#[must_use]
pub fn class_id(mode: Mode, fingerprint: &[u8]) -> String {
    match mode {
        Mode::Strict | Mode::Folded => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(fingerprint)),
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
            fingerprint(mode, text, false, &mut out);
            assert!(!String::from_utf8_lossy(&out).to_lowercase().contains("bobsecret"), "{mode:?}");
        }
        // What is no password stays as the other tool has it.
        let mut out = Vec::new();
        fingerprint(Mode::Pt, b"select 'a", false, &mut out);
        assert_eq!(out, b"select 'a");
    }
}
