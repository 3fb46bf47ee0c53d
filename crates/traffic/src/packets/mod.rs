//! Packets: capture files, link layers, TCP put together again.
//!
//! The readers are written here and not taken from crates: a record is found in a few lines, must be handed on where
//! it lies, and what is damaged has to be counted with its place instead of ending the reading.
//!
//! Times are those of the packet that brought the bytes. Bytes that waited for others before them (lost or overtaken
//! on the network) have the time of the last of these, since only then could anybody read them. So a response time is
//! what the program on the captured host saw: from the first byte of its request on the wire to the last byte of the
//! answer that completed the order, network included when captured at the client.
//!
//! A packet that was captured on several interfaces (a bridge and its port) counts once, its copies as retransmitted;
//! where addresses are translated between the two, its connection is seen twice, and one interface has to be chosen.
//!
//! Fragments of IP are not put together: TCP avoids them. The first one counts, others are damage, and a gap.

mod connection;
mod frame;
mod link;
mod options;
mod pcap;
mod pcapng;
mod table;
#[cfg(test)]
mod tests;
mod window;

use std::collections::HashMap;
use std::io::{ErrorKind, Read};

use self::frame::{Frame, Frames};
pub(super) use self::link::network;
use self::link::{Link, Parsed};
pub use self::options::PacketOptions;
use self::options::Servers;
use self::table::Table;
use self::window::Window;
use super::coverage::Coverage;
use super::stream::Streams;
use base::error::AgentError;

/// From frames to streams.
pub(super) struct Packets<'a, S> {
    name: &'a str,
    servers: Servers,
    table: Table,
    coverage: Coverage,
    /// Packets by the ports of those that are no server's: to say where else to look.
    others: HashMap<u16, u64>,
    /// A link type that is not read.
    unknown_link: Option<u16>,
    streams: &'a mut S,
}

impl<'a, S: Streams> Packets<'a, S> {
    pub fn new(name: &'a str, options: &PacketOptions, streams: &'a mut S) -> Self {
        Self {
            name,
            servers: Servers::new(options),
            table: Table::new(options),
            coverage: Coverage::default(),
            others: HashMap::new(),
            unknown_link: None,
            streams,
        }
    }

    pub fn parsed(
        &mut self,
        time_ns: u64,
        parsed: &Parsed<'_>,
        offset: u64,
        item: u64,
    ) -> anyhow::Result<()> {
        self.coverage.packets += 1;
        match parsed {
            Parsed::Segment(segment) => {
                if !self.servers.has(segment.source) && !self.servers.has(segment.destination) {
                    self.coverage.other_packets += 1;
                    *self.others.entry(segment.source.port).or_default() += 1;
                    *self.others.entry(segment.destination.port).or_default() += 1;
                    return Ok(());
                }
                if segment.data.len() < segment.length as usize {
                    self.coverage.cut_packets += 1;
                }
                self.table.segment(time_ns, segment, &self.servers, self.streams, &mut self.coverage)?;
            }
            Parsed::Other | Parsed::Copy => self.coverage.other_packets += 1,
            Parsed::Cut => self.coverage.cut_packets += 1,
            Parsed::Fragment => {
                self.coverage.damage(self.name, offset, item, "a fragment of IP, which is not put together");
            }
            Parsed::Damaged(reason) => self.coverage.damage(self.name, offset, item, *reason),
        }
        Ok(())
    }

    /// Where to look when nothing was found: a wrong port is the commonest mistake, and looks like a silent server.
    fn advice(&self) -> Option<String> {
        if self.coverage.other_packets < self.coverage.packets {
            return None;
        }
        if self.others.is_empty() {
            return self
                .unknown_link
                .map(|number| format!("its link type, {number}, is not one that is read"));
        }
        let mut ports: Vec<_> = self.others.iter().map(|(port, packets)| (*packets, *port)).collect();
        ports.sort_unstable_by(|a, b| b.cmp(a));
        let named: Vec<_> =
            ports.iter().take(3).map(|(packets, port)| format!("{port} ({packets})")).collect();
        Some(format!("no packet of a server; its busiest ports: {} (see --port)", named.join(", ")))
    }

    pub fn finish(mut self) -> anyhow::Result<Coverage> {
        if let Some(advice) = self.advice() {
            eprintln!("headrace-agent: {}: {advice}", self.name);
            self.coverage.note(self.name, advice);
        }
        let Self { table, mut coverage, streams, .. } = self;
        table.finish(streams, &mut coverage)?;
        Ok(coverage)
    }
}

impl<S: Streams> Frames for Packets<'_, S> {
    fn frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        if let Link::Unknown(number) = frame.link {
            self.unknown_link = Some(number);
        }
        let parsed = link::parse(frame.link, frame.data, frame.wire_bytes);
        self.parsed(frame.time_ns, &parsed, frame.offset, frame.item)
    }

    fn damage(&mut self, offset: u64, item: u64, skipped: u64, reason: &str) {
        self.coverage.damage(self.name, offset, item, reason);
        self.coverage.skipped_bytes += skipped;
    }

    fn dropped(&mut self, packets: u64) {
        self.coverage.dropped_packets = self.coverage.dropped_packets.saturating_add(packets);
    }
}

/// Whether an input that begins so is a capture.
#[must_use]
pub fn is_capture(begin: &[u8]) -> bool {
    begin
        .first_chunk()
        .is_some_and(|&magic| magic == pcapng::MAGIC || pcap::Format::from_magic(magic).is_some())
}

/// Reads a capture to its end and hands on what connections of the servers carry.
///
/// The counts are those of the file, of packets and of sessions; what is in these is the decoder's to count.
///
/// # Errors
/// The input cannot be read or is not a capture; or as `streams` says.
pub fn read(
    input: impl Read,
    name: &str,
    options: &PacketOptions,
    streams: &mut impl Streams,
) -> anyhow::Result<Coverage> {
    let mut window = Window::new(input);
    let mut packets = Packets::new(name, options, streams);
    if let Err(error) = read_frames(&mut window, &mut packets) {
        let is_damage = |kind| matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::InvalidData);
        if !error.downcast_ref::<std::io::Error>().is_some_and(|error| is_damage(error.kind())) {
            return Err(error.context(format!("cannot read the capture {name}")));
        }
        // A compressed file that was cut: what came out of it counts.
        let left = window.bytes().len() as u64;
        packets.damage(window.offset(), 0, left, &format!("{error:#}"));
    }
    let mut coverage = packets.finish()?;
    coverage.bytes = window.offset() + window.bytes().len() as u64;
    Ok(coverage)
}

fn read_frames<R: Read>(window: &mut Window<R>, frames: &mut impl Frames) -> anyhow::Result<()> {
    window.fill(4)?;
    let Some(magic) = window.bytes().first_chunk().copied() else {
        let left = window.bytes().len() as u64;
        frames.damage(0, 0, left, "too short for a capture");
        return Ok(());
    };
    match pcap::Format::from_magic(magic) {
        Some(format) => pcap::read(format, window, frames),
        None if magic == pcapng::MAGIC => pcapng::read(window, frames),
        None => Err(AgentError::Named("neither pcap nor pcapng".to_owned()).into()),
    }
}
