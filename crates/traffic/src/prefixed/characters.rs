//! Characters that tickets, wikis, terminals and shippers put in the place of others.

use memchr::{memchr, memmem};

use super::pages;
use super::returns::Ends;
use crate::general_log;
use crate::slow_log::Lexer;

/// What was found in the line that tells, and so is put back in all lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Colours of a terminal.
    has_colours: bool,
    /// Blanks that do not break, or have another width; with these go quotes of typography.
    has_wide_blanks: bool,
    /// `#012` for an end of line, as rsyslog writes control characters.
    has_octal: bool,
    /// `\n` for an end of line, as in JSON.
    has_backslashes: bool,
    /// Blanks for ends of lines.
    is_joined: bool,
    /// Backslashes before marks, as Markdown has them.
    is_escaped: bool,
    /// `=3D` for a sign of equality, and `=` at the end of a line that goes on, as in a mail's source.
    is_printable: bool,
    /// `User@Host` was rewritten by a program that took it for an e-mail address.
    is_of_mail: bool,
    /// TABs for ends of lines: before headers, or everywhere.
    tabs: Tabs,
    /// Entities and marks of a page.
    pub(super) is_page: bool,
    /// What is behind each line, as `pages` counts it.
    end: u8,
    /// Of the whole text.
    pub(super) ends: Ends,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tabs {
    #[default]
    Kept,
    /// Between texts of several lines: each is an event.
    BeforeHeaders,
    /// Between lines.
    LineEnds,
}

/// In one line, not more places are looked at where a header may begin behind a TAB.
const MOST_TABS: usize = 16;

/// What programs make of `User@Host`: pages that hide addresses from robots, mails that link them, archives of lists.
const ADDRESSES: [&[u8]; 7] = [
    b"[email protected]",
    b"[email\xc2\xa0protected]",
    b"[email&#160;protected]",
    b"User@Host<mailto:User@Host>",
    b"User@Host <mailto:User@Host> ",
    b"User@Host <mailto:User@Host>",
    b"User at Host",
];

const NAMES: [&str; 10] = [
    "colours",
    "blanks that do not break, or quotes of typography",
    "#012 for ends of lines",
    "\\n for ends of lines",
    "blanks for the ends of lines of headers",
    "the characters and ends of lines of a page of HTML",
    "backslashes of Markdown",
    "=3D and lines that go on, of a mail in quoted-printable",
    "User@Host, which looks like an address of mail",
    "TABs for ends of lines",
];

impl Changed {
    /// How a line behind the first of a header was changed.
    pub(super) fn of_behind(line: &[u8]) -> Self {
        let has_colours = memmem::find(line, b"\x1b[").is_some();
        Self {
            has_wide_blanks: blank(line).is_some(),
            has_colours,
            is_of_mail: address(line).is_some(),
            is_escaped: has_escaped_account(line),
            ..Self::default()
        }
    }

    /// Whether that shows in the line of an account.
    pub(super) fn is_of_account(self) -> bool {
        self.is_of_mail || self.is_escaped
    }

    /// How the first statement of a log was changed, whose header is as servers write it.
    pub(super) fn of_statement(text: &[u8]) -> Self {
        // What stands in a literal is somebody's value.
        let is_any = |starts: fn(&[u8]) -> bool| {
            let mut lexer = Lexer::default();
            (0..text.len()).any(|at| {
                matches!(text[at], b'&' | 0x1b | 0x80..) && starts(&text[at..]) && !lexer.is_inside(text, at)
            })
        };
        Self {
            has_colours: is_any(|text| text.starts_with(b"\x1b[")),
            is_page: is_any(pages::is_entity),
            has_wide_blanks: is_any(|text| replaced(text).is_some() || quote(text).is_some()),
            tabs: if header_behind_tab(text).is_some() { Tabs::BeforeHeaders } else { Tabs::Kept },
            ..Self::default()
        }
    }

    /// How shippers wrote the ends of lines inside of a statement of a general log, whose own line shows nothing.
    pub(super) fn of_ends(text: &[u8]) -> Self {
        let has = |mark: &[u8]| {
            let mut lexer = Lexer::default();
            memmem::find_iter(text, mark).take(MOST_TABS).any(|at| !lexer.is_inside(text, at))
        };
        Self { has_octal: has(b"#012"), has_backslashes: has(b"\\n"), ..Self::default() }
    }

