//! Several files at once: which of them are read as one, and which are the same.

use std::collections::HashSet;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Kind, SourceOptions, head, read, read_packets};
use crate::coverage::Coverage;
use crate::event::Sink;
use crate::input;
use crate::packets::dump::Dump;
use crate::packets::several::{Capture, read_together};
use crate::packets::{self, PacketOptions};
use crate::stream::Streams;
use base::error::AgentError;

/// Files that are read as one, or one file.
pub type Group = Vec<PathBuf>;

/// Brings together what is one traffic in several files, in the order in which they were named, and leaves out those that
/// were named before, by this or another name. Files that are followed are read one by one.
pub fn grouped(paths: &[PathBuf], follow: bool, coverage: &mut Coverage) -> Vec<Group> {
    let (mut seen, mut groups) = (HashSet::new(), Vec::<Group>::new());
    let mut captures: Option<usize> = None;
    for path in paths {
        let file = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file);
        if file.as_ref().is_some_and(|file| !seen.insert((file.dev(), file.ino()))) {
            let name = path.display().to_string();
            coverage.note(&name, "left out: this file was named before, by this or another name");
            continue;
        }
        // What is no file can be read only once.
        let is_capture = paths.len() > 1 && !follow && file.is_some() && is_capture(path);
        match captures {
            Some(place) if is_capture => groups[place].push(path.clone()),
            _ => {
                captures = captures.or(is_capture.then_some(groups.len()));
                groups.push(vec![path.clone()]);
            }
        }
    }
    groups
}

fn is_capture(path: &Path) -> bool {
    // What is wrong with a file is said where it is read.
    let Ok(mut input) = input::open(path, false) else { return false };
    let name = input.name().to_owned();
    matches!(head(&mut input, &name), Ok((Kind::Capture, _)))
}

/// What the files of a group are called.
#[must_use]
pub fn name_of(group: &[PathBuf]) -> String {
    let named = |path: &PathBuf| {
        if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
    };
    group.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// Reads a group as `read` does a file.
///
/// # Errors
/// As with `read`.
pub fn read_group(
    group: &[PathBuf],
    options: &SourceOptions,
    sink: &mut dyn Sink,
) -> anyhow::Result<Coverage> {
    if let [path] = group {
        return read(path, options, sink);
    }
    let name = name_of(group);
    if let Some(expected) = options.expected {
        expected.check(Kind::Capture, &name)?;
    }
    let captures = captures(group);
    read_packets(&name, options, sink, true, |packet_options, decoder| {
        read_together(&captures, packet_options, decoder)
    })
}

fn captures(group: &[PathBuf]) -> Vec<Capture> {
    let capture = |path: &PathBuf| {
        let (name, path) = (path.display().to_string(), path.clone());
        let open =
            move || -> anyhow::Result<Box<dyn Read + Send>> { Ok(Box::new(input::open(&path, false)?)) };
        Capture { name, open: Box::new(open) }
    };
    group.iter().map(capture).collect()
}

/// Gives what the connections of a capture, or of several, carry, whatever their protocol.
///
/// # Errors
/// It cannot be read, is no capture, or its packets have no times.
pub fn read_streams(
    group: &[PathBuf],
    options: &PacketOptions,
    streams: &mut impl Streams,
) -> anyhow::Result<Coverage> {
    let [path] = group else { return read_together(&captures(group), options, streams) };
    let mut input = input::open(path, false)?;
    let name = input.name().to_owned();
    let (kind, head) = head(&mut input, &name)?;
    let input = std::io::Cursor::new(head).chain(input);
    match kind {
        Kind::Capture => packets::read(input, &name, options, streams),
        Kind::PacketText => {
            let mut dump = Dump::open(input)?;
            if !dump.has_times() {
                let reason = format!("the packets in {name} have no times: print them with tcpdump -tttt");
                return Err(AgentError::Named(reason).into());
            }
            packets::read_dump(&mut dump, &name, options, streams)
        }
        kind => Err(AgentError::Named(format!("{name} is {}, and no capture", kind.said())).into()),
    }
}
