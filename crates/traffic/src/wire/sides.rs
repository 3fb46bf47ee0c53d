//! Where each direction of a connection stands within its packets.

use mysql::frames::HEADER;
use xxhash_rust::xxh3::Xxh3;

use super::request::Request;

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    #[default]
    Request,
    /// An answer to a challenge, or a piece of a file: counted with the request that it belongs to.
    Part,
}

#[derive(Default)]
pub struct ClientSide {
    pub header: [u8; HEADER],
    pub have: usize,
    /// Bytes that are still to come of the frame; None between frames.
    pub left: Option<usize>,
    pub length: usize,
    /// The frame before was full: the next one continues with the same packet.
    pub continues: bool,
    pub sequence: u8,
    pub target: Target,
    pub request: Request,
    /// The server has asked for a file, and its content comes.
    pub is_file: bool,
    /// Bytes of compressed frames that no packet counts yet.
    pub frame_bytes: u64,
}

impl ClientSide {
    /// Bytes that came of a packet that is not whole.
    pub fn unfinished_bytes(&self) -> u64 {
        let missing = self.left.unwrap_or(0) as u64;
        if self.is_inside() { self.have as u64 + self.request.wire_bytes.saturating_sub(missing) } else { 0 }
    }

    pub fn is_inside(&self) -> bool {
        self.have > 0 || self.left.is_some() || self.continues
    }

    /// Skips what is missing of the packet that is coming in: whether that ends its frame. None where more is missing.
    pub fn pass_unseen(&mut self, missing: usize) -> Option<bool> {
        let left = self.left.filter(|left| missing <= *left)? - missing;
        self.left = Some(left);
        self.request.is_cut = true;
        Some(left == 0)
    }
}

#[derive(Default)]
pub struct ServerSide {
    /// Bytes of a packet that is incomplete, or not requested yet.
    pub partial: Vec<u8>,
    pub partial_ns: u64,
    /// Bytes that are still to come of a packet that is not read; of a row if `is_row`.
    pub skip: usize,
    pub is_row: bool,
    /// The frame before was full: the next one continues with the same row.
    pub continues: bool,
    pub hasher: Option<Box<Xxh3>>,
    /// Bytes of the rows were missed, so that no sum of them means anything.
    pub has_hole: bool,
}

impl ServerSide {
    pub fn is_between_packets(&self) -> bool {
        self.partial.is_empty()
    }

    /// Bytes of packets that are incomplete, or not requested.
    pub fn held_bytes(&self) -> u64 {
        self.partial.len() as u64
    }

    /// Skips missing bytes if all of them belong to a row that is not read.
    pub fn pass_unseen(&mut self, missing: usize) -> bool {
        if missing > self.skip {
            return false;
        }
        self.skip -= missing;
        self.has_hole = true;
        true
    }
}