    /// Both changes.
    pub(super) fn with(self, other: Self) -> Self {
        Self {
            is_page: self.is_page || other.is_page,
            has_colours: self.has_colours || other.has_colours,
            has_wide_blanks: self.has_wide_blanks || other.has_wide_blanks,
            has_octal: self.has_octal || other.has_octal,
            has_backslashes: self.has_backslashes || other.has_backslashes,
            ..self
        }
    }

    /// In quoted-printable.
    pub(super) fn printable() -> Self {
        Self { is_printable: true, ..Self::default() }
    }

    /// How this line was changed.
    pub(super) fn of(line: &[u8]) -> Self {
        let has = |needle: &[u8]| memmem::find(line, needle).is_some();
        let is_header = has(b"User@Host") || has(b"Query_time");
        // A log that has its TABs has such marks only in values.
        let has_tab = memchr(b'\t', line).is_some();
        let is_command = |mark: &str| {
            !has_tab
                && ["Connect", "Query", "Quit", "Prepare", "Execute", "Init DB"]
                    .iter()
                    .any(|command| has(format!("{command}{mark}").as_bytes()))
        };
        let end = match pages::end_of(line) {
            end if is_header || has(b"# Time:") => end,
            end if (1..=pages::PAGE_ENDS).contains(&end)
                && general_log::is_event(&[line, b"\n"].concat()) =>
            {
                end
            }
            _ => 0,
        };
        Self {
            is_page: (1..=pages::PAGE_ENDS).contains(&end) || (is_header && has(b"&nbsp;")),
            end,
            ends: Ends::Usual,
            has_colours: has(b"\x1b["),
            has_wide_blanks: is_header && blank(line).is_some(),
            has_octal: is_command("#011")
                || is_header && (has(b"#012#") || has(b"#012 #") || has(b"#012SET ")),
            has_backslashes: is_command("\\t") || is_header && (has(b"\\n#") || has(b"\\nSET ")),
            is_printable: false,
            is_joined: has(b"# User@Host:") && has(b" # Query_time:"),
            is_of_mail: address(line).is_some(),
            tabs: if has(b"\t# User@Host: ") && has(b"\t# Query_time: ") {
                Tabs::LineEnds
            } else {
                Tabs::Kept
            },
            is_escaped: has_escaped_account(line)
                || has(b"Query\\_time:")
                || (line.starts_with(b"\\# ") && (is_header || has(b"Time:"))),
        }
    }

    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let flags = [
            self.has_colours,
            self.has_wide_blanks,
            self.has_octal,
            self.has_backslashes,
            self.is_joined,
            self.is_page,
            self.is_escaped,
            self.is_printable,
            self.is_of_mail,
            self.tabs != Tabs::Kept,
        ];
        let names = NAMES.into_iter().zip(flags).filter_map(|(name, flag)| flag.then_some(name));
        let end = (self.end > pages::PAGE_ENDS).then_some("what `cat` shows at ends of lines");
        names.chain(end).chain(self.ends.name())
    }

    pub(super) fn is_any(self) -> bool {
        self != Self::default()
    }

    /// Puts back what can be before the prefix of a line.
    pub(super) fn restore_marks(self, line: &mut Vec<u8>) {
        if self.has_colours && memchr(0x1b, line).is_some() {
            *line = without_colours(line);
        }
        if self.is_printable && memchr(b'=', line).is_some() {
            *line = without_hex(line);
        }
        pages::take_end(self.end, line);
        if self.is_page && memchr::memchr2(b'&', b'<', line).is_some() {
            *line = pages::plain(line);
        }
        if self.is_escaped && memchr(b'\\', line).is_some() {
            *line = without_escapes(line);
        }
        if self.has_wide_blanks && line.iter().any(|byte| *byte >= 0x80) {
            *line = with_plain_blanks(line);
        }
    }

    /// Puts back what is in the text behind it.
    pub(super) fn restore_text(self, text: &mut Vec<u8>) {
        if self.has_octal && memchr(b'#', text).is_some() {
            *text = without_octal(text);
        }
        if self.has_backslashes && memchr(b'\\', text).is_some() {
            *text = without_backslashes(text);
        }
        if self.is_joined && memchr(b'#', text).is_some() {
            *text = with_lines(&with_banner_lines(text));
        }
        if let Some(length) = address(text).filter(|_| self.is_of_mail) {
            text.splice(2..2 + length, b"User@Host".iter().copied());
        }
        match self.tabs {
            Tabs::Kept => {}
            Tabs::LineEnds => text.iter_mut().filter(|byte| **byte == b'\t').for_each(|byte| *byte = b'\n'),
            Tabs::BeforeHeaders => {
                if let Some(at) = header_behind_tab(text) {
                    text[at] = b'\n';
                }
            }
        }
    }
}

