//! How the lines of a log begin, told by the first of them that is one of a log.

use memchr::memmem;

use super::characters::Changed;
use super::layers::{LAYERS, Layer, Peeled};
use super::order::{self, Order};
use super::pages;
use super::returns::Ends;
use crate::slow_log::supervised;
use crate::{general_log, slow_log};

/// A prefix is not longer, and has not more layers.
const PREFIX_BYTES: usize = 512;
const MOST_LAYERS: usize = 4;
/// A header has fewer lines.
const MOST_HEADER_LINES: usize = 64;
/// Of a general log, as many are looked at.
const MOST_STATEMENTS: usize = 200;
/// Of a line that may tell, no more is looked at.
const LOOK_BYTES: usize = 4096;

/// What the first lines of a text tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    SlowLog,
    GeneralLog,
    /// One of these, behind something.
    Prefixed,
}

/// What is before each line, and what was done to its characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(super) layers: Vec<Layer>,
    /// Of an indentation.
    width: usize,
    /// What is before each line where no layer is known.
    pub(super) shape: Vec<Part>,
    /// A prefix of that shape: where others are as long, their letters and digits may be mixed in any way.
    example: Vec<u8>,
    pub(super) changed: Changed,
    /// Before each piece of output, supervisord writes a line with the name of the program.
    pub(super) is_supervised: bool,
    /// What comes first is the newest.
    pub(super) order: Order,
}

/// A part of a shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Same(Vec<u8>),
    Digits,
    Letters,
    Blanks,
    /// At the end, so many: what is behind them is the line's own, as are further blanks.
    LastBlanks(usize),
}

/// What the first line says that says anything. `at_end`: nothing follows.
pub(crate) fn first(head: &[u8], at_end: bool) -> Option<(First, Form)> {
    let (first, mut form) = in_order(head, at_end)?;
    if first != First::GeneralLog && order::is_reversed(form.lines_of(head).iter().map(Vec::as_slice)) {
        form.order = Order::Lines;
        return Some((First::Prefixed, form));
    }
    Some((first, form))
}

fn in_order(head: &[u8], at_end: bool) -> Option<(First, Form)> {
    let ends = Ends::of(head);
    if ends == Ends::Usual {
        return of_lines(head, at_end);
    }
    let (_, mut form) = of_lines(&ends.restored(head), at_end)?;
    form.changed.ends = ends;
    Some((First::Prefixed, form))
}

fn of_lines(head: &[u8], at_end: bool) -> Option<(First, Form)> {
    let mut stranger: Option<Vec<u8>> = None;
    let (mut is_page, mut is_supervised) = (false, false);
    let is_whole = |line: &&[u8]| at_end || line.ends_with(b"\n");
    let mut lines = head.split_inclusive(|byte| *byte == b'\n').filter(is_whole);
    let mut used = 0;
    while let Some(line) = lines.next() {
        used += line.len();
        let line = crate::pieces::without_return(line.strip_suffix(b"\n").unwrap_or(line));
        let line = &line[..line.len().min(LOOK_BYTES)];
        let mut changed = Changed::of(line);
        is_page |= pages::is_page(line);
        is_supervised |= supervised::output(line).is_some();
        changed.is_page |= is_page;
        if !changed.is_any() {
            // An indentation is taken off all lines, not only those of headers.
            let is_indented = matches!(line.first(), Some(b' ' | b'\t'));
            if is_supervised && (is_of_log(line) || slow_log::is_header_line(line)) {
                return Some((First::Prefixed, Form { is_supervised, ..Form::default() }));
            }
            if !is_indented && slow_log::is_header_line(line) {
                return slow(lines, &head[used..], at_end);
            }
            if general_log::is_event(&[line, b"\n"].concat()) {
                return Some((First::GeneralLog, Form::default()));
            }
        }
        let mut line = line.to_vec();
        changed.restore_marks(&mut line);
        changed.restore_text(&mut line);
        without_own_banner(&mut line);
        if let Some(form) = Form::of(&line, changed) {
            return Some((First::Prefixed, form));
        }
        let Some(at) = header(&line).or_else(|| event(&line)) else { continue };
        if let Some(shape) = stranger.as_ref().and_then(|before| shape(before, &line[..at])) {
            let example = line[..at].to_vec();
            return Some((First::Prefixed, Form { shape, example, changed, ..Form::default() }));
        }
        stranger = Some(line[..at].to_vec());
    }
    None
}

