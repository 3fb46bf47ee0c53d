//! `use db;` and `SET timestamp=1;` before a statement, as servers write them and as people and programs change them: in
//! either case, quoted, after comments, several on a line, or with other names of the same variable.

use memchr::{memchr, memmem};

use super::boundary::LINE_BYTES;
use super::values::{seconds, take_number};
use crate::pieces::without_return;

pub(super) const COMMAND: &[u8] = b"# administrator command: ";
const NS_PER_S: u64 = 1_000_000_000;
/// The most bytes of spaces and comments before a word.
const BEFORE_BYTES: usize = 256;

/// The name of a database. It has no memory of its own: nearly every header is made without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name<'a> {
    text: &'a [u8],
    /// It stood in backticks: its own are doubled there.
    is_quoted: bool,
}

impl Name<'_> {
    pub(super) fn put_onto(self, out: &mut Vec<u8>) {
        if !self.is_quoted {
            return out.extend_from_slice(self.text);
        }
        let mut bytes = self.text.iter();
        while let Some(byte) = bytes.next() {
            out.push(*byte);
            if *byte == b'`' {
                bytes.next();
            }
        }
    }

    pub(super) fn to_vec(self) -> Vec<u8> {
        let mut name = Vec::with_capacity(self.text.len());
        self.put_onto(&mut name);
        name
    }
}

/// What a text begins with.
pub(super) struct Found<'a, T> {
    pub(super) value: T,
    /// The text without its `;`, because it can be the statement itself.
    pub(super) text: &'a [u8],
    /// Where the rest begins: on the next line, or after it on the same line.
    pub(super) length: usize,
    /// It does not have the server's form.
    pub(super) is_touched: bool,
}

/// The line `SET timestamp=1700000000;`, which nearly every event has, in its usual form.
#[inline]
pub(super) fn plain(text: &[u8]) -> Option<(u64, &[u8])> {
    let line = text.get(..26)?;
    let digits = line.strip_prefix(b"SET timestamp=")?.strip_suffix(b";\n")?;
    let seconds = digits
        .iter()
        .try_fold(0_u64, |sum, byte| byte.is_ascii_digit().then(|| 10 * sum + u64::from(byte - b'0')))?;
    Some((seconds * NS_PER_S, line))
}

/// Whether a text begins with `use `, in the server's form or in a changed one.
pub(super) fn is_use(text: &[u8]) -> bool {
    text.starts_with(b"use ") || begins_with_word(text, b"use").is_some()
}

/// Whether a text begins with `SET`, in upper or lower case.
pub(super) fn is_set(text: &[u8]) -> bool {
    begins_with_word(text, b"set").is_some()
}

/// The name in a `use name;` at the beginning of a text. The outer `None`: more text is needed.
pub(super) fn used(text: &[u8], at_end: bool) -> Option<Option<Found<'_, Name<'_>>>> {
    let Some(begin) = begins_with_word(text, b"use") else {
        return may_become(text, b"use", at_end).map(|()| None);
    };
    if let Some(found) = quoted(text, at_end) {
        return Some(Some(found));
    }
    let Some(end) = use_length(text, at_end) else {
        // A statement like this, and a long one.
        return if text.len() > LINE_BYTES { Some(None) } else { None };
    };
    let line = without_return(&text[..end]);
    let next = (end + 1).min(text.len());
    // What stands behind a `;` is the name's own only where nothing else makes sense of it.
    let cut = memchr(b';', &line[begin..]).map(|at| begin + at);
    if let Some(at) = cut.filter(|at| at + 1 < line.len()) {
        let behind = skip_comments(&line[at + 1..]);
        let (is_end, is_more) = (behind.is_empty(), is_use(behind) || is_set(behind));
        if is_end || is_more {
            let length = if is_end { next } else { line.len() - behind.len() };
            let value = name(&line[begin..at]);
            return Some(Some(Found { value, text: &line[..at], length, is_touched: true }));
        }
    }
    let Some(inner) = line.strip_suffix(b";") else { return Some(None) };
    let value = name(&inner[begin..]);
    let is_touched = !text.starts_with(b"use ") || value.text.len() + begin != inner.len();
    Some(Some(Found { value, text: inner, length: next, is_touched }))
}