/// The length of what stands for `User@Host` in a line of a header.
fn address(line: &[u8]) -> Option<usize> {
    let rest = line.strip_prefix(b"# ")?;
    let found = ADDRESSES.iter().find(|address| rest.starts_with(address))?;
    rest[found.len()..].trim_ascii_start().starts_with(b":").then_some(found.len())
}

/// Whether the brackets of the account and the address are escaped, which no server does.
fn has_escaped_account(line: &[u8]) -> bool {
    line.starts_with(b"# User@Host: ")
        && memmem::find(line, b" \\[").is_some()
        && memmem::find(line, b"\\] @ ").is_some()
}

/// Where a TAB is between the end of a statement and a header, outside of literals.
fn header_behind_tab(text: &[u8]) -> Option<usize> {
    memmem::find_iter(text, b";\t# ").take(MOST_TABS).map(|at| at + 1).find(|at| {
        let rest = &text[at + 1..];
        (rest.starts_with(b"# Time: ") || rest.starts_with(b"# User@Host: "))
            && (text.starts_with(b"# administrator command: ") || !Lexer::default().is_inside(text, *at))
    })
}

/// Puts back the ends of the lines of a banner, and the one before it.
fn with_banner_lines(text: &[u8]) -> Vec<u8> {
    const STARTED: &[u8] = b" started with: ";
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, STARTED) {
        let (before, banner) = rest.split_at(at + STARTED.len());
        let columns = memmem::find(banner, b" Time ")
            .filter(|_| banner.get(..9).is_some_and(|start| start.eq_ignore_ascii_case(b"tcp port:")));
        if let Some(columns) = columns {
            let version = memmem::rfind(before, b", Version: ").unwrap_or(0);
            if let Some(end) = memmem::rfind(&before[..version], b"; ") {
                out.extend_from_slice(&before[..=end]);
                out.push(b'\n');
                out.extend_from_slice(before[end + 2..].trim_ascii_end());
            } else {
                out.extend_from_slice(before.trim_ascii_end());
            }
            out.push(b'\n');
            out.extend_from_slice(&banner[..columns]);
            out.push(b'\n');
            rest = &banner[columns + 1..];
        } else {
            out.extend_from_slice(before);
            rest = banner;
        }
    }
    out.extend_from_slice(rest);
    out
}

fn without_colours(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = memmem::find(rest, b"\x1b[") {
        out.extend_from_slice(&rest[..at]);
        let inner = &rest[at + 2..];
        let end = inner.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b'?'));
        rest = end.map_or(&b""[..], |end| &inner[end + 1..]);
    }
    out.extend_from_slice(rest);
    out
}

/// Length and place of the first blank that is none of ASCII, or nothing at all in its place.
fn blank(text: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = text[from..].iter().position(|byte| *byte >= 0xc2) {
        let at = from + found;
        if let Some((_, length)) = replaced(&text[at..]) {
            return Some((at, length));
        }
        from = at + 1;
    }
    None
}

/// What stands for a character that begins a text, and its length there.
fn replaced(text: &[u8]) -> Option<(&'static [u8], usize)> {
    Some(match text {
        [0xc2, 0xa0, ..] => (b" ", 2),
        [0xe2, 0x80, 0x8b, ..] | [0xef, 0xbb, 0xbf, ..] => (b"", 3),
        [0xe2, 0x80, 0x80..=0x8a | 0xaf, ..] | [0xe3, 0x80, 0x80, ..] => (b" ", 3),
        _ => return None,
    })
}

/// In a line that has no other quotes, those of typography were some.
fn quote(text: &[u8]) -> Option<(&'static [u8], usize)> {
    Some(match text {
        [0xe2, 0x80, 0x98 | 0x99, ..] => (b"'", 3),
        [0xe2, 0x80, 0x9c | 0x9d, ..] => (b"\"", 3),
        _ => return None,
    })
}

fn with_plain_blanks(line: &[u8]) -> Vec<u8> {
    let has_quotes = memchr::memchr2(b'\'', b'"', line).is_some();
    let mut out = Vec::with_capacity(line.len());
    let mut at = 0;
    while at < line.len() {
        let found = replaced(&line[at..]).or_else(|| if has_quotes { None } else { quote(&line[at..]) });
        let (text, length) = found.unwrap_or((&line[at..=at], 1));
        out.extend_from_slice(text);
        at += length;
    }
    out
}

