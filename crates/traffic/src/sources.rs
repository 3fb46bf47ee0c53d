//! Any file of traffic: what it is, is found out by its content, never by its name.

#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod together;

use std::io::Read;
use std::path::Path;

use super::coverage::Coverage;
use super::event::{Event, Sink};
use super::packets::PacketOptions;
use super::packets::dump::{self, Dump};
use super::pieces::{BYTE_ORDER_MARK, without_banners};
use super::prefixed::First;
use super::recording::{MAGIC, Reader};
use super::wire::{Decoder, WireOptions};
use super::{binlog, exports, general_log, input, packets, prefixed, slow_log, unreadable};
use base::error::AgentError;

/// So much of a file tells what it is: the head of a log, its settings and its first statement.
const HEAD_BYTES: usize = 64 << 10;
/// Of a document of JSON, whose first record may be long.
const DOCUMENT_BYTES: usize = 1 << 20;

/// How files are read.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// Wait for more at the end of the file.
    pub follow: bool,
    /// Ports of the servers, for packets; empty for the usual one, or the first on which a server greets.
    pub ports: Vec<u16>,
    /// Sum up the rows of every answer, where a source has them.
    pub checksum: bool,
    /// Give also what only restores the state of sessions.
    pub state: bool,
    /// What the caller takes the source for: anything else is an error.
    pub expected: Option<Expected>,
}

/// Kinds of sources, by the names that pt-query-digest gives them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Expected {
    Slowlog,
    Genlog,
    Tcpdump,
    Binlog,
}