/// How the lines of a general log were changed whose first one is as servers write it: by what its first statements have
/// outside of literals.
pub(super) fn of_general(head: &[u8]) -> Option<Form> {
    if is_printable(head) {
        return Some(Form { changed: Changed::printable(), ..Form::default() });
    }
    let changed =
        statements(head).iter().map(|text| Changed::of_statement(text)).find(|changed| changed.is_any())?;
    Some(Form { changed, ..Form::default() })
}

/// The first statements of a general log.
fn statements(head: &[u8]) -> Vec<Vec<u8>> {
    let mut statements: Vec<Vec<u8>> = Vec::new();
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        if general_log::is_event(line) {
            if statements.len() == MOST_STATEMENTS {
                break;
            }
            statements.push(line.to_vec());
        } else if let Some(statement) = statements.last_mut().filter(|text| text.len() < LOOK_BYTES) {
            statement.extend_from_slice(line);
        }
    }
    statements
}

/// Whether each `=` of a text is one of quoted-printable.
fn is_printable(text: &[u8]) -> bool {
    let is_hex = |byte: &u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(byte);
    memmem::find(text, b"=3D").is_some()
        && memchr::memchr_iter(b'=', text).all(|at| match &text[at + 1..] {
            [] | [b'\n', ..] | [b'\r', b'\n', ..] | [_] => true,
            [high, low, ..] => is_hex(high) && is_hex(low),
        })
}

/// A slow log with these lines behind its first one: shippers indent all lines of an event but the first, and blanks of a
/// web page may be only where there are two. `None` until the first header is whole.
fn slow<'l>(lines: impl Iterator<Item = &'l [u8]>, text: &[u8], at_end: bool) -> Option<(First, Form)> {
    let (mut is_first, mut is_whole, mut goes_on) = (true, at_end, false);
    let mut form = None;
    let (mut used, mut behind) = (0, None);
    for (number, line) in lines.enumerate() {
        let width = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if std::mem::take(&mut is_first) && width > 0 && begins_indented(&line[width..]) {
            return Some((First::Prefixed, Form { layers: vec![Layer::Indent], width, ..Form::default() }));
        }
        let changed = Changed::of_behind(&line[..line.len().min(LOOK_BYTES)]);
        if line.starts_with(b"SET timestamp=3D") {
            return Some((First::Prefixed, Form { changed: Changed::printable(), ..Form::default() }));
        }
        let is_of_header = line.starts_with(b"#") || line.starts_with(b"use ") || goes_on;
        goes_on = crate::pieces::without_return(line.strip_suffix(b"\n").unwrap_or(line)).ends_with(b"=");
        if !is_of_header || number >= MOST_HEADER_LINES {
            (is_whole, behind) = (true, Some(used));
            break;
        }
        used += line.len();
        let is_measured = line.starts_with(b"# Query_time:") || line.starts_with(b"# \x1b[");
        if changed.is_any() && form.is_none() && (is_measured || changed.is_of_account()) {
            form = Some(Form { changed, ..Form::default() });
        }
    }
    if let Some(at) = behind.filter(|_| form.is_none()) {
        let changed = Changed::of_statement(statement(&text[at..], at_end)?);
        form = changed.is_any().then(|| Form { changed, ..Form::default() });
    }
    let found = form.map_or((First::SlowLog, Form::default()), |form| (First::Prefixed, form));
    is_whole.then_some(found)
}