/// `` use `db`; ``, as MariaDB writes it since its releases of 2026.
fn quoted(text: &[u8], at_end: bool) -> Option<Found<'_, Name<'_>>> {
    let name = text.strip_prefix(b"use `")?;
    let end = quote_end(&name[..name.len().min(LINE_BYTES)]).filter(|end| *end > 0)?;
    let behind = name[end + 1..].strip_prefix(b";")?;
    let next = match behind {
        [] if at_end => 0,
        [b'\n', ..] => 1,
        [b'\r', b'\n', ..] => 2,
        _ => return None,
    };
    let length = text.len() - behind.len();
    let value = Name { text: &name[..end], is_quoted: true };
    Some(Found { value, text: &text[..length - 1], length: length + next, is_touched: false })
}

/// Where a name in backticks ends: at one that is not doubled.
fn quote_end(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr(b'`', &text[at..])?;
        if text.get(at + 1) != Some(&b'`') {
            return Some(at);
        }
        at += 2;
    }
}

/// The name in a `use` line, with or without `;`.
pub(super) fn name_of(line: &[u8]) -> Option<Name<'_>> {
    let begin = begins_with_word(line, b"use")?;
    let end = memchr(b';', &line[begin..])
        .filter(|at| skip_comments(&line[begin + at + 1..]).is_empty())
        .map_or(line.len(), |at| begin + at);
    Some(name(&line[begin..end]))
}

/// The timestamp set by a `SET` of the server at the beginning of a text, if it sets one. The outer `None`: more text is
/// needed.
pub(super) fn set(text: &[u8], at_end: bool) -> Option<Option<Found<'_, Option<u64>>>> {
    let Some(begin) = begins_with_word(text, b"set") else {
        return may_become(text, b"set", at_end).map(|()| None);
    };
    let (length, next) = match memchr(b'\n', text) {
        Some(length) => (length, length + 1),
        None if at_end => (text.len(), text.len()),
        None if text.len() > LINE_BYTES => return Some(None),
        None => return None,
    };
    let line = without_return(&text[..length]);
    let end = memchr(b';', line);
    let inner = &line[..end.unwrap_or(line.len())];
    let values = without_comment(inner.get(begin..).unwrap_or_default());
    let Some(value) = values_of(values.trim_ascii()) else { return Some(None) };
    let behind = end.map_or(&b""[..], |at| skip_comments(&line[at + 1..]));
    // The `;` lacks in some copies; what sets nothing that is looked for is the server's only with it.
    if end.is_none() && value.is_none() {
        return Some(None);
    }
    let length = if behind.is_empty() { next } else { line.len() - behind.len() };
    let is_plain = |name: &[u8]| text[begin..].starts_with(name);
    let is_plain = [&b"timestamp="[..], b"last_insert_id=", b"insert_id="].into_iter().any(is_plain);
    let is_touched = !text.starts_with(b"SET ") || !is_plain || end.is_none_or(|at| at + 1 < line.len());
    Some(Some(Found { value, text: inner, length, is_touched }))
}

/// What follows `# administrator command: `, with or without its mark, at the beginning of a text.
pub(super) fn command(text: &[u8]) -> Option<&[u8]> {
    if let Some(name) = text.strip_prefix(COMMAND) {
        return Some(name);
    }
    let marks = text.iter().take(8).take_while(|byte| matches!(byte, b'#' | b' ' | b'\t')).count();
    let (word, rest) = text[marks..].split_at_checked(COMMAND.len() - 3)?;
    let is_it = word.eq_ignore_ascii_case(&COMMAND[2..COMMAND.len() - 1])
        && matches!(rest.first(), Some(b' ' | b'\t'));
    is_it.then(|| rest.trim_ascii_start())
}

/// The text after a line that holds only `;`, if a statement follows.
pub(super) fn behind_lone_end(text: &[u8]) -> Option<usize> {
    let rest = text.strip_prefix(b";")?;
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r')).count();
    (rest.get(blanks) == Some(&b'\n')).then_some(blanks + 2)
}

/// Where the text after a word begins: after spaces and comments, in upper or lower case.
fn begins_with_word(text: &[u8], word: &[u8]) -> Option<usize> {
    let window = &text[..text.len().min(BEFORE_BYTES)];
    let rest = match window.first()? {
        b' ' | b'\t' | b'/' => skip_comments(window),
        _ => window,
    };
    let (found, rest) = rest.split_at_checked(word.len())?;
    let is_it = found.eq_ignore_ascii_case(word) && matches!(rest.first(), Some(b' ' | b'\t' | b'`'));
    is_it.then(|| {
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        window.len() - rest.len() + blanks
    })
}

