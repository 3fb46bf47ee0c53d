//! Lines that come with the newest first, as queries of log stores give them.

use std::io::{self, Read};

use anyhow::bail;

use crate::slow_log::is_header_line;
use base::error::AgentError;

/// The whole text is kept to be turned round.
const MOST_BYTES: usize = 128 << 20;

/// Whether the line of an account comes behind that of a duration, with nothing but lines of a header between them. These
/// lines have no prefixes.
pub(super) fn is_reversed<'l>(lines: impl Iterator<Item = &'l [u8]>) -> bool {
    let mut has_duration = false;
    for line in lines {
        let begins = |key: &[u8]| line.strip_prefix(b"# ").is_some_and(|rest| rest.starts_with(key));
        if begins(b"User@Host: ") {
            return has_duration;
        }
        if !line.starts_with(b"# ") || begins(b"Time: ") {
            has_duration = false;
        } else if begins(b"Query_time: ") && is_header_line(line) {
            has_duration = true;
        }
    }
    false
}

/// All lines, the last one first.
pub(super) fn turned(mut input: impl Read, name: &str) -> anyhow::Result<io::Cursor<Vec<u8>>> {
    let mut text = Vec::new();
    input.by_ref().take(MOST_BYTES as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MOST_BYTES {
        bail!(AgentError::Named(format!(
            "{name} has its newest lines first, and is too long to be turned round here: `tac FILE | headrace digest -`"
        )));
    }
    // Of the last line, which comes first, the end may lack.
    let has_end = text.ends_with(b"\n");
    let mut out = Vec::with_capacity(text.len() + 1);
    for line in text.strip_suffix(b"\n").unwrap_or(&text).rsplit(|byte| *byte == b'\n') {
        out.extend_from_slice(line);
        out.push(b'\n');
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
    fn the_order_is_told_by_one_header() {
        for (text, expected) in [
            (
                "select 1;\nSET timestamp=1;\n# Query_time: 1  Lock_time: 0\n# User@Host: a[a] @ b []\n# Time: 1\n",
                true,
            ),
            ("# Rows_affected: 0\n# Query_time: 1\n# Thread_id: 3\n# User@Host: a[a] @ b []\n", true),
            ("# User@Host: a[a] @ b []\n# Query_time: 1\nselect 1;\n# User@Host: a[a] @ b []\n", false),
            ("# Query_time: 1\nSET timestamp=1;\nselect 1;\n# User@Host: a[a] @ b []\n", false),
            ("# Query_time: 1\n# Time: 070131 12:00:00\n# User@Host: a[a] @ b []\n", false),
            ("", false),
        ] {
            assert_eq!(is_reversed(text.lines().map(str::as_bytes)), expected, "{text}");
        }
    }

    #[test]
    fn lines_are_turned_round() {
        for (text, expected) in [("a\nb\n\nc\n", "c\n\nb\na\n"), ("a\nb", "b\na"), ("", ""), ("\n", "\n")] {
            assert_eq!(turned(text.as_bytes(), "x").unwrap().into_inner(), expected.as_bytes(), "{text:?}");
        }
    }
}