/// Marks that mean something in Markdown have a backslash before them, but for those that also mean something in a literal.
fn without_escapes(line: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let [first, behind @ ..] = rest {
        let is_mark =
            *first == b'\\' && behind.first().is_some_and(|mark| b"#_*[]<>`~-.!(){}+|".contains(mark));
        if !is_mark {
            out.push(*first);
        }
        rest = behind;
    }
    out
}

/// RFC 2045, 6.7.
fn without_hex(line: &[u8]) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_lowercase());
    let mut out = Vec::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.first() {
        let length = match rest {
            [b'=', b'\r', b'\n'] | [b'=', b'\n'] => rest.len(),
            [b'=', high, low, ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => {
                    out.push((high * 16 + low) as u8);
                    3
                }
                _ => 0,
            },
            _ => 0,
        };
        if length == 0 {
            out.push(*first);
        }
        rest = &rest[length.max(1)..];
    }
    out
}

fn without_octal(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, length) = match &text[at..] {
            [b'#', b'0', b'1', b'2', ..] => (b'\n', 4),
            [b'#', b'0', b'1', b'1', ..] => (b'\t', 4),
            [b'#', b'0', b'1', b'5', ..] => (b'\r', 4),
            rest => (rest[0], 1),
        };
        out.push(byte);
        at += length;
    }
    out
}

fn without_backslashes(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let (byte, length) = match &text[at..] {
            [b'\\', b'n', ..] => (b'\n', 2),
            [b'\\', b't', ..] => (b'\t', 2),
            [b'\\', b'r', ..] => (b'\r', 2),
            [b'\\', other @ (b'"' | b'\\' | b'/'), ..] => (*other, 2),
            rest => (rest[0], 1),
        };
        out.push(byte);
        at += length;
    }
    out
}

/// Puts back the ends of the lines of headers: before each of their marks, and around `use db;` and `SET timestamp=1;`.
fn with_lines(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = memmem::find(rest, b"# Query_time:") {
        let (before, header) = rest.split_at(at);
        with_marks(before, &mut out);
        // A header ends with its timestamp, and has its database before that.
        let Some(set) = memmem::find(header, b" SET timestamp=") else {
            rest = header;
            break;
        };
        let (fields, statement) = header.split_at(set);
        let used = memmem::find(fields, b" use ").unwrap_or(fields.len());
        with_marks(&fields[..used], &mut out);
        if used < fields.len() {
            out.push(b'\n');
            out.extend_from_slice(fields[used..].trim_ascii());
        }
        out.push(b'\n');
        let end = memchr(b';', statement).map_or(statement.len(), |end| end + 1);
        out.extend_from_slice(&statement[1..end]);
        out.push(b'\n');
        rest = statement[end..].strip_prefix(b" ").unwrap_or(&statement[end..]);
    }
    with_marks(rest, &mut out);
    out
}

fn with_marks(text: &[u8], out: &mut Vec<u8>) {
    const MARKS: [&[u8]; 4] = [b" # Time:", b" # User@Host:", b" # Thread_id:", b" # Schema:"];
    let mut from = 0;
    for at in memmem::find_iter(text, b" # ") {
        let is_mark = MARKS.iter().any(|mark| text[at..].starts_with(mark)) || is_key(&text[at + 3..]);
        if is_mark {
            out.extend_from_slice(&text[from..at]);
            out.push(b'\n');
            from = at + 1;
        }
    }
    let last = &text[from..];
    // A mark that begins what follows.
    match last.strip_suffix(b" ").filter(|last| !last.is_empty()) {
        Some(last) => out.extend_from_slice(&[last, b"\n"].concat()),
        None => out.extend_from_slice(last),
    }
}

/// `Rows_affected:`.
fn is_key(text: &[u8]) -> bool {
    let length = text.iter().take_while(|byte| byte.is_ascii_alphabetic() || **byte == b'_').count();
    length > 3 && text.get(length) == Some(&b':') && text[..length].contains(&b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_put_back() {
        assert_eq!(without_colours(b"\x1b[36mdb |\x1b[0m # x\x1b["), b"db | # x");
        assert_eq!(
            with_plain_blanks("#\u{a0}a\u{2003}b\u{200b}c \u{2018}x\u{2019}".as_bytes()),
            b"# a bc 'x'"
        );
        assert_eq!(with_plain_blanks("'it\u{2019}s'\u{a0}".as_bytes()), "'it\u{2019}s' ".as_bytes());
        assert_eq!(without_octal(b"a#012b#011c#x#01"), b"a\nb\tc#x#01");
        assert_eq!(without_backslashes(b"a\\nb\\\\n\\'\\"), b"a\nb\\n\\'\\");
    }
}
