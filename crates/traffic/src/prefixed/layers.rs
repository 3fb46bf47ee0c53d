//! What programs put before lines, each recognised by its own form.

/// What stands before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// `2026-03-01T10:32:03.000000000Z stdout F text`: containerd and CRI-O; P for a line that goes on.
    Cri,
    /// `db-1  | text`; of other supervisors `10:32:03 db.1  | text`, `mysqld stdout | text`, `0|mysqld  | text`.
    Compose,
    /// `[pod/mysql-0/mysql] text`.
    Kubectl,
    /// `Mar  1 10:32:03 db1 mysqld[812]: text`, and journalctl's other times.
    Syslog,
    /// `<14>1 2026-03-01T10:32:03Z db1 mysqld 812 - - text`.
    Rfc5424,
    /// `2026-03-01T10:32:03.000000000Z text`.
    Time,
    /// `mysql-0 mysql text`.
    Stern,
    /// `> text`.
    Mail,
    Indent,
    /// `db1: text`: pdsh, clush and the like, which ask several hosts at once.
    Host,
    /// `  12  text`, `12:text`, `slow.log:12:text`, `slow.log-text`.
    Lines,
}

pub(super) const LAYERS: [Layer; 11] = [
    Layer::Cri,
    Layer::Compose,
    Layer::Kubectl,
    Layer::Rfc5424,
    Layer::Syslog,
    Layer::Time,
    Layer::Mail,
    Layer::Host,
    Layer::Lines,
    Layer::Indent,
    Layer::Stern,
];

/// A layer of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Peeled {
    pub(super) length: usize,
    /// Who wrote the line, where that is named: from, to.
    pub(super) who: (usize, usize),
    /// The line goes on in the next one.
    pub(super) is_partial: bool,
}

impl Layer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Layer::Cri => "of containerd or CRI-O",
            Layer::Compose => "of docker compose (or another supervisor)",
            Layer::Kubectl => "of kubectl --prefix",
            Layer::Syslog => "of syslog or journald",
            Layer::Rfc5424 => "of syslog (RFC 5424)",
            Layer::Time => "of a timestamp (docker or kubectl --timestamps)",
            Layer::Stern => "of stern",
            Layer::Mail => "of a quoted mail",
            Layer::Indent => "of blanks",
            Layer::Host => "of a host's name (pdsh, clush)",
            Layer::Lines => "of line numbers or of grep",
        }
    }

    /// The layer that begins a line, which has no end of line. `width`: how many blanks an indentation has.
    pub(super) fn peel(self, line: &[u8], width: usize) -> Option<Peeled> {
        match self {
            Layer::Cri => cri(line),
            Layer::Compose => compose(line),
            Layer::Kubectl => kubectl(line),
            Layer::Syslog => syslog(line),
            Layer::Rfc5424 => rfc5424(line),
            Layer::Time => moment(line).map(behind),
            Layer::Stern => stern(line),
            Layer::Mail => mail(line),
            Layer::Indent => Some(line.iter().take(width).take_while(|byte| is_blank(**byte)).count())
                .filter(|length| *length > 0)
                .map(behind),
            Layer::Host => host(line),
            Layer::Lines => lines(line),
        }
    }
}

fn behind(length: usize) -> Peeled {
    Peeled { length, ..Peeled::default() }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Length of the word that begins a text, of letters, digits and the given others.
fn word(text: &[u8], others: &[u8]) -> Option<usize> {
    let length = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || others.contains(byte)).count();
    (length > 0).then_some(length)
}

/// The same with the one blank behind it, which may lack at the end of a line.
fn with_blank(text: &[u8], length: usize) -> Option<usize> {
    match text.get(length) {
        Some(b' ') => Some(length + 1),
        None => Some(length),
        Some(_) => None,
    }
}

/// `10:32:03`, perhaps with a fraction.
fn clock(text: &[u8]) -> Option<usize> {
    let is_clock = text.len() >= 8
        && text[..8].iter().enumerate().all(|(at, byte)| match at {
            2 | 5 => *byte == b':',
            _ => byte.is_ascii_digit(),
        });
    let fraction = match text.get(8) {
        Some(b'.' | b',') => 1 + digits(&text[9..]),
        _ => 0,
    };
    is_clock.then_some(8 + fraction)
}