/// `None` if the text, continued, could begin with the word.
fn may_become(text: &[u8], word: &[u8], at_end: bool) -> Option<()> {
    let rest = skip_comments(&text[..text.len().min(BEFORE_BYTES)]);
    let is_comment = rest.starts_with(b"/*") || rest == b"/";
    let is_short = rest.len() <= word.len() && rest.eq_ignore_ascii_case(&word[..rest.len()]);
    let may_be = text.len() < BEFORE_BYTES && (is_comment || is_short);
    (at_end || !may_be).then_some(())
}

/// The text after spaces and one-line comments; empty if there is nothing else.
fn skip_comments(text: &[u8]) -> &[u8] {
    let mut rest = text;
    loop {
        while let [b' ' | b'\t' | b'\r', after @ ..] = rest {
            rest = after;
        }
        if rest.starts_with(b"-- ") || rest.starts_with(b"#") || rest == b"--" {
            return b"";
        }
        let end = || memmem::find(rest, b"*/").filter(|end| memchr(b'\n', &rest[..*end]).is_none());
        match rest.strip_prefix(b"/*").and_then(|_| end()) {
            Some(end) => rest = &rest[end + 2..],
            None => return rest,
        }
    }
}

/// The text without a comment at its end.
fn without_comment(text: &[u8]) -> &[u8] {
    let mut text = text.trim_ascii();
    while text.ends_with(b"*/")
        && let Some(begin) = memmem::rfind(text, b"/*").filter(|begin| *begin > 0)
    {
        text = text[..begin].trim_ascii_end();
    }
    text
}

/// The name, which may be in backticks and followed by a comment.
fn name(text: &[u8]) -> Name<'_> {
    let mut name = without_comment(text);
    while name.starts_with(b"/*")
        && let Some(end) = memmem::find(name, b"*/").filter(|end| end + 2 < name.len())
    {
        name = name[end + 2..].trim_ascii_start();
    }
    match name {
        [b'`', rest @ ..] if quote_end(rest).is_some_and(|end| end > 0 && end + 1 == rest.len()) => {
            Name { text: &rest[..rest.len() - 1], is_quoted: true }
        }
        _ => Name { text: name, is_quoted: false },
    }
}

/// Length of the line `use db;`. The name is not quoted, so it can contain line ends: then it continues to `SET`, but not past
/// a line that begins another event. `None` if the buffer ends too early to tell.
fn use_length(text: &[u8], at_end: bool) -> Option<usize> {
    let Some(first) = memchr(b'\n', text) else { return at_end.then_some(text.len()) };
    if memchr(b';', &text[..first]).is_some() {
        return Some(first);
    }
    // The `;` lacks, and the next line is no part of a name.
    if set(&text[first + 1..], at_end)?.is_some_and(|found| found.value.is_some()) {
        return Some(first);
    }
    let window = &text[..text.len().min(LINE_BYTES)];
    let next = memmem::find(window, b"\n# ");
    match memmem::find(&window[..next.unwrap_or(window.len())], b";\nSET ") {
        Some(at) => Some(at + 1),
        None if at_end || next.is_some() || window.len() == LINE_BYTES => Some(first),
        None => None,
    }
}

/// The values of a `SET` that the server wrote: its timestamp if it has one. `None` for any other `SET`.
fn values_of(text: &[u8]) -> Option<Option<u64>> {
    if let Some(value) = text.strip_prefix(b"timestamp=")
        && let (Some(seconds), b"") = take_number(value)
    {
        return seconds.checked_mul(NS_PER_S).map(Some);
    }
    let mut timestamp_ns = None;
    for part in text.split(|byte| *byte == b',') {
        let equals = memchr(b'=', part)?;
        let value = part[equals + 1..].trim_ascii();
        let variable = variable(&part[..equals]);
        if variable.eq_ignore_ascii_case(b"timestamp") {
            let digits = value.strip_prefix(b"'").and_then(|value| value.strip_suffix(b"'"));
            timestamp_ns = Some(seconds(digits.unwrap_or(value))?);
        } else if variable.eq_ignore_ascii_case(b"last_insert_id")
            || variable.eq_ignore_ascii_case(b"insert_id")
        {
            let digits = value.strip_prefix(b"-").unwrap_or(value);
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return None;
            }
        } else {
            return None;
        }
    }
    Some(timestamp_ns)
}