impl Expected {
    /// Checks what a source was found to be.
    ///
    /// # Errors
    /// It is something else: the caller named the wrong file or the wrong kind.
    pub fn check(self, kind: Kind, name: &str) -> anyhow::Result<()> {
        let is_it = match kind {
            Kind::SlowLog => self == Expected::Slowlog,
            Kind::GeneralLog => self == Expected::Genlog,
            Kind::Capture | Kind::PacketText => self == Expected::Tcpdump,
            Kind::BinaryLog | Kind::BinaryLogText => self == Expected::Binlog,
            Kind::Recording => false,
            Kind::Export | Kind::Prefixed => matches!(self, Expected::Slowlog | Expected::Genlog),
            Kind::Empty => true,
        };
        if is_it {
            return Ok(());
        }
        let found = kind.said();
        let asked = format!("{self:?}").to_lowercase();
        let reason =
            format!("{name} is {found}, not what --type {asked} says; leave out --type: the content tells");
        Err(AgentError::Named(reason).into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Capture,
    /// What tcpdump prints with `-x` and the like.
    PacketText,
    SlowLog,
    GeneralLog,
    Recording,
    /// What clients, clouds and shippers make of logs and tables.
    Export,
    /// A log whose lines have something before them.
    Prefixed,
    /// A binary or relay log, whole or a piece.
    BinaryLog,
    /// What mysqlbinlog has printed of one.
    BinaryLogText,
    /// Nothing in it, or not enough to tell.
    Empty,
}

impl Kind {
    fn said(self) -> &'static str {
        match self {
            Kind::SlowLog => "a slow log (slowlog)",
            Kind::GeneralLog => "a general log (genlog)",
            Kind::Capture | Kind::PacketText => "a capture (tcpdump)",
            Kind::BinaryLog | Kind::BinaryLogText => "a binary log (binlog)",
            Kind::Recording => "a recording",
            Kind::Export => "an export of a slow log, general log or summary",
            Kind::Prefixed => "a slow log or general log with something before each line",
            Kind::Empty => "empty",
        }
    }
}

/// What a file is, by its first bytes after decompression.
///
/// # Errors
/// It cannot be read, or is nothing that we know.
pub fn kind(path: &Path) -> anyhow::Result<Kind> {
    let mut input = input::open(path, false)?;
    let name = input.name().to_owned();
    let (kind, mut head) = head(&mut input, &name)?;
    Ok(in_order(kind, &mut head, &mut input, &name)?.0)
}

/// Gives every event of a file, a pipe (`-`) or a recording to the sink, and tells what was seen and missed.
///
/// # Errors
/// It cannot be read, is nothing that we know, or the sink has failed. Damage is not an error: it is counted.
pub fn read(path: &Path, options: &SourceOptions, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
    let mut input = input::open(path, options.follow)?;
    let name = input.name().to_owned();
    let (mut kind, mut head) = head(&mut input, &name)?;
    let mut problem = None;
    if !options.follow {
        (kind, problem) = in_order(kind, &mut head, &mut input, &name)?;
    }
    let input = Behind { problem, input };
    if let Some(expected) = options.expected {
        expected.check(kind, &name)?;
    }
    match kind {
        Kind::Export => return exports::read(head, input, &name, options.follow, sink),
        Kind::Prefixed => return prefixed::read(head, input, &name, options.follow, sink),
        _ => {}
    }
    let marks = if kind == Kind::GeneralLog { without_mark(&mut head) } else { 0 };
    let input = std::io::Cursor::new(head).chain(input);
    match kind {
        Kind::Capture => read_packets(&name, options, sink, true, |packet_options, decoder| {
            packets::read(input, &name, packet_options, decoder)
        }),
        Kind::PacketText => {
            let mut dump = Dump::open(input)?;
            read_packets(&name, options, sink, dump.has_times(), |packet_options, decoder| {
                packets::read_dump(&mut dump, &name, packet_options, decoder)
            })
        }
        Kind::SlowLog => slow_log::read(input, &name, sink),
        Kind::GeneralLog => {
            let mut coverage = general_log::read(input, &name, sink)?;
            coverage.bytes += marks;
            Ok(coverage)
        }
        // Only recorders ask for the state of sessions.
        Kind::BinaryLog | Kind::BinaryLogText if options.state => {
            let reason = format!(
                "{name} is a binary log: it has what changed, and neither reads nor sessions, so it cannot be recorded \
                 and replayed; `headrace digest` sums it up"
            );
            Err(AgentError::Named(reason).into())
        }
        Kind::BinaryLog => binlog::read(input, &name, sink),
        Kind::BinaryLogText => binlog::read_text(input, &name, sink),
        Kind::Recording => {
            if path == Path::new("-") || !input::is_plain(path)? {
                let reason =
                    format!("{name}: a recording is read from its own file, not compressed again, not piped");
                return Err(AgentError::Named(reason).into());
            }
            read_recording(&mut Reader::open(path)?, &name, options, sink)
        }
        Kind::Export | Kind::Prefixed | Kind::Empty => Ok(Coverage::default()),
    }
}

/// Takes an event to the sink.
type Give<'a> = &'a mut dyn FnMut(&Event<'_>) -> anyhow::Result<()>;

fn read_packets(
    name: &str,
    options: &SourceOptions,
    sink: &mut dyn Sink,
    has_times: bool,
    read: impl FnOnce(&PacketOptions, &mut Decoder<Give<'_>>) -> anyhow::Result<Coverage>,
) -> anyhow::Result<Coverage> {
    let wire = WireOptions {
        checksum: options.checksum,
        has_times,
        name: name.to_owned(),
        ..WireOptions::default()
    };
    let mut give = |event: &Event<'_>| sink.event(event);
    let mut decoder: Decoder<Give<'_>> = Decoder::with_options(&mut give, wire);
    let packet_options = PacketOptions::on(&options.ports);
    let mut coverage = read(&packet_options, &mut decoder)?;
    coverage.merge(&decoder.finish()?);
    Ok(coverage)
}

/// Gives the events of a recording in the order of their starts.
///
/// # Errors
/// As with `read`.
pub fn read_recording(
    reader: &mut Reader,
    name: &str,
    options: &SourceOptions,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let (mut events, mut read) = (0, 0);
    while let Some(event) = reader.next()? {
        read += 1;
        if event.is_state && !options.state {
            continue;
        }
        events += u64::from(event.is_asked());
        sink.event(&event)?;
    }
    let mut coverage = coverage_of(reader, name);
    // What was recorded may have been cut since, or damaged.
    coverage.events = events;
    // Of a block whose header is damaged, only the recorder's sum tells what stood in it.
    let written: Option<u64> = reader.info().iter().map(|info| Some(info.totals.as_ref()?.events)).sum();
    let missing = written.unwrap_or(0).saturating_sub(read);
    coverage.lost_events += missing.saturating_sub(reader.damage().lost_events);
    Ok(coverage)
}

/// What the recorders of a recording said, and the damage that was found in it until now.
#[must_use]
pub fn coverage_of(reader: &Reader, name: &str) -> Coverage {
    let mut coverage = Coverage::default();
    for info in reader.info() {
        match &info.totals {
            Some(totals) => coverage.merge(&totals.coverage),
            None => {
                coverage.damage(name, 0, 0, "its recorder was killed: what that could not see is not known")
            }
        }
    }
    coverage.merge(reader.damage());
    coverage
}

/// Reads until it is clear what this is.
fn head(input: &mut impl Read, name: &str) -> anyhow::Result<(Kind, Vec<u8>)> {
    let (mut head, mut looked_at) = (Vec::new(), HEAD_BYTES / 16);
    let mut buffer = vec![0; 8 << 10];
    loop {
        let bytes = match input.read(&mut buffer) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(anyhow::Error::new(error).context(format!("cannot read {name}"))),
        };
        head.extend_from_slice(&buffer[..bytes]);
        // The first bytes may be a magic, the longest of which has eight; after these every new line may tell.
        let is_begin = head.len() >= MAGIC.len() && head.len() < MAGIC.len() + bytes;
        // Looked at again only once there is twice as much of what has no lines.
        let is_more = head.len() >= 2 * looked_at;
        if (is_begin || bytes == 0 || is_more || buffer[..bytes].contains(&b'\n'))
            && let Some(kind) = kind_of(&head, bytes == 0)
        {
            if let Some(sentence) = unreadable::certain(&head) {
                return Err(AgentError::Named(format!("{name} is {sentence}")).into());
            }
            return Ok((kind, head));
        }
        if is_more {
            looked_at = head.len();
        }
        // What a server writes when it opens a log of either kind, and nothing more.
        if bytes == 0 && without_banners(&head).is_empty() {
            return Ok((Kind::Empty, head));
        }
        let is_document = matches!(head.trim_ascii_start().first(), Some(b'{' | b'['));
        if bytes == 0 || head.len() >= if is_document { DOCUMENT_BYTES } else { HEAD_BYTES } {
            if binlog::is_piece(&head) {
                return Ok((Kind::BinaryLog, head));
            }
            // A header may be whole, and the statement behind it longer than what is looked at.
            if let Some(kind) = kind_of(&head, true).filter(|_| bytes > 0) {
                return Ok((kind, head));
            }
            return Err(AgentError::Named(unreadable::reason(name, &head)).into());
        }
    }
}

/// What is behind a beginning that was read already, where reading that may have failed at its end.
struct Behind<R> {
    problem: Option<std::io::Error>,
    input: R,
}

impl<R: Read> Read for Behind<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.problem.take().map_or_else(|| self.input.read(buffer), Err)
    }
}