/// `2026-03-01T10:32:03.000100Z `, also with a blank for the T, and any zone or none.
fn moment(text: &[u8]) -> Option<usize> {
    let date = text.get(..11)?;
    let is_date = date[..10].iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => matches!(byte, b'-' | b'/'),
        _ => byte.is_ascii_digit(),
    });
    if !is_date || !matches!(date[10], b'T' | b' ') {
        return None;
    }
    let end = 11 + clock(&text[11..])?;
    let zone = match text.get(end) {
        Some(b'Z') => 1,
        Some(b'+' | b'-') => {
            1 + text[end + 1..].iter().take_while(|byte| byte.is_ascii_digit() || **byte == b':').count()
        }
        _ if text[end..].starts_with(b" UTC") => 4,
        _ => 0,
    };
    with_blank(text, end + zone)
}

/// `Mar  1 10:32:03 `, also with a year, or with a day of the week before.
fn month(text: &[u8]) -> Option<usize> {
    const MONTHS: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
    if !MONTHS.chunks(3).any(|month| text.starts_with(month)) || text.get(3) != Some(&b' ') {
        return None;
    }
    let mut at = 3 + text[3..].iter().take_while(|byte| **byte == b' ').count();
    let day = digits(&text[at..]);
    if !(1..=2).contains(&day) || text.get(at + day) != Some(&b' ') {
        return None;
    }
    at += day + 1;
    if digits(&text[at..]) == 4 && text.get(at + 4) == Some(&b' ') {
        at += 5;
    }
    with_blank(text, at + clock(&text[at..])?)
}

fn syslog(line: &[u8]) -> Option<Peeled> {
    let mut at = priority(line).unwrap_or(0);
    // journalctl -o short-full: Sun 2026-03-01 10:32:03 UTC
    if line.get(at + 3) == Some(&b' ')
        && line[at..at + 3].iter().all(u8::is_ascii_alphabetic)
        && moment(&line[at + 4..]).is_some()
    {
        at += 4;
    }
    at += month(&line[at..]).or_else(|| moment(&line[at..]))?;
    let host = word(&line[at..], b"-._")?;
    // Some leave out the host.
    let tag = if line.get(at + host) == Some(&b' ') { at + host + 1 } else { at };
    let mut end = tag + word(&line[tag..], b"-._/@")?;
    let mut who = (at, end);
    if line.get(end) == Some(&b'[') {
        end += 1 + word(&line[end + 1..], b"-._")?;
        end += usize::from(line.get(end) == Some(&b']'));
        // A number is that of a process, and another one after a restart.
        let is_number = line[who.1 + 1..end - 1].iter().all(u8::is_ascii_digit);
        who.1 = if is_number { who.1 } else { end };
    }
    let length = with_blank(line, (line.get(end) == Some(&b':')).then_some(end + 1)?)?;
    Some(Peeled { length, who, is_partial: false })
}

/// `<14>`.
fn priority(line: &[u8]) -> Option<usize> {
    let inner = line.strip_prefix(b"<")?;
    let count = digits(inner);
    ((1..=3).contains(&count) && inner.get(count) == Some(&b'>')).then_some(count + 2)
}

fn rfc5424(line: &[u8]) -> Option<Peeled> {
    let mut at = priority(line)?;
    at += line[at..].starts_with(b"1 ").then_some(2)?;
    at += moment(&line[at..])?;
    let from = at;
    let mut who = (0, 0);
    for field in 0..4 {
        let length = memchr::memchr(b' ', &line[at..])?;
        // Host and program; a number and a kind of message follow.
        if field == 1 {
            who = (from, at + length);
        }
        at += length + 1;
    }
    // Data of the message, in brackets, or a dash.
    at += match line.get(at)? {
        b'[' => memchr::memmem::find(&line[at..], b"] ")? + 1,
        _ => memchr::memchr(b' ', &line[at..]).unwrap_or(line.len() - at),
    };
    let length = with_blank(line, at)?;
    let mark = if line[length..].starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    Some(Peeled { length: length + mark, who, is_partial: false })
}

fn cri(line: &[u8]) -> Option<Peeled> {
    let at = moment(line)?;
    let end = at + word(&line[at..], b"")?;
    if !matches!(&line[at..end], b"stdout" | b"stderr") {
        return None;
    }
    // P or F; further tags may follow, behind colons.
    let tags = line.get(end..)?.strip_prefix(b" ")?;
    let length = word(tags, b":-_.")?;
    let flag = &tags[..tags[..length].iter().position(|byte| *byte == b':').unwrap_or(length)];
    if !matches!(flag, b"F" | b"P") {
        return None;
    }
    let length = with_blank(line, end + 1 + length)?;
    Some(Peeled { length, who: (at, end), is_partial: flag == b"P" })
}

