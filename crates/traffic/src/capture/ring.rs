//! A packet socket and its ring (TPACKET_V3): blocks of packets, which the kernel fills in their order.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;

use base::error::AgentError;

const NEEDS_CAPABILITY: &str = "capturing packets needs the capability CAP_NET_RAW (root, or `setcap cap_net_raw+ep` on headrace-agent); without \
     it, use `headrace-agent proxy` or the server's slow log";
pub const BLOCK_BYTES: usize = 1 << 20;
/// How long a block that is not full waits for more, in ms: the less, the more often we wake.
const RETIRE_MS: u32 = 100;
/// After this time the kernel has handed over every packet: a block is seen twice before it is retired.
pub const ALL_HANDED_OVER: Duration = Duration::from_millis(250);
/// A filter that keeps nothing: BPF_RET | BPF_K with a length of 0.
const NOTHING: libc::sock_filter = libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 };

// Places in the kernel's tpacket_block_desc, tpacket3_hdr and the sockaddr_ll behind it.
const BLOCK_STATUS: usize = 8;
const BLOCK_PACKETS: usize = 12;
const BLOCK_FIRST: usize = 16;
const BLOCK_LENGTH: usize = 20;
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const CAPTURED: usize = 12;
const LENGTH: usize = 16;
const DATA: usize = 24;
const ADDRESS: usize = 48;
const ADDRESS_PROTOCOL: usize = ADDRESS + 2;

pub struct Ring {
    socket: OwnedFd,
    memory: NonNull<u8>,
    blocks: usize,
    at: usize,
}

/// One packet, from its network header on.
pub struct Packet<'a> {
    pub time_ns: u64,
    pub protocol: u16,
    pub data: &'a [u8],
    pub wire_bytes: usize,
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of a value that lives for the call.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    })?;
    Ok(())
}

fn attach(socket: &OwnedFd, filter: &mut [libc::sock_filter]) -> anyhow::Result<()> {
    let len = u16::try_from(filter.len()).context("a filter too long")?;
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program).context("cannot set the filter")
}

impl Ring {
    /// `interface` is its index, 0 for all.
    pub fn open(interface: u32, filter: &mut [libc::sock_filter], bytes: usize) -> anyhow::Result<Self> {
        // No protocol yet, so that nothing comes before the filter is attached.
        // SAFETY: plain system call; the descriptor is ours alone.
        let socket =
            check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })
                .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
                .map_err(|error| match error.raw_os_error() {
                    Some(libc::EPERM | libc::EACCES) => {
                        AgentError::NotReady(NEEDS_CAPABILITY.to_owned()).into()
                    }
                    _ => anyhow::Error::new(error).context("cannot open a packet socket"),
                })?;
        attach(&socket, filter)?;
        set(&socket, libc::SOL_PACKET, libc::PACKET_VERSION, &libc::tpacket_versions::TPACKET_V3)
            .context("this kernel has no TPACKET_V3 (before 3.2)")?;
        let blocks = bytes.div_ceil(BLOCK_BYTES).max(2);
        let request = libc::tpacket_req3 {
            tp_block_size: BLOCK_BYTES as u32,
            tp_block_nr: u32::try_from(blocks).context("a ring too large")?,
            tp_frame_size: 2048,
            tp_frame_nr: u32::try_from(blocks * (BLOCK_BYTES / 2048)).context("a ring too large")?,
            tp_retire_blk_tov: RETIRE_MS,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).context("no memory for the ring")?;
        let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of the ring just made; nothing else knows it.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), blocks * BLOCK_BYTES, access, shared, socket.as_raw_fd(), 0)
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error()).context("cannot map the ring");
        }
        let memory = NonNull::new(memory.cast()).context("a ring at address zero")?;
        let ring = Self { socket, memory, blocks, at: 0 };
        ring.bind(interface)?;
        Ok(ring)
    }

    fn bind(&self, interface: u32) -> anyhow::Result<()> {
        // SAFETY: all zeros is a valid value of it.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        // Only under "all protocols" does the kernel show what is sent.
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = interface.cast_signed();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the kernel reads `length` bytes of an address that lives for the call.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), std::ptr::from_ref(&address).cast(), length) })
            .context("cannot capture there")?;
        Ok(())
    }

    /// From now on no packet comes in; what the ring has is still handed over.
    pub fn shut(&self) -> anyhow::Result<()> {
        attach(&self.socket, &mut [NOTHING])
    }

    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Hands on the used part of the next full block and gives the block back; false if there is none. The kernel
    /// passes no block that is still with us, so `take` must be quick.
    pub fn next_block(&mut self, take: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        // SAFETY: `at` is below `blocks`, and blocks are aligned to pages.
        let block = unsafe { self.memory.add(self.at * BLOCK_BYTES) };
        // SAFETY: both sides change the status atomically only; it is aligned, as the kernel lays it out.
        let status = unsafe { block.add(BLOCK_STATUS).cast::<AtomicU32>().as_ref() };
        if status.load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return Ok(false);
        }
        let taken = {
            // SAFETY: the block is ours until its status says otherwise, which is after this slice is gone.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), BLOCK_BYTES) };
            let length = (word(bytes, BLOCK_LENGTH) as usize).min(BLOCK_BYTES);
            take(&bytes[..length])
        };
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.at = (self.at + 1) % self.blocks;
        taken.map(|()| true)
    }

    /// Packets that came for us since the last call, and those of them that found no room.
    pub fn statistics(&self) -> io::Result<(u64, u64)> {
        // SAFETY: all zeros is a valid value of it.
        let mut counts: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to a value that lives for the call.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                std::ptr::from_mut(&mut counts).cast(),
                &raw mut length,
            )
        })?;
        Ok((counts.tp_packets.into(), counts.tp_drops.into()))
    }

    /// The error that the socket waits with, such as an interface that went down.
    pub fn error(&self) -> Option<io::Error> {
        rustix::net::sockopt::socket_error(&self.socket).ok()?.err().map(io::Error::from)
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: our mapping, of this length; no slice of it outlives `next_block`.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.blocks * BLOCK_BYTES) };
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Hands on the packets of a block.
pub fn packets<E>(block: &[u8], mut take: impl FnMut(Packet<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut at = word(block, BLOCK_FIRST) as usize;
    for _ in 0..word(block, BLOCK_PACKETS) {
        let Some(frame) = block.get(at..) else { break };
        packet(frame).map_or(Ok(()), &mut take)?;
        at += word(frame, NEXT) as usize;
    }
    Ok(())
}

fn packet(frame: &[u8]) -> Option<Packet<'_>> {
    let start = usize::from(u16::from_ne_bytes(*frame.get(DATA..)?.first_chunk()?));
    Some(Packet {
        time_ns: u64::from(word(frame, SECONDS)) * 1_000_000_000 + u64::from(word(frame, NANOSECONDS)),
        protocol: u16::from_be_bytes(*frame.get(ADDRESS_PROTOCOL..)?.first_chunk()?),
        data: frame.get(start..start + word(frame, CAPTURED) as usize)?,
        wire_bytes: word(frame, LENGTH) as usize,
    })
}
