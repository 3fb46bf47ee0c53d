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
//! Packets in tunnels are read whatever tunnel it is (`tunnels`), and connections of different tunnels are kept apart.
//! Fragments of IP are put together; what does not become whole is damage, and a gap.

mod connection;
pub mod dump;
mod early;
mod fragments;
mod frame;
mod layers;
mod link;
mod network;
mod options;
mod order;
mod others;
mod path;
mod pcap;
mod pcapng;
mod rarer;
mod segment;
pub mod several;
mod table;
#[cfg(test)]
mod tests;
pub(super) mod tunnels;
mod wifi;
mod window;

use std::collections::{BTreeSet, HashMap};
use std::io::{ErrorKind, Read};

use self::dump::Dump;
use self::early::Early;
use self::fragments::{Fragments, Taken};
use self::frame::{Frame, Frames};
pub use self::options::PacketOptions;
use self::options::Servers;
use self::order::{MOST_HELD, Ordered};
use self::others::Other;
use self::path::Path;
use self::segment::{Content, Parsed, Segment};
use self::table::Table;
use self::window::Window;
use super::coverage::Coverage;
use super::stream::Streams;
use base::error::AgentError;

/// Ports and tunnels that are counted apart; their numbers may be a stranger's choice.
const MOST_COUNTED: usize = 65_536;
const MEMCACHED_PORT: u16 = 11_211;
/// Ports that are named where no packet is one of a server.
const NAMED_PORTS: usize = 3;

/// From frames to streams.
pub(super) struct Packets<'a, S> {
    name: &'a str,
    servers: Servers,
    table: Table,
    fragments: Fragments,
    coverage: Coverage,
    /// The way of the packet at hand.
    path: Path,
    /// Packets of the servers by their tunnel: its name, and how many.
    tunnels: HashMap<u64, (String, u64)>,
    /// Packets that are no server's, by what they are; those of TCP by their ports, too, to say where else to look.
    others: HashMap<Other, u64>,
    ports: HashMap<u16, u64>,
    /// Other ports on which a server of MySQL greeted.
    speaking: BTreeSet<u16>,
    /// While no port was named, and no packet came from the usual one.
    early: Option<Early>,
    streams: &'a mut S,
}

/// A packet's place in the input.
#[derive(Clone, Copy)]
struct At {
    time_ns: u64,
    offset: u64,
    item: u64,
}

impl<'a, S: Streams> Packets<'a, S> {
    pub fn new(name: &'a str, options: &PacketOptions, streams: &'a mut S) -> Self {
        Self {
            name,
            servers: Servers::new(options),
            table: Table::new(options),
            fragments: Fragments::default(),
            coverage: Coverage::default(),
            path: Path::default(),
            tunnels: HashMap::new(),
            others: HashMap::new(),
            ports: HashMap::new(),
            speaking: BTreeSet::new(),
            early: options.finds_port.then(Early::default),
            streams,
        }
    }

    /// A packet that begins with what its EtherType says.
    pub fn network(
        &mut self,
        time_ns: u64,
        (protocol, data, wire_bytes): (u16, &[u8], usize),
        offset: u64,
        item: u64,
    ) -> anyhow::Result<()> {
        self.path.clear();
        let inside = Parsed::Inside(Content::Network(protocol), data, wire_bytes);
        let parsed = network::content(inside, &mut self.path);
        self.parsed(At { time_ns, offset, item }, &parsed)
    }

    fn parsed(&mut self, at: At, parsed: &Parsed<'_>) -> anyhow::Result<()> {
        self.coverage.packets += 1;
        if !self.fragments.is_empty() {
            let path = self.path;
            self.give_up_fragments(at, Some(at.time_ns))?;
            self.path = path;
        }
        let fragment = match parsed {
            Parsed::Fragment(fragment) => fragment,
            parsed => return self.whole(at, parsed),
        };
        match self.fragments.take(at.time_ns, fragment, &self.path) {
            Taken::Waits => {}
            Taken::Again => self.coverage.retransmitted_packets += 1,
            Taken::Damaged(reason) => self.coverage.damage(self.name, at.offset, at.item, reason),
            Taken::Whole(packet) => self.reassembled(at, &packet)?,
        }
        Ok(())
    }

    fn reassembled(&mut self, at: At, packet: &fragments::Packet) -> anyhow::Result<()> {
        self.path = packet.path;
        let bytes = &packet.bytes[..];
        // Of one that is not whole, more was sent than came.
        let wire_bytes = if packet.is_whole { bytes.len() } else { bytes.len().max(20) };
        let parsed = network::payload(packet.ends, packet.protocol, bytes, wire_bytes, &mut self.path);
        let parsed = network::content(parsed, &mut self.path);
        if let Parsed::Fragment(fragment) = &parsed {
            // Fragments of a packet in a tunnel that was cut itself.
            if let Taken::Whole(inner) = self.fragments.take(packet.time_ns, fragment, &self.path) {
                return self.reassembled(at, &inner);
            }
            return Ok(());
        }
        self.whole(At { time_ns: packet.time_ns, ..at }, &parsed)
    }