/// The statement that begins a text, or as much of it as is looked at. `None` until that is there.
fn statement(text: &[u8], at_end: bool) -> Option<&[u8]> {
    let window = &text[..text.len().min(LOOK_BYTES)];
    let (mut begin, mut end) = (0, 0);
    for line in window.split_inclusive(|byte| *byte == b'\n') {
        if line.starts_with(b"# ") {
            return Some(&window[begin..end]);
        }
        end += line.len();
        if begin + line.len() == end && line.starts_with(b"SET timestamp=") {
            begin = end;
        } else if line.trim_ascii_end().ends_with(b";") && line.ends_with(b"\n") {
            return Some(&window[begin..end]);
        }
    }
    (at_end || window.len() == LOOK_BYTES).then_some(&window[begin..])
}

/// Removes a server's banner where it was joined with the line that follows it.
fn without_own_banner(line: &mut Vec<u8>) {
    if memmem::find(line, b" started with:").is_none() {
        return;
    }
    let begin = |mark: &[u8]| memmem::find(line, mark);
    if let Some(at) = [begin(b"\n# Time: "), begin(b"\n# User@Host: ")].into_iter().flatten().min() {
        line.drain(..=at);
    }
}

fn begins_indented(text: &[u8]) -> bool {
    [&b"# User@Host:"[..], b"# Query_time:"].iter().any(|key| text.starts_with(key))
}

/// Whether a text is what a log has in a line.
fn is_of_log(text: &[u8]) -> bool {
    let is_indented = text.first().is_none_or(|first| matches!(first, b' ' | b'\t' | b'>'));
    (!is_indented && slow_log::begins_event(text)) || general_log::is_event(&[text, b"\n"].concat())
}

/// Whether a line has one more known layer before what a log has in a line: a line of a general log has no mark by which it is
/// seen behind any text.
fn is_behind_another(line: &[u8]) -> bool {
    let width = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    LAYERS.into_iter().any(|layer| {
        layer.peel(line, width).is_some_and(|peeled| peeled.length > 0 && is_of_log(&line[peeled.length..]))
    })
}

impl Form {
    /// By a line that has known layers before a log's own, or other characters.
    fn of(line: &[u8], changed: Changed) -> Option<Self> {
        let mut form = Form { changed, ..Form::default() };
        let mut rest = line;
        while !is_of_log(rest) {
            let layer = LAYERS.into_iter().find_map(|layer| {
                let width = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
                let peeled = layer.peel(rest, width).filter(|peeled| peeled.length > 0)?;
                let behind = &rest[peeled.length..];
                let is_on_way = header(behind).is_some() || is_of_log(behind) || is_behind_another(behind);
                is_on_way.then_some((layer, peeled.length, width))
            });
            let (layer, length, width) = layer.filter(|_| form.layers.len() < MOST_LAYERS)?;
            form.layers.push(layer);
            if layer == Layer::Indent {
                form.width = width;
            }
            rest = &rest[length..];
        }
        (!form.layers.is_empty() || changed.is_any()).then_some(form)
    }

    /// What the statements of a general log behind prefixes show of how they were changed.
    pub(super) fn with_statements(self, head: &[u8]) -> Self {
        let (mut text, restored) = (Vec::new(), self.changed.ends.restored(head));
        for line in restored.split_inclusive(|byte| *byte == b'\n') {
            let mut line = line.to_vec();
            self.take_off(&mut line);
            text.append(&mut line);
        }
        let of = |text: &Vec<u8>| Changed::of_statement(text).with(Changed::of_ends(text));
        let changed = statements(&text).iter().map(of).fold(self.changed, Changed::with);
        Self { changed, ..self }
    }

