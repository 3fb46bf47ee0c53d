//! Text of `aws logs tail` and of awslogs: before each event's first line its time and its stream, nothing before its other
//! lines.

use std::io::{self, Read};

use memchr::memchr;

use super::bytes::Bytes;
use crate::general_log;
use crate::slow_log::{self, time};

/// What is before the text of an event is not longer.
const PREFIX_BYTES: usize = 1024;

/// What stands before the text of an event, each followed by one blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `2024-05-01T10:11:12.345000+00:00 stream`: `aws logs tail`.
    TimeStream,
    /// `2024-05-01T10:11:12`, as `--format short` has it.
    Time,
    /// `/aws/rds/… stream`, and perhaps a time: awslogs.
    GroupStream,
    GroupStreamTime,
}

const FORMS: [Form; 4] = [Form::GroupStreamTime, Form::GroupStream, Form::TimeStream, Form::Time];

impl Form {
    /// The form of a text, if an event of a log begins behind it, and its next line has nothing before it.
    pub(super) fn of(head: &[u8]) -> Option<Form> {
        let mut lines =
            head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).peekable();
        while let Some(line) = lines.next() {
            let form = FORMS.into_iter().find(|form| {
                form.prefix(line).is_some_and(|prefix| {
                    let text = &line[prefix.length..];
                    slow_log::is_header_line(text) || (*form != Form::Time && general_log::is_event(text))
                })
            });
            let Some(form) = form else { continue };
            // Where every line has the same before it, that is a prefix like any other, unless streams are named.
            let is_bare = lines.peek().is_some_and(|next| slow_log::is_header_line(next));
            if is_bare || form != Form::Time {
                return Some(form);
            }
        }
        None
    }

    fn prefix(self, line: &[u8]) -> Option<Prefix> {
        let line = &line[..line.len().min(PREFIX_BYTES)];
        let (mut at, mut stream) = (0, (0, 0));
        let is_group = matches!(self, Form::GroupStream | Form::GroupStreamTime);
        if is_group {
            let (length, next) = word(line, at)?;
            let is_path = line[0] == b'/' && line[1..length].contains(&b'/');
            if !is_path {
                return None;
            }
            at = next;
            let (end, next) = word(line, at)?;
            stream = (at, end);
            at = next;
        }
        if self != Form::GroupStream {
            let (end, next) = word(line, at)?;
            let (stamp, rest) = time::stamp(&line[at..end])?;
            if !rest.is_empty() || (stamp.is_local && self != Form::Time) || line.get(at + 10) != Some(&b'T')
            {
                return None;
            }
            at = next;
        }
        if self == Form::TimeStream {
            let (end, next) = word(line, at)?;
            stream = (at, end);
            at = next;
            // A header's own mark is no name of a stream, and labels in braces are those of Loki.
            if matches!(line[stream.0], b'#' | b'{') {
                return None;
            }
        }
        Some(Prefix { stream, length: at })
    }
}

struct Prefix {
    stream: (usize, usize),
    length: usize,
}

/// Where the word at `at` ends, and where what is behind its blank begins.
fn word(line: &[u8], at: usize) -> Option<(usize, usize)> {
    let length = memchr(b' ', line.get(at..)?).filter(|length| *length > 0)?;
    let is_plain = line[at..at + length].iter().all(|byte| byte.is_ascii_graphic());
    is_plain.then_some((at + length, at + length + 1))
}

/// Pieces of text with the streams that they are of.
pub(super) struct Tail<R> {
    pub(super) bytes: Bytes<R>,
    form: Form,
    pub(super) stream: Vec<u8>,
    pub(super) text: Vec<u8>,
    /// The text given last did not end its line.
    is_inside: bool,
}

impl<R: Read> Tail<R> {
    pub(super) fn new(bytes: Bytes<R>, form: Form) -> Self {
        Self { bytes, form, stream: Vec::new(), text: Vec::new(), is_inside: false }
    }

    /// Reads the next line, or a piece of a long one; false at the end.
    pub(super) fn next(&mut self) -> io::Result<bool> {
        self.text.clear();
        while self.bytes.peek()?.is_some() {
            let ahead = self.bytes.ahead();
            let end = memchr(b'\n', ahead).map_or(ahead.len(), |end| end + 1);
            self.text.extend_from_slice(&ahead[..end]);
            self.bytes.take(end);
            if self.text.ends_with(b"\n") || self.text.len() >= PREFIX_BYTES {
                break;
            }
        }
        if self.text.is_empty() {
            return Ok(false);
        }
        if !self.is_inside
            && let Some(prefix) = self.form.prefix(&self.text)
        {
            self.stream.clear();
            self.stream.extend_from_slice(&self.text[prefix.stream.0..prefix.stream.1]);
            self.text.drain(..prefix.length);
        }
        self.is_inside = !self.text.ends_with(b"\n");
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::Form;

    #[test]
    fn the_form_is_told_by_the_first_event() {
        for (head, form) in [
            (
                "2024-05-01T10:11:12.345000+00:00 db1 # Time: 2024-05-01T10:11:12Z\n# User@Host: a[a] @ b []\n",
                Some(Form::TimeStream),
            ),
            (
                "2024-05-01T10:11:12 # Time: 2024-05-01T10:11:12Z\n# User@Host: a[a] @ b []\n",
                Some(Form::Time),
            ),
            (
                "/aws/rds/instance/a/slowquery a # User@Host: a[a] @ b []\n# Query_time: 1\n",
                Some(Form::GroupStream),
            ),
            ("/aws/rds/a a 2024-05-01T10:11:12.345Z # User@Host: a[a] @ b []\n", Some(Form::GroupStreamTime)),
            // A prefix of every line is no event's.
            (
                "2024-05-01T10:11:12Z # Time: 2024-05-01T10:11:12Z\n2024-05-01T10:11:12Z # User@Host: a[a] @ b []\n",
                None,
            ),
            ("# Time: 2024-05-01T10:11:12.345Z\n# User@Host: a[a] @ b []\n", None),
            (
                "2024-05-01T10:11:12Z {app=\"db\"} # Time: 2024-05-01T10:11:12Z\n# User@Host: a[a] @ b []\n",
                None,
            ),
            ("pod container # Time: 2024-05-01T10:11:12Z\n# x\n", None),
            ("", None),
        ] {
            assert_eq!(Form::of(head.as_bytes()), form, "{head}");
        }
    }
}