    fn give_up_fragments(&mut self, at: At, now_ns: Option<u64>) -> anyhow::Result<()> {
        while let Some(given_up) = self.fragments.give_up(now_ns) {
            let Some(packet) = given_up else { continue };
            self.coverage.damage(
                self.name,
                at.offset,
                at.item,
                "a packet of IP of which not all fragments came",
            );
            if !packet.bytes.is_empty() {
                self.reassembled(at, &packet)?;
            }
        }
        Ok(())
    }

    fn whole(&mut self, at: At, parsed: &Parsed<'_>) -> anyhow::Result<()> {
        match parsed {
            Parsed::Segment(segment) => {
                if self.servers.has(segment.source) || self.servers.has(segment.destination) {
                    self.early = None;
                    return self.server_segment(at.time_ns, segment);
                }
                return self.other_segment(at.time_ns, segment);
            }
            Parsed::Other(other) => {
                self.coverage.other_packets += 1;
                *self.others.entry(*other).or_default() += 1;
            }
            Parsed::Copy => {
                self.coverage.other_packets += 1;
                *self.others.entry(Other::Named("copies on a loopback device")).or_default() += 1;
            }
            Parsed::Cut => self.coverage.cut_packets += 1,
            Parsed::Damaged(reason) => self.coverage.damage(self.name, at.offset, at.item, *reason),
            // Both were taken apart before.
            Parsed::Fragment(_) | Parsed::Inside(..) => {}
        }
        Ok(())
    }

    fn server_segment(&mut self, time_ns: u64, segment: &Segment<'_>) -> anyhow::Result<()> {
        self.coverage.server_packets += 1;
        if segment.path != 0 && self.path.is_tunnel() {
            self.count_tunnel();
        }
        if segment.data.len() < segment.length as usize {
            self.coverage.cut_packets += 1;
        }
        self.table.segment(time_ns, segment, &self.servers, self.streams, &mut self.coverage)
    }

    fn other_segment(&mut self, time_ns: u64, segment: &Segment<'_>) -> anyhow::Result<()> {
        let is_greeting = is_greeting(segment.data);
        if is_greeting && let Some(early) = self.early.take() {
            self.found_port(segment.source.port, early)?;
            return self.server_segment(time_ns, segment);
        }
        self.coverage.other_packets += 1;
        *self.others.entry(Other::Tcp).or_default() += 1;
        for port in [segment.source.port, segment.destination.port] {
            *self.ports.entry(port).or_default() += 1;
        }
        if is_greeting {
            self.speaking.insert(segment.source.port);
        } else if let Some(early) = &mut self.early {
            early.keep(time_ns, segment, self.path);
        }
        Ok(())
    }

    /// A server greets on this port: it is read from here on, and so is what was kept of it.
    fn found_port(&mut self, port: u16, early: Early) -> anyhow::Result<()> {
        let path = self.path;
        self.servers.add(port);
        let mut left = self.ports.get(&port).copied().unwrap_or(0);
        for kept in early.of_port(port) {
            left -= 1;
            self.coverage.other_packets -= 1;
            *self.others.entry(Other::Tcp).or_default() -= 1;
            self.path = kept.path;
            self.server_segment(kept.time_ns, &kept.segment())?;
        }
        self.others.retain(|_, count| *count > 0);
        self.path = path;
        let before = match left {
            0 => String::new(),
            1 => "; 1 packet before its greeting was not".to_owned(),
            left => format!("; {left} packets before its greeting were not"),
        };
        let said = format!(
            "a server of MySQL greets on port {port}, so that was read (--port names another){before}"
        );
        eprintln!("headrace-agent: {}: {said}", self.name);
        self.coverage.note(self.name, said);
        Ok(())
    }

    fn count_tunnel(&mut self) {
        let key = self.path.key();
        if let Some((_, count)) = self.tunnels.get_mut(&key) {
            *count += 1;
        } else if self.tunnels.len() < MOST_COUNTED {
            self.tunnels.insert(key, (self.path.name(), 1));
        } else {
            self.coverage.tunnels.add("others", 1);
        }
    }