    /// The first lines of a text without what is before them, up to the first account.
    fn lines_of(&self, head: &[u8]) -> Vec<Vec<u8>> {
        let restored = self.changed.ends.restored(head);
        let mut lines = Vec::new();
        for line in restored.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            let mut line = line[..line.len().min(LOOK_BYTES)].to_vec();
            self.take_off(&mut line);
            let is_account = line.starts_with(b"# User@Host: ");
            lines.push(line);
            if is_account {
                break;
            }
        }
        lines
    }

    /// What is to be taken off a line without its end: how much, and who wrote it. `None` where a line does not begin like
    /// this.
    pub(super) fn peel(&self, line: &[u8]) -> Option<Peeled> {
        if !self.shape.is_empty() {
            let length = matched(&self.shape, line).or_else(|| alike(&self.example, line));
            return length.map(|length| Peeled { length, ..Peeled::default() });
        }
        let mut all = Peeled::default();
        for layer in &self.layers {
            let Some(peeled) = layer.peel(&line[all.length..], self.width) else {
                return (all.length > 0).then_some(all);
            };
            if peeled.who.1 > 0 && all.who.1 == 0 {
                all.who = (all.length + peeled.who.0, all.length + peeled.who.1);
            }
            all.is_partial |= peeled.is_partial;
            all.length += peeled.length;
        }
        Some(all)
    }

    /// Takes off a line, which may have its end, what is before it, and puts back its characters. Gives who wrote it and
    /// whether it goes on in the next one; `None` where it does not begin like this.
    pub(crate) fn take_off(&self, line: &mut Vec<u8>) -> Option<(Vec<u8>, bool)> {
        self.changed.restore_marks(line);
        let inner = crate::pieces::without_return(line.strip_suffix(b"\n").unwrap_or(line));
        let peeled = self.peel(inner);
        let who = peeled.map(|peeled| inner[peeled.who.0..peeled.who.1].to_vec());
        line.drain(..peeled.map_or(0, |peeled| peeled.length));
        self.changed.restore_text(line);
        Some((who?, peeled?.is_partial))
    }

    /// Whether a line that does not begin like this is unusual.
    pub(super) fn is_of_all_lines(&self) -> bool {
        !self.shape.is_empty() || self.layers.iter().any(|layer| *layer != Layer::Indent)
    }

    /// Whether a mail quotes the log.
    pub(super) fn is_mail(&self) -> bool {
        self.layers.contains(&Layer::Mail)
    }

    /// In words, for the coverage.
    pub(crate) fn description(&self) -> String {
        let mut parts: Vec<String> =
            self.layers.iter().map(|layer| format!("the prefix {}", layer.name())).collect();
        if !self.shape.is_empty() {
            parts.push("a prefix of no known program that all lines have".to_owned());
        }
        if self.is_supervised {
            parts.push("the lines of supervisord".to_owned());
        }
        let mut said = match parts.len() {
            0 => String::new(),
            _ => format!("taken off each line: {}", parts.join(", ")),
        };
        for name in self.changed.names() {
            said += if said.is_empty() { "put back in each line: " } else { "; put back: " };
            said += name;
        }
        let of = match self.order {
            Order::Oldest => return said,
            Order::Lines => "lines",
            Order::Events | Order::Unclear => "events",
            Order::Mixed => "",
        };
        said += if said.is_empty() { "" } else { "; " };
        if self.order == Order::Mixed {
            return said
                + "the times are in no order, so that statements of several lines may have lines of others: sort the lines as \
                   they were written, or give the log itself";
        }
        said += &format!("put back: the order of the {of}, of which the newest came first");
        if self.order == Order::Unclear {
            said += "; whether the lines of each were turned, too, nothing tells: statements of several lines may be mixed";
        }
        said
    }
}

/// Where a line of a header begins that is not at the beginning.
fn header(line: &[u8]) -> Option<usize> {
    const MARKS: [&[u8]; 4] =
        [b"# Time: ", b"# User@Host: ", b"# Query_time: ", b"# administrator command: "];
    let window = &line[..line.len().min(PREFIX_BYTES)];
    MARKS.iter().filter_map(|mark| memmem::find(window, mark)).min().filter(|at| is_of_log(&line[*at..]))
}