/// The name of a session variable without its prefix: `@@session.timestamp`, `LOCAL timestamp`.
fn variable(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b":").unwrap_or(text).trim_ascii_end();
    let mut name = text.strip_prefix(b"@@").unwrap_or(text);
    for scope in [&b"session"[..], b"local"] {
        if let Some((found, rest)) = name.split_at_checked(scope.len())
            && found.eq_ignore_ascii_case(scope)
            && matches!(rest.first(), Some(b'.' | b' ' | b'\t'))
        {
            name = rest[1..].trim_ascii();
        }
    }
    let name = name.strip_prefix(b"@@").unwrap_or(name);
    match name {
        [b'`', inner @ .., b'`'] => inner,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_every_form() {
        for (text, name, behind) in [
            ("use shop;\nSET", "shop", "SET"),
            ("uSe shop;\r\nSET", "shop", "SET"),
            ("USE `my shop` ;\nx", "my shop", "x"),
            ("use`shop`;\nx", "shop", "x"),
            ("use `sh``op`;\nx", "sh`op", "x"),
            ("use ```a````b``;`;\nx", "`a``b`;", "x"),
            ("USE `sh``op` ;\nx", "sh`op", "x"),
            ("  use shop ; -- from a mail\nx", "shop", "x"),
            ("/* a */ use /* d */ shop /* b */; # c\nx", "shop", "x"),
            ("use a; use b;\nx", "a", "use b;\nx"),
            ("use shop; SET timestamp=1;\nx", "shop", "SET timestamp=1;\nx"),
            ("use my;shop;\nx", "my;shop", "x"),
            ("use `my;shop`;\nx", "my;shop", "x"),
            ("use my\nshop;\nSET x", "my\nshop", "SET x"),
        ] {
            let found = used(text.as_bytes(), true).unwrap().unwrap();
            assert_eq!(
                (found.value.to_vec(), &text.as_bytes()[found.length..]),
                (name.as_bytes().to_vec(), behind.as_bytes()),
                "{text}"
            );
            for end in 0..memchr(b'\n', text.as_bytes()).unwrap() {
                assert!(used(&text.as_bytes()[..end], false).is_none(), "{}", &text[..end]);
            }
        }
        for text in [
            "use shop\nSET timestamp=5;\nSET x;\n",
            "select 1;\n",
            "users;\n",
            "use\n",
            "using x;\n",
            "-- use x;\n",
        ] {
            assert!(used(text.as_bytes(), true).unwrap().is_none(), "{text}");
        }
    }

    #[test]
    fn names_as_servers_write_them_are_no_change() {
        for text in ["use shop;\n", "use `shop`;\n", "use `my shop`;\r\n", "use `a;b`;\n"] {
            assert!(!used(text.as_bytes(), true).unwrap().unwrap().is_touched, "{text}");
        }
        assert!(used(b"USE `shop`;\n", true).unwrap().unwrap().is_touched);
    }

    #[test]
    fn timestamps_in_every_form() {
        for (text, timestamp, behind) in [
            ("SET timestamp=5;\nx", Some(5), "x"),
            ("set TIMESTAMP = 5 ;\r\nx", Some(5), "x"),
            ("SET @@timestamp=5;\nx", Some(5), "x"),
            ("SET SESSION timestamp=5;\nx", Some(5), "x"),
            ("SET @@session.timestamp:=5;\nx", Some(5), "x"),
            ("SET @@LOCAL.`timestamp` = 5;\nx", Some(5), "x"),
            ("SET timestamp=5, insert_id=7;\nx", Some(5), "x"),
            ("SET insert_id=7,@@session.timestamp=5, LAST_INSERT_ID=-1;\nx", Some(5), "x"),
            ("SET insert_id=7;\nx", None, "x"),
            ("/* a */ SET timestamp=5 /* b */; -- c\nx", Some(5), "x"),
            ("SET timestamp=5; select 1;\nx", Some(5), "select 1;\nx"),
            ("SET timestamp=5\nx", Some(5), "x"),
            ("SET timestamp='5';\nx", Some(5), "x"),
        ] {
            let found = set(text.as_bytes(), true).unwrap().unwrap();
            let value = found.value.map(|ns| ns / NS_PER_S);
            assert_eq!((value, &text.as_bytes()[found.length..]), (timestamp, behind.as_bytes()), "{text}");
            for end in 0..memchr(b'\n', text.as_bytes()).unwrap() {
                assert!(set(&text.as_bytes()[..end], false).is_none(), "{}", &text[..end]);
            }
        }
        for text in
            ["SET names utf8;\n", "SET timestamp=x;\n", "SET insert_id=7\n", "settle;\n", "SET GLOBAL a=1;\n"]
        {
            assert!(set(text.as_bytes(), true).unwrap().is_none(), "{text}");
        }
    }
}
