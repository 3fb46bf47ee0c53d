//! Live capture on an interface, or on all: the kernel filters and stamps, we put together what it hands over.
//!
//! One thread does nothing but empty the kernel's ring into a bounded backlog and look at the limits; the caller's
//! reads from there. So an event that takes long, or a slow disk, costs no packets while the backlog has room.
//!
//! The interface is never made promiscuous: packets for other hosts are not this host's workload.

mod backlog;
mod buffer;
mod filter;
mod limits;
mod ring;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::{ClockId, Timespec, clock_gettime};

pub use self::limits::{Ended, Limits};

use self::backlog::Backlog;
use self::limits::{Costs, Watch};
use self::ring::{BLOCK_BYTES, Ring};
use super::coverage::Coverage;
use super::guard::{self, Pulse};
use super::packets::{PacketOptions, Packets};
use super::stream::{Opened, Side, Streams};
use base::error::AgentError;
use base::stop::StopSignal;

/// How often limits are looked at.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Clone, Debug)]
pub struct CaptureOptions {
    /// Name of the interface; all of them without.
    pub interface: Option<String>,
    pub packets: PacketOptions,
    pub duration: Option<Duration>,
    /// Ends when this many bytes of packets were seen.
    pub max_bytes: Option<u64>,
    pub limits: Limits,
    /// Memory for packets that wait for us, in bytes; the kernel locks it. A burst at the speed of memory fills
    /// the default in some 30 ms: that long may a busy host leave us without a core.
    pub ring_bytes: usize,
    /// Memory for packets that wait to be read, in bytes, beside the ring; only bursts take it. The default has
    /// room for the largest request that is kept, while the one before it is worked on.
    pub backlog_bytes: usize,
    /// Advances with every packet.
    pub pulse: Arc<Pulse>,
}

impl Default for CaptureOptions {
    fn default() -> Self {
        Self {
            interface: None,
            packets: PacketOptions::default(),
            duration: None,
            max_bytes: None,
            limits: Limits::default(),
            ring_bytes: 32 << 20,
            backlog_bytes: 96 << 20,
            pulse: Arc::default(),
        }
    }
}

/// What a capture saw, and why it ended.
#[derive(Clone, Debug)]
pub struct Captured {
    pub coverage: Coverage,
    pub ended: Ended,
}

/// Captures until it is told to stop, or has reason to. The process ends if it has to stop and `streams` does not return.
///
/// # Errors
/// No permission (CAP_NET_RAW), no such interface, no memory for the ring; or as `streams` says.
pub fn capture(
    options: &CaptureOptions,
    stop: &StopSignal,
    streams: &mut impl Streams,
) -> anyhow::Result<Captured> {
    std::thread::scope(|scope| {
        let (done, is_done) = channel();
        let mut costs = OwnCosts::new(options.limits);
        scope.spawn(move || guard::watch(&is_done, &options.pulse, || costs.limit(options, stop)));
        let _done = done;
        read(options, stop, streams)
    })
}

fn read(options: &CaptureOptions, stop: &StopSignal, streams: &mut impl Streams) -> anyhow::Result<Captured> {
    let name = options.interface.as_deref().unwrap_or("all interfaces");
    let backlog = Backlog::new(options.backlog_bytes);
    let mut streams = Beating { streams, pulse: &options.pulse };
    let mut packets = Packets::new(name, &options.packets, &mut streams);
    let (bytes, filled) = std::thread::scope(|scope| {
        let filling = scope.spawn(|| {
            let _closing = AtEnd(|| backlog.close());
            fill(name, options, stop, &backlog)
        });
        let abandoning = AtEnd(|| backlog.abandon());
        let bytes = take_packets(options, &backlog, &mut packets);
        drop(abandoning);
        let filled = options.pulse.wait(|| filling.join());
        (bytes, filled.unwrap_or_else(|_| Err(anyhow::anyhow!("the reader of the ring panicked"))))
    });
    let Filled { ended, dropped } = filled?;
    let bytes = bytes?;
    let mut coverage = packets.finish()?;
    coverage.bytes = bytes;
    coverage.dropped_packets = dropped;
    let ended = if options.max_bytes.is_some_and(|most| bytes >= most) { Ended::Size } else { ended };
    Ok(Captured { coverage, ended })
}

