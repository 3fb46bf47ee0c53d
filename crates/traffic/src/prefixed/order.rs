//! What comes first in a text: the oldest, or the newest.

use crate::slow_log::is_header_line;

/// What comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Oldest,
    /// The newest line.
    Lines,
    /// The newest event, whose own lines are in their order.
    Events,
    /// The newest event, or the newest line: nothing tells which.
    Unclear,
    /// Any: lines were mixed.
    Mixed,
}

impl Order {
    pub(super) fn is_turned(self) -> bool {
        !matches!(self, Order::Oldest | Order::Mixed)
    }
}

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
}