/// Where a line of a general log begins that is not at the beginning. What is in quotes or in a cell of a table ends in more
/// of these, and is none.
fn event(line: &[u8]) -> Option<usize> {
    memchr::memchr(b'\t', line)?;
    let begins = |at: &usize| {
        matches!(line[*at], b'\t' | b'0'..=b'9')
            && !line[at - 1].is_ascii_alphanumeric()
            && general_log::is_event(&[&line[*at..], b"\n"].concat())
    };
    let at = (1..line.len().min(PREFIX_BYTES)).find(begins)?;
    let is_quoted =
        !memchr::memchr_iter(b'"', &line[..at]).count().is_multiple_of(2) || line[at - 1] == b'\'';
    let is_cell = line[0] == b'|' && line.trim_ascii_end().ends_with(b"|");
    (!is_quoted && !is_cell).then_some(at)
}

/// What two prefixes have in common: digits may be others, and letters where they differ.
fn shape(one: &[u8], other: &[u8]) -> Option<Vec<Part>> {
    let (ones, others) = (runs(one), runs(other));
    if ones.len() != others.len() || one.is_empty() {
        return None;
    }
    let last = ones.len() - 1;
    ones.into_iter()
        .zip(others)
        .enumerate()
        .map(|(place, ((kind, one), (other_kind, other)))| {
            let is_same = kind == other_kind;
            match kind {
                Run::Blanks if is_same && place == last => Some(Part::LastBlanks(one.len().min(other.len()))),
                Run::Digits if is_same => Some(Part::Digits),
                Run::Blanks if is_same => Some(Part::Blanks),
                Run::Letters if is_same && one != other => Some(Part::Letters),
                _ => (one == other).then(|| Part::Same(one.to_vec())),
            }
        })
        .collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Digits,
    Letters,
    Blanks,
    Other,
}

fn run(byte: u8) -> Run {
    match byte {
        b'0'..=b'9' => Run::Digits,
        b'a'..=b'z' | b'A'..=b'Z' => Run::Letters,
        b' ' | b'\t' => Run::Blanks,
        _ => Run::Other,
    }
}

fn runs(text: &[u8]) -> Vec<(Run, &[u8])> {
    text.chunk_by(|a, b| run(*a) == run(*b)).map(|chunk| (run(chunk[0]), chunk)).collect()
}

/// The length of a prefix of which a line has one that is like it in all but its letters and digits.
fn alike(example: &[u8], line: &[u8]) -> Option<usize> {
    let window = line.get(..example.len())?;
    let is_alike = |(one, other): (&u8, &u8)| {
        one == other || one.is_ascii_alphanumeric() && other.is_ascii_alphanumeric()
    };
    example.iter().zip(window).all(is_alike).then_some(example.len())
}

/// How much of a line is like a shape. Its last blanks may lack at the end of a line.
fn matched(shape: &[Part], line: &[u8]) -> Option<usize> {
    let mut at = 0;
    for part in shape {
        let rest = &line[at..];
        let count = |kind: Run| rest.iter().take_while(|byte| run(**byte) == kind).count();
        at += match part {
            Part::Same(text) => rest.starts_with(text).then_some(text.len())?,
            Part::Digits => Some(count(Run::Digits)).filter(|length| *length > 0)?,
            Part::Letters => Some(count(Run::Letters)).filter(|length| *length > 0)?,
            Part::LastBlanks(most) => {
                let blanks = count(Run::Blanks);
                (blanks > 0 || rest.is_empty()).then_some(blanks.min(*most))?
            }
            Part::Blanks => Some(count(Run::Blanks)).filter(|length| *length > 0)?,
        };
    }
    Some(at)
}
