//! The frame round every block: what it holds, how long it is, and whether it is still what was written.

use xxhash_rust::xxh3::xxh3_64;

/// Begins every block, and so every recording. Its first byte is not text, its last two suffer where a tool thinks
/// that they are a line's end.
pub const MAGIC: [u8; 8] = *b"\x89HRREC\r\n";
pub const VERSION: u16 = 1;
pub const HEADER_BYTES: usize = 64;
/// No block is larger, before or after compression: what a reader allocates is bounded by it.
pub const MAX_BLOCK_BYTES: usize = 64 << 20;
/// Nor are the texts and parameters of its events, put together again, longer than this.
pub const MAX_UNPACKED_BYTES: usize = 64 << 20;
/// No block has more events.
pub const MAX_BLOCK_EVENTS: u32 = 1 << 16;

/// What a block holds. A reader skips kinds that it does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Info,
    Events,
    Index,
    /// The last block of a recording that was finished: no payload; `first_ns` is the offset of the index.
    End,
    Unknown(u8),
}

impl Kind {
    fn to_byte(self) -> u8 {
        match self {
            Kind::Info => 1,
            Kind::Events => 2,
            Kind::Index => 3,
            Kind::End => 4,
            Kind::Unknown(byte) => byte,
        }
    }

    fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Kind::Info,
            2 => Kind::Events,
            3 => Kind::Index,
            4 => Kind::End,
            byte => Kind::Unknown(byte),
        }
    }
}

/// The 64 bytes before a payload, little-endian throughout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u16,
    pub kind: Kind,
    pub events: u32,
    /// Bytes of the payload before and after zstd.
    pub raw_bytes: u32,
    pub stored_bytes: u32,
    /// Counts the blocks of a recording from 0: a hole in it is a block that was lost.
    pub sequence: u64,
    /// Start of the first and of the last event.
    pub first_ns: u64,
    pub last_ns: u64,
    /// xxh3 of the stored payload.
    pub checksum: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.version.to_le_bytes());
        bytes[10] = self.kind.to_byte();
        bytes[12..16].copy_from_slice(&self.events.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.raw_bytes.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.stored_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.first_ns.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.last_ns.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.checksum.to_le_bytes());
        let own = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&own.to_le_bytes());
        bytes
    }

    /// None if the bytes are not a header, a damaged one, or one of an impossible size.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if bytes[..8] != MAGIC || xxh3_64(&bytes[..56]) != u64_at(56) {
            return None;
        }
        let header = Header {
            version: u16::from_le_bytes([bytes[8], bytes[9]]),
            kind: Kind::from_byte(bytes[10]),
            events: u32_at(12),
            raw_bytes: u32_at(16),
            stored_bytes: u32_at(20),
            sequence: u64_at(24),
            first_ns: u64_at(32),
            last_ns: u64_at(40),
            checksum: u64_at(48),
        };
        let limit = u32::try_from(MAX_BLOCK_BYTES).expect("fits");
        (header.raw_bytes <= limit && header.stored_bytes <= limit && header.events <= MAX_BLOCK_EVENTS)
            .then_some(header)
    }

    /// The header and the payload of a block, ready to be appended. `raw` is what zstd has not seen.
    pub fn frame(
        kind: Kind,
        sequence: u64,
        events: u32,
        span_ns: (u64, u64),
        raw: &[u8],
        compressor: &mut zstd::bulk::Compressor<'static>,
        out: &mut Vec<u8>,
    ) -> anyhow::Result<()> {
        anyhow::ensure!(raw.len() <= MAX_BLOCK_BYTES, "a block of {} bytes is too large", raw.len());
        out.clear();
        out.resize(HEADER_BYTES + zstd::zstd_safe::compress_bound(raw.len()), 0);
        let stored =
            if raw.is_empty() { 0 } else { compressor.compress_to_buffer(raw, &mut out[HEADER_BYTES..])? };
        out.truncate(HEADER_BYTES + stored);
        let header = Header {
            version: VERSION,
            kind,
            events,
            raw_bytes: u32::try_from(raw.len())?,
            stored_bytes: u32::try_from(stored)?,
            sequence,
            first_ns: span_ns.0,
            last_ns: span_ns.1,
            checksum: xxh3_64(&out[HEADER_BYTES..]),
        };
        out[..HEADER_BYTES].copy_from_slice(&header.encode());
        Ok(())
    }

    /// Decompresses a payload into `raw`; what was in it is gone.
    pub fn open(
        &self,
        stored: &[u8],
        decompressor: &mut zstd::bulk::Decompressor<'static>,
        raw: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        if xxh3_64(stored) != self.checksum {
            return Err("the checksum of a block is wrong");
        }
        raw.clear();
        raw.resize(self.raw_bytes as usize, 0);
        if raw.is_empty() && stored.is_empty() {
            return Ok(());
        }
        match decompressor.decompress_to_buffer(stored, &mut raw[..]) {
            Ok(bytes) if bytes == raw.len() => Ok(()),
            _ => Err("a block cannot be decompressed"),
        }
    }
}
