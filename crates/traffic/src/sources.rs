//! Any file of traffic: what it is, is found out by its content, never by its name.

use std::io::Read;
use std::path::Path;

use super::coverage::Coverage;
use super::event::{Event, Sink};
use super::packets::PacketOptions;
use super::pieces::without_banners;
use super::recording::{MAGIC, Reader};
use super::wire::{Decoder, WireOptions};
use super::{general_log, input, packets, slow_log};
use base::error::AgentError;

/// So much of a file tells what it is: the head of a log, its settings and its first statement.
const HEAD_BYTES: usize = 64 << 10;

/// How files are read.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    /// Wait for more at the end of the file.
    pub follow: bool,
    /// Ports of the servers, for packets.
    pub ports: Vec<u16>,
    /// Sum up the rows of every answer, where a source has them.
    pub checksum: bool,
    /// Give also what only restores the state of sessions.
    pub state: bool,
}

impl Default for SourceOptions {
    fn default() -> Self {
        SourceOptions { follow: false, ports: vec![3306], checksum: false, state: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Capture,
    SlowLog,
    GeneralLog,
    Recording,
    /// Nothing in it, or not enough to tell.
    Empty,
}

/// What a file is, by its first bytes after decompression.
///
/// # Errors
/// It cannot be read, or is nothing that we know.
pub fn kind(path: &Path) -> anyhow::Result<Kind> {
    let mut input = input::open(path, false)?;
    let name = input.name().to_owned();
    Ok(head(&mut input, &name)?.0)
}

/// Gives every event of a file, a pipe (`-`) or a recording to the sink, and tells what was seen and missed.
///
/// # Errors
/// It cannot be read, is nothing that we know, or the sink has failed. Damage is not an error: it is counted.
pub fn read(path: &Path, options: &SourceOptions, sink: &mut dyn Sink) -> anyhow::Result<Coverage> {
    let mut input = input::open(path, options.follow)?;
    let name = input.name().to_owned();
    let (kind, head) = head(&mut input, &name)?;
    let input = std::io::Cursor::new(head).chain(input);
    match kind {
        Kind::Capture => read_capture(input, &name, options, sink),
        Kind::SlowLog => slow_log::read(input, &name, sink),
        Kind::GeneralLog => general_log::read(input, &name, sink),
        Kind::Recording => {
            if path == Path::new("-") || !input::is_plain(path)? {
                let reason =
                    format!("{name}: a recording is read from its own file, not compressed again, not piped");
                return Err(AgentError::Named(reason).into());
            }
            read_recording(&mut Reader::open(path)?, &name, options, sink)
        }
        Kind::Empty => Ok(Coverage::default()),
    }
}

fn read_capture(
    input: impl Read,
    name: &str,
    options: &SourceOptions,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    let wire = WireOptions { checksum: options.checksum, name: name.to_owned(), ..WireOptions::default() };
    let mut decoder = Decoder::with_options(|event: &Event<'_>| sink.event(event), wire);
    let packet_options = PacketOptions { ports: options.ports.clone(), ..PacketOptions::default() };
    let mut coverage = packets::read(input, name, &packet_options, &mut decoder)?;
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
        events += u64::from(!event.is_state);
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
    let mut head = Vec::new();
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
        if (is_begin || bytes == 0 || buffer[..bytes].contains(&b'\n'))
            && let Some(kind) = kind_of(&head)
        {
            return Ok((kind, head));
        }
        // What a server writes when it opens a log of either kind, and nothing more.
        if bytes == 0 && without_banners(&head).is_empty() {
            return Ok((Kind::Empty, head));
        }
        if bytes == 0 || head.len() >= HEAD_BYTES {
            let reason = format!("{name} is no capture, slow log, general log or recording that can be told");
            return Err(AgentError::Named(reason).into());
        }
    }
}

fn kind_of(head: &[u8]) -> Option<Kind> {
    if head.starts_with(&MAGIC) {
        return Some(Kind::Recording);
    }
    if packets::is_capture(head) {
        return Some(Kind::Capture);
    }
    head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).find_map(kind_of_line)
}

fn kind_of_line(line: &[u8]) -> Option<Kind> {
    const SLOW: [&[u8]; 5] =
        [b"# Time: ", b"# User@Host: ", b"# Query_time: ", b"# Thread_id: ", b"# administrator"];
    if SLOW.iter().any(|begin| line.starts_with(begin)) {
        return Some(Kind::SlowLog);
    }
    general_log::is_event(line).then_some(Kind::GeneralLog)
}

#[cfg(test)]
mod tests {
    use super::{Kind, head};

    fn kind(content: &[u8]) -> Option<Kind> {
        // One byte at a time, as a pipe may give it.
        struct Slow<'a>(&'a [u8]);
        impl std::io::Read for Slow<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
                buffer[0] = *first;
                self.0 = rest;
                Ok(1)
            }
        }
        head(&mut Slow(content), "a file").ok().map(|(kind, read)| {
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
    fn what_nobody_knows_is_refused() {
        for content in [&b"hello\nworld\n"[..], b"\x89HRRE", b"\x7fELF", &[0; 100_000], b"\t12 query\n"] {
            assert_eq!(kind(content), None, "{:?}", &content[..content.len().min(20)]);
        }
    }
}
