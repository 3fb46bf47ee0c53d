//! One line of a client: what it asks for, of which keys, how long the value behind it is, and what may answer it.
//!
//! Source: memcached's `doc/protocol.txt`, and what 1.6.18 does with lines that are not as they should be: it reads no
//! value after these, so its next command is the next line.

/// memcached's own limit.
const LONGEST_KEY: usize = 250;
/// What a server of memcached takes for a length.
const LONGEST_VALUE: u64 = i32::MAX as u64 - 2;

/// Requests that are answered alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum Shape {
    /// Values of some keys and an end.
    Get,
    Store,
    Delete,
    Count,
    Touch,
    MetaGet,
    MetaSet,
    MetaDelete,
    MetaCount,
    MetaDebug,
    MetaNoop,
    /// Any one line.
    Line,
    /// Lines up to one that ends them.
    Lines,
    /// What comes from now on is no answer of the protocol (`watch`), or nothing (`quit`).
    Last,
}

impl Shape {
    /// Whether an answer tells if the key was there.
    pub fn looks_up(self) -> bool {
        use Shape::{Count, Delete, Get, MetaCount, MetaDelete, MetaGet, Touch};
        matches!(self, Get | Delete | Count | Touch | MetaGet | MetaDelete | MetaCount)
    }
}

/// A command's number is its place here; the last is every unknown command.
pub const COMMANDS: [(&str, Shape); 35] = [
    ("get", Shape::Get),
    ("gets", Shape::Get),
    ("gat", Shape::Get),
    ("gats", Shape::Get),
    ("set", Shape::Store),
    ("add", Shape::Store),
    ("replace", Shape::Store),
    ("append", Shape::Store),
    ("prepend", Shape::Store),
    ("cas", Shape::Store),
    ("delete", Shape::Delete),
    ("incr", Shape::Count),
    ("decr", Shape::Count),
    ("touch", Shape::Touch),
    ("mg", Shape::MetaGet),
    ("ms", Shape::MetaSet),
    ("md", Shape::MetaDelete),
    ("ma", Shape::MetaCount),
    ("me", Shape::MetaDebug),
    ("mn", Shape::MetaNoop),
    ("version", Shape::Line),
    ("flush_all", Shape::Line),
    ("verbosity", Shape::Line),
    ("stats", Shape::Lines),
    ("lru_crawler", Shape::Lines),
    ("lru", Shape::Line),
    ("slabs", Shape::Line),
    ("extstore", Shape::Line),
    ("cache_memlimit", Shape::Line),
    ("refresh_certs", Shape::Line),
    ("misbehave", Shape::Line),
    ("watch", Shape::Last),
    ("quit", Shape::Last),
    ("shutdown", Shape::Last),
    ("(unknown)", Shape::Line),
];
pub const UNKNOWN: u8 = COMMANDS.len() as u8 - 1;

/// Whether anything answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    No,
    /// Nothing but an error does (`noreply`).
    Always,
    /// Nothing does if it went as usual (`q` of the meta commands).
    Usually,
}

/// A line that was taken apart; keys and tokens are parts of it.
pub struct Line<'a> {
    pub command: u8,
    pub keys: Vec<&'a [u8]>,
    /// Bytes of the value behind it, without its end of line.
    pub value: Option<u64>,
    pub quiet: Quiet,
    /// The key is in base64.
    pub is_encoded: bool,
    pub opaque: Option<&'a [u8]>,
    /// The answer is to name the key.
    pub names_key: bool,
    /// What is missing is made, empty; and it may be told to be renewed for another reason, too.
    pub vivifies: bool,
    pub recaches: bool,
}

/// Whether a server would know what these bytes begin with.
pub fn is_request(bytes: &[u8]) -> bool {
    let end = bytes.iter().take(16).position(|byte| matches!(byte, b' ' | b'\r' | b'\n'));
    end.is_some_and(|end| number(&bytes[..end]) != UNKNOWN)
}

fn number(word: &[u8]) -> u8 {
    let known = &COMMANDS[..usize::from(UNKNOWN)];
    known.iter().position(|(name, _)| name.as_bytes() == word).map_or(UNKNOWN, |at| at as u8)
}

/// Takes a line without its end apart.
pub fn parse(line: &[u8]) -> Line<'_> {
    let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let command = words.next().map_or(UNKNOWN, number);
    let mut found = Line {
        command,
        keys: Vec::new(),
        value: None,
        quiet: Quiet::No,
        is_encoded: false,
        opaque: None,
        names_key: false,
        vivifies: false,
        recaches: false,
    };
    let (name, shape) = COMMANDS[usize::from(command)];
    match shape {
        Shape::Get => found.keys = words.skip(usize::from(name.starts_with("ga"))).collect(),
        Shape::MetaGet | Shape::MetaSet | Shape::MetaDelete | Shape::MetaCount | Shape::MetaDebug => {
            found.keys = words.next().into_iter().collect();
            found.meta(shape, words);
        }
        Shape::Lines | Shape::Last | Shape::MetaNoop => {}
        _ => {
            let words: Vec<_> = words.take(8).collect();
            if words.last() == Some(&&b"noreply"[..]) {
                found.quiet = Quiet::Always;
            }
            if !matches!(shape, Shape::Line) {
                found.keys = words.first().copied().into_iter().collect();
            }
            if shape == Shape::Store {
                found.value = value(&words, name == "cas").filter(|_| has_usual_key(&found.keys));
            }
        }
    }
    found
}

impl<'a> Line<'a> {
    fn meta(&mut self, shape: Shape, words: impl Iterator<Item = &'a [u8]>) {
        for (at, word) in words.enumerate() {
            if shape == Shape::MetaSet && at == 0 {
                self.value = length(word).filter(|_| has_usual_key(&self.keys));
                continue;
            }
            match word[0] {
                b'q' => self.quiet = Quiet::Usually,
                b'b' => self.is_encoded = true,
                b'k' => self.names_key = true,
                b'O' => self.opaque = Some(&word[1..]),
                b'N' => self.vivifies = true,
                b'R' => self.recaches = true,
                _ => {}
            }
        }
    }
}

fn has_usual_key(keys: &[&[u8]]) -> bool {
    keys.first().is_some_and(|key| key.len() <= LONGEST_KEY)
}

fn length(word: &[u8]) -> Option<u64> {
    digits(word).filter(|length| *length <= LONGEST_VALUE)
}

/// A number without a sign.
pub fn digits(word: &[u8]) -> Option<u64> {
    if word.is_empty() || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The length in what follows a storage command: `<key> <flags> <time> <length> [<cas>] [noreply]`.
fn value(words: &[&[u8]], is_cas: bool) -> Option<u64> {
    let least = 4 + usize::from(is_cas);
    let time = words.get(2)?.strip_prefix(b"-").unwrap_or(words[2]);
    let is_whole = (least..=least + 1).contains(&words.len())
        && digits(words[1]).is_some_and(|flags| u32::try_from(flags).is_ok())
        && digits(time).is_some_and(|time| i32::try_from(time).is_ok())
        && (!is_cas || digits(words[4]).is_some());
    length(words.get(3)?).filter(|_| is_whole)
}