/// The kind of a log, once enough of it was read to tell that its lines were changed or that its oldest events do not come
/// first, and the damage that ended this.
fn in_order(
    kind: Kind,
    head: &mut Vec<u8>,
    input: &mut impl Read,
    name: &str,
) -> anyhow::Result<(Kind, Option<std::io::Error>)> {
    if !matches!(kind, Kind::SlowLog | Kind::GeneralLog | Kind::Prefixed) {
        return Ok((kind, None));
    }
    let missing = HEAD_BYTES.saturating_sub(head.len()) as u64;
    let problem = match input.take(missing).read_to_end(head) {
        Ok(_) => None,
        Err(error) if input::is_damage(&error) => Some(error),
        Err(error) => return Err(anyhow::Error::new(error).context(format!("cannot read {name}"))),
    };
    let is_changed = prefixed::is_changed(head);
    Ok((if is_changed { Kind::Prefixed } else { kind }, problem))
}

fn kind_of(head: &[u8], at_end: bool) -> Option<Kind> {
    if head.starts_with(&MAGIC) {
        return Some(Kind::Recording);
    }
    if packets::is_capture(head) {
        return Some(Kind::Capture);
    }
    if head.starts_with(&binlog::MAGIC) || head.starts_with(&binlog::ENCRYPTED_MAGIC) {
        return Some(Kind::BinaryLog);
    }
    if exports::is_export(head) {
        return Some(Kind::Export);
    }
    if is_binary_log_text(head) {
        return Some(Kind::BinaryLogText);
    }
    if is_packet_text(head) {
        return Some(Kind::PacketText);
    }
    prefixed::first(head.strip_prefix(BYTE_ORDER_MARK).unwrap_or(head), at_end).map(|first| match first {
        First::SlowLog => Kind::SlowLog,
        First::GeneralLog => Kind::GeneralLog,
        First::Prefixed => Kind::Prefixed,
    })
}