fn compose(line: &[u8]) -> Option<Peeled> {
    let at = clock(line).filter(|at| line.get(*at) == Some(&b' ')).map_or(0, |at| at + 1);
    let number = digits(&line[at..]);
    let at = if number > 0 && line.get(at + number) == Some(&b'|') { at + number + 1 } else { at };
    let end = at + word(&line[at..], b"-._@:")?;
    let channel = [&b" stdout"[..], b" stderr"].into_iter().find(|name| line[end..].starts_with(name));
    let behind = end + channel.map_or(0, <[u8]>::len);
    let blanks = line[behind..].iter().take_while(|byte| **byte == b' ').count();
    let bar = behind + blanks;
    if line.get(bar) != Some(&b'|') {
        return None;
    }
    Some(Peeled { length: with_blank(line, bar + 1)?, who: (at, end), is_partial: false })
}

fn kubectl(line: &[u8]) -> Option<Peeled> {
    let inner = line.strip_prefix(b"[")?;
    let end = 1 + word(inner, b"-._/")?;
    let is_pod = inner[..end - 1].contains(&b'/') && line.get(end) == Some(&b']');
    Some(Peeled { length: with_blank(line, is_pod.then_some(end + 1)?)?, who: (1, end), is_partial: false })
}

/// Names of a pod and its container: those of pods have a dash in them.
fn stern(line: &[u8]) -> Option<Peeled> {
    let pod = word(line, b"-.")?;
    let blanks = line[pod..].iter().take_while(|byte| **byte == b' ').count();
    let container = word(&line[pod + blanks..], b"-.")?;
    let end = pod + blanks + container;
    let is_pod = line[..pod].contains(&b'-') && (1..=2).contains(&blanks);
    Some(Peeled { length: with_blank(line, is_pod.then_some(end)?)?, who: (0, end), is_partial: false })
}

fn host(line: &[u8]) -> Option<Peeled> {
    let end = word(line, b"-._@")?;
    let is_name = line[..end].iter().any(u8::is_ascii_alphabetic) && line.get(end) == Some(&b':');
    Some(Peeled { length: with_blank(line, is_name.then_some(end + 1)?)?, who: (0, end), is_partial: false })
}

fn mail(line: &[u8]) -> Option<Peeled> {
    let mut at = 0;
    while line.get(at) == Some(&b'>') {
        at += 1;
        at += usize::from(line.get(at) == Some(&b' '));
    }
    (at > 0).then(|| behind(at))
}

fn lines(line: &[u8]) -> Option<Peeled> {
    let blanks = line.iter().take_while(|byte| is_blank(**byte)).count();
    let is_mark = |byte: &u8| matches!(byte, b':' | b'-');
    let number = |at: usize| {
        let count = digits(&line[at..]);
        (count > 0).then_some(at + count)
    };
    if let Some(end) = number(blanks) {
        // cat -n, nl, less -N; grep -n
        return match line.get(end) {
            Some(b'\t') => Some(behind(end + 1)),
            Some(mark) if is_mark(mark) && blanks == 0 => Some(behind(end + 1)),
            Some(b' ') if blanks > 0 => Some(behind(end + 1)),
            None => Some(behind(end)),
            _ => None,
        };
    }
    // grep with the name of a file, perhaps with a number behind it
    let name = word(line, b"./_+@%").filter(|_| blanks == 0)?;
    let name =
        name + line[name..].iter().take_while(|byte| !is_mark(byte) && byte.is_ascii_graphic()).count();
    let file = last_mark(line, name)?;
    // The line's own date is no number of a line.
    let is_date = line.get(file + 1..file + 9).is_some_and(|date| {
        date.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        })
    });
    match number(file + 1).filter(|end| !is_date && line.get(*end).is_some_and(is_mark)) {
        Some(end) => Some(behind(end + 1)),
        None => Some(behind(file + 1)),
    }
}

/// The mark behind a file's name that has an ending, such as `mysql-slow.log:`.
fn last_mark(line: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(byte) = line.get(at).filter(|byte| byte.is_ascii_graphic()) {
        let name = &line[..at];
        if matches!(byte, b':' | b'-') && (name.contains(&b'.') || name.contains(&b'/')) {
            return Some(at);
        }
        at += 1;
    }
    None
}