/// Reads the backlog until it ends or enough was captured. Returns the bytes of packets.
fn take_packets(
    options: &CaptureOptions,
    backlog: &Backlog,
    packets: &mut Packets<'_, impl Streams>,
) -> anyhow::Result<u64> {
    let (mut bytes, mut item) = (0_u64, 0);
    while options.max_bytes.is_none_or(|most| bytes < most)
        && let Some(block) = options.pulse.wait(|| backlog.next())
    {
        ring::packets(block.bytes(), |packet| {
            item += 1;
            options.pulse.beat();
            let offset = bytes;
            bytes += packet.data.len() as u64;
            packets.network(packet.time_ns, (packet.protocol, packet.data, packet.wire_bytes), offset, item)
        })?;
        backlog.recycle(block);
    }
    Ok(bytes)
}

/// Beats for each piece: one packet, or the end, may release many that were held back.
struct Beating<'s, S> {
    streams: &'s mut S,
    pulse: &'s Pulse,
}

impl<S: Streams> Streams for Beating<'_, S> {
    fn opened(&mut self, time_ns: u64, opened: &Opened) -> anyhow::Result<()> {
        self.pulse.beat();
        self.streams.opened(time_ns, opened)
    }

    fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()> {
        self.pulse.beat();
        self.streams.bytes(time_ns, session, from, bytes)
    }

    fn gap(&mut self, time_ns: u64, session: u64, from: Side, bytes: Option<u64>) -> anyhow::Result<()> {
        self.pulse.beat();
        self.streams.gap(time_ns, session, from, bytes)
    }

    fn closed(&mut self, time_ns: u64, session: u64) -> anyhow::Result<()> {
        self.pulse.beat();
        self.streams.closed(time_ns, session)
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.pulse.beat();
        self.streams.cut(session)
    }
}

/// Tells the other thread, also after a panic.
struct AtEnd<F: Fn()>(F);

impl<F: Fn()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        self.0();
    }
}

/// Why no more packets come, and how many found no room in the ring.
struct Filled {
    ended: Ended,
    dropped: u64,
}

/// Empties the ring into the backlog until the capture ends.
fn fill(
    name: &str,
    options: &CaptureOptions,
    stop: &StopSignal,
    backlog: &Backlog,
) -> anyhow::Result<Filled> {
    let mut filter = filter::filter(&options.packets)
        .ok_or_else(|| AgentError::Input("too many ports and addresses to filter for".to_owned()))?;
    let mut ring = Ring::open(index(options.interface.as_deref())?, &mut filter, options.ring_bytes)
        .with_context(|| format!("capture on {name}"))?;
    let (mut dropped, mut arrived) = (0, 0);
    let begun = Instant::now();
    let cpu = cpu_time();
    let mut watch = Watch::new(options.limits, Costs::default());
    let mut looked: Option<Instant> = None;
    let mut is_behind = false;
    let ended = loop {
        let is_stopped = if is_behind {
            backlog.wait_for_room(BLOCK_BYTES, LOOK);
            stop.is_set()
        } else {
            wait(&ring, stop, LOOK)?
        };
        is_behind = !empty(&mut ring, backlog, Duration::ZERO)?;
        let elapsed = begun.elapsed();
        if is_stopped || backlog.is_abandoned() {
            break Ended::Asked;
        }
        if options.duration.is_some_and(|duration| elapsed >= duration) {
            break Ended::Duration;
        }
        if let Some(error) = ring.error() {
            if error.raw_os_error() == Some(libc::ENETDOWN) {
                break Ended::InterfaceDown;
            }
            return Err(error).with_context(|| format!("capture on {name}"));
        }
        if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            let (more, lost) = ring.statistics().context("cannot read how many packets were lost")?;
            (arrived, dropped) = (arrived + more, dropped + lost);
            let cpu = cpu_time().saturating_sub(cpu);
            let available_bytes = available_bytes();
            backlog.limit(room(options, available_bytes, backlog.waiting_bytes()));
            let costs = Costs { elapsed, cpu, packets: arrived, dropped, available_bytes };
            if let Some(ended) = watch.check(costs) {
                break ended;
            }
        }
    };
    if !backlog.is_abandoned() {
        // What the ring has by now belongs to it, the block that is not full, too.
        ring.shut()?;
        std::thread::sleep(ring::ALL_HANDED_OVER);
        empty(&mut ring, backlog, Duration::MAX)?;
    }
    let (_, lost) = ring.statistics().unwrap_or_default();
    Ok(Filled { ended, dropped: dropped + lost })
}