/// Whether the first line that tells is one of mysqlbinlog.
fn is_binary_log_text(head: &[u8]) -> bool {
    let whole = head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.take_while(|line| !slow_log::is_header_line(line)).any(binlog::is_text)
}

/// The bytes of a packet come first; in a log they may be part of a statement.
fn is_packet_text(head: &[u8]) -> bool {
    let lines = head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    let mut first = lines.filter(|line| dump::is_first_hex(line) || slow_log::is_header_line(line));
    first.next().is_some_and(dump::is_first_hex)
}

/// Takes off what editors put at the beginning of text. Gives its length.
fn without_mark(head: &mut Vec<u8>) -> u64 {
    if !head.starts_with(BYTE_ORDER_MARK) {
        return 0;
    }
    head.drain(..BYTE_ORDER_MARK.len());
    BYTE_ORDER_MARK.len() as u64
}

#[cfg(test)]
mod tests {
    use super::{Kind, head};
    use crate::rewritten::InPieces;

    fn kind(content: &[u8]) -> Option<Kind> {
        // One byte at a time, as a pipe may give it.
        head(&mut InPieces(content, 1), "a file").ok().map(|(kind, read)| {
            assert!(content.starts_with(&read));
            kind
        })
    }

    #[test]
    fn a_file_is_known_by_its_content() {
        let begin = "/usr/sbin/mariadbd, Version: 10.11 (Debian). started with:\nTcp port: 0  Unix socket: /a b\n\
                     Time\t\t    Id Command\tArgument\n";
        let head_of_8 = "/usr/sbin/mysqld, Version: 8.0.36. started with:\nTcp port: 3306\nTime                 Id Command    Argument\n";
        for begin in ["", begin, head_of_8] {
            let slow = format!("{begin}# Time: 2026-11-21T10:00:00.000001Z\n# User@Host: a[a] @ b []\n");
            assert_eq!(kind(slow.as_bytes()), Some(Kind::SlowLog));
            for line in [
                "2026-11-21T10:00:00.123456Z\t    8 Query\tselect 1\n",
                "261121 15:00:00\t     4 Connect\troot@localhost on  using Socket\n",
                "\t\t     4 Query\tselect\n",
                "070207 21:55:24\t     42 Connect     root@localhost on db1\n",
                "070207  0:55:24      51 Query       SELECT a\n",
                "2016-06-07T19:07:02.558338Z    3 Connect\troot@localhost on  using Socket\n",
            ] {
                assert_eq!(kind(format!("{begin}{line}").as_bytes()), Some(Kind::GeneralLog), "{line}");
            }
            assert_eq!(kind(begin.as_bytes()), Some(Kind::Empty));
            // An unreadable source is not an empty one.
            assert_eq!(kind(format!("{begin}something else\n").as_bytes()), None);
        }
        assert_eq!(kind(b"\x89HRREC\r\nand more"), Some(Kind::Recording));
        assert_eq!(kind(b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0"), Some(Kind::Capture));
        assert_eq!(kind(b"\x0a\x0d\x0d\x0a\x1c\0\0\0\x4d\x3c\x2b\x1a"), Some(Kind::Capture));
    }

    #[test]
    fn text_of_tcpdump_is_known_by_its_hex() {
        let line = "07:05:14.622922 IP 127.0.0.1.44872 > 127.0.0.1.3306: tcp 0\n";
        let hex = "\t0x0000:  4500 003c a53c 4000 4006 977d 7f00 0001\n";
        let first = "reading from file a.pcap, link-type EN10MB (Ethernet), snapshot length 262144\n";
        for begin in ["", first] {
            assert_eq!(kind(format!("{begin}{line}{hex}").as_bytes()), Some(Kind::PacketText));
        }
        let ascii = format!("{line}E..<.<@.@..}}.........H..pbO.........0.........\n");
        let refusal = head(&mut ascii.as_bytes(), "a file").unwrap_err().to_string();
        assert!(refusal.contains("tcpdump -n -x -tttt"), "{refusal}");
        assert!(
            !head(&mut &b"hello > world: 12:00\n"[..], "a file").unwrap_err().to_string().contains("tcpdump")
        );
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        for content in [&b"hello\nworld\n"[..], b"\x89HRRE", b"\x7fELF", &[0; 100_000], b"\t12 query\n"] {
            assert_eq!(kind(content), None, "{:?}", &content[..content.len().min(20)]);
        }
    }
}
