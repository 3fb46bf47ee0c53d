//! A captured frame, and who takes what a reader of capture files finds.

use super::link::Link;

/// Longest packet that is believed, in bytes: with segmentation offload they have up to 512 KiB.
pub const MOST_CAPTURED: u32 = 16 << 20;

/// One captured frame.
pub struct Frame<'a> {
    pub time_ns: u64,
    pub link: Link,
    pub data: &'a [u8],
    /// Its length before the snap length cut it.
    pub wire_bytes: usize,
    /// Where it is in the input, and which one it is.
    pub offset: u64,
    pub item: u64,
}

/// Takes what a reader of files finds.
pub trait Frames {
    fn frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()>;

    /// `skipped` bytes of the input that no frame could be made of.
    fn damage(&mut self, offset: u64, item: u64, skipped: u64, reason: &str);

    /// What is to be known of the whole input.
    fn note(&mut self, note: &str);

    /// Packets that the capture says it lost.
    fn dropped(&mut self, packets: u64);
}