/// Copies what the ring has, waiting up to `most` for the room of each block; false where there was none. One lap
/// and no more, so that a flood cannot keep us from looking at what it costs.
fn empty(ring: &mut Ring, backlog: &Backlog, most: Duration) -> anyhow::Result<bool> {
    for _ in 0..ring.blocks() {
        if !backlog.wait_for_room(BLOCK_BYTES, most) {
            return Ok(false);
        }
        if !ring.next_block(|block| backlog.push(block)).context("no memory for packets that wait")? {
            break;
        }
    }
    Ok(true)
}

/// How many bytes may wait without taking memory that must stay available on the host.
fn room(options: &CaptureOptions, available_bytes: Option<u64>, waiting_bytes: usize) -> usize {
    let Some(available_bytes) = available_bytes else { return options.backlog_bytes };
    let free_bytes = available_bytes.saturating_sub(options.limits.min_available_bytes);
    let most = waiting_bytes.saturating_add(usize::try_from(free_bytes).unwrap_or(usize::MAX));
    most.min(options.backlog_bytes)
}

/// What the guard can see of a capture that does not look at its limits any more.
struct OwnCosts {
    begun: Instant,
    cpu: Duration,
    watch: Watch,
}

impl OwnCosts {
    fn new(limits: Limits) -> Self {
        Self { begun: Instant::now(), cpu: cpu_time(), watch: Watch::new(limits, Costs::default()) }
    }

    fn limit(&mut self, options: &CaptureOptions, stop: &StopSignal) -> Option<Ended> {
        let (elapsed, cpu) = (self.begun.elapsed(), cpu_time().saturating_sub(self.cpu));
        if stop.is_set() {
            return Some(Ended::Asked);
        }
        if options.duration.is_some_and(|duration| elapsed >= duration) {
            return Some(Ended::Duration);
        }
        self.watch.check(Costs { elapsed, cpu, available_bytes: available_bytes(), ..Costs::default() })
    }
}

fn index(interface: Option<&str>) -> anyhow::Result<u32> {
    let Some(name) = interface else { return Ok(0) };
    let path = format!("/sys/class/net/{name}/ifindex");
    let is_name = !name.is_empty() && !name.contains(['/', '\0']) && name != "." && name != "..";
    let text = if is_name { std::fs::read_to_string(path).ok() } else { None };
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| AgentError::Named(format!("no interface {name:?}")).into())
}

/// Waits for packets or the signal to stop; true for the latter.
fn wait(ring: &Ring, stop: &StopSignal, most: Duration) -> anyhow::Result<bool> {
    let mut files = [PollFd::new(ring, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    let timeout = Timespec { tv_sec: 0, tv_nsec: most.as_nanos() as i64 };
    match poll(&mut files, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(stop.is_set()),
        Err(error) => Err(std::io::Error::from(error).into()),
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
