//! What the sessions of a decoder share: its options, its sink and its buffers.

use super::known::Known;
use super::request::Request;
use crate::coverage::Coverage;
use crate::event::Sink;

/// Requests whose buffers wait to be used again.
pub const SPARE_REQUESTS: usize = 64;

#[derive(Clone, Debug)]
pub struct WireOptions {
    /// Sum up the rows of every answer (`RowsChecksum`).
    pub checksum: bool,
    /// Text of one request that is kept, and of all prepared statements of a session; twice as much may wait for
    /// answers. Of what is longer an event has the beginning (`is_cut`), and it is counted as damage.
    pub max_text_bytes: usize,
    /// Times mean something; without, events have none.
    pub has_times: bool,
    /// Name of the input, for places of damage.
    pub name: String,
    /// Of sessions that are joined in their middle.
    pub known: Known,
}

impl Default for WireOptions {
    fn default() -> Self {
        WireOptions {
            checksum: false,
            max_text_bytes: 64 << 20,
            has_times: true,
            name: String::new(),
            known: Known::default(),
        }
    }
}

/// What all sessions share while bytes are read.
pub struct Shared<'a> {
    pub sink: &'a mut dyn Sink,
    pub options: &'a WireOptions,
    pub coverage: &'a mut Coverage,
    pub spare: &'a mut Vec<Request>,
    pub offset: u64,
}