    /// Where to look when nothing was found: a wrong port is the commonest mistake, and looks like a silent server.
    fn advice(&self) -> Option<String> {
        let listed = |ports: Vec<String>| ports.join(", ");
        if !self.speaking.is_empty() {
            let ports = listed(self.speaking.iter().take(NAMED_PORTS).map(u16::to_string).collect());
            return Some(format!("servers of MySQL greet on other ports, too: {ports} (see --port)"));
        }
        if self.coverage.server_packets > 0 || self.ports.is_empty() {
            return None;
        }
        let mut ports: Vec<_> = self.ports.iter().map(|(port, packets)| (*packets, *port)).collect();
        ports.sort_unstable_by(|a, b| b.cmp(a));
        let named = ports.iter().take(NAMED_PORTS).map(|(packets, port)| format!("{port} ({packets})"));
        let named = listed(named.collect());
        let is_cache = ports.iter().take(NAMED_PORTS).any(|(_, port)| *port == MEMCACHED_PORT);
        let hint = if is_cache { "; `headrace digest memcached` reads memcached" } else { "" };
        Some(format!("no packet of a server; its busiest ports: {named} (see --port){hint}"))
    }

    /// Names what was counted, the most frequent first, because only so many names are kept.
    fn name_counts(&mut self) {
        let mut others: Vec<_> = self.others.iter().map(|(other, count)| (*count, other.name())).collect();
        others.sort_by(|a, b| (b.0, &a.1).cmp(&(a.0, &b.1)));
        for (count, name) in others {
            self.coverage.other_kinds.add(&name, count);
        }
        let mut tunnels: Vec<_> = self.tunnels.values().collect();
        tunnels.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
        for (name, count) in tunnels {
            self.coverage.tunnels.add(name, *count);
        }
    }

    pub fn finish(mut self) -> anyhow::Result<Coverage> {
        self.give_up_fragments(At { time_ns: 0, offset: 0, item: 0 }, None)?;
        self.name_counts();
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
        let parsed = link::parse(frame.link, frame.data, frame.wire_bytes, &mut self.path);
        self.parsed(At { time_ns: frame.time_ns, offset: frame.offset, item: frame.item }, &parsed)
    }

    fn damage(&mut self, offset: u64, item: u64, skipped: u64, reason: &str) {
        self.coverage.damage(self.name, offset, item, reason);
        self.coverage.skipped_bytes += skipped;
    }

    fn note(&mut self, note: &str) {
        self.coverage.note(self.name, note);
    }

    fn dropped(&mut self, packets: u64) {
        self.coverage.dropped_packets = self.coverage.dropped_packets.saturating_add(packets);
    }
}

/// A greeting of protocol 10 in the first packet of an answer.
fn is_greeting(data: &[u8]) -> bool {
    matches!(data, [_, _, 0, 0, 10, version, ..] if version.is_ascii_digit())
        && mysql::protocol::parse_greeting(&data[4..]).is_ok()
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
    let mut ordered = Ordered::new(&mut packets, MOST_HELD);
    read_ordered(&mut window, &mut ordered, name)?;
    ordered.finish()?;
    let mut coverage = packets.finish()?;
    coverage.bytes = window.offset() + window.bytes().len() as u64;
    Ok(coverage)
}

/// Reads all frames. Where a compressed file is damaged, that is counted.
fn read_ordered<R: Read>(window: &mut Window<R>, frames: &mut impl Frames, name: &str) -> anyhow::Result<()> {
    let Err(error) = read_frames(window, frames) else { return Ok(()) };
    if !is_damage(&error) {
        return Err(error.context(format!("cannot read the capture {name}")));
    }
    let left = window.bytes().len() as u64;
    frames.damage(window.offset(), 0, left, &format!("{error:#}"));
    Ok(())
}

/// Reads a text of tcpdump to its end, as `read` does a capture.
///
/// # Errors
/// As with `read`.
pub fn read_dump(
    dump: &mut Dump<impl Read>,
    name: &str,
    options: &PacketOptions,
    streams: &mut impl Streams,
) -> anyhow::Result<Coverage> {
    let mut packets = Packets::new(name, options, streams);
    let mut ordered = Ordered::new(&mut packets, MOST_HELD);
    if let Err(error) = dump::read(dump, &mut ordered) {
        if !is_damage(&error) {
            return Err(error.context(format!("cannot read the packets in {name}")));
        }
        ordered.damage(dump.offset(), 0, 0, &format!("{error:#}"));
    }
    ordered.finish()?;
    let mut coverage = packets.finish()?;
    coverage.bytes = dump.offset();
    Ok(coverage)
}

/// A compressed file that was cut: what came out of it counts.
fn is_damage(error: &anyhow::Error) -> bool {
    let is_damage = |kind| matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::InvalidData);
    error.downcast_ref::<std::io::Error>().is_some_and(|error| is_damage(error.kind()))
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
