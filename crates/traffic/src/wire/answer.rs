//! The answer that is coming in: what it says, when, and in how many bytes.

use mysql::checksum::RowsChecksum;
use mysql::reply::{ReplyState, Stage};

use crate::event::Outcome;

#[derive(Debug, Default)]
pub struct Answer {
    pub reply: ReplyState,
    pub bytes: u64,
    pub first_byte_ns: Option<u64>,
    /// When its last byte came, where its end was not certain at once.
    pub last_byte_ns: u64,
    /// The number that the next packet must have.
    pub sequence: u8,
    pub checksum: RowsChecksum,
}

impl Answer {
    pub fn expect(&mut self, stage: Stage, sequence: u8) {
        *self = Answer { sequence, ..Answer::default() };
        self.reply.expect(stage);
    }

    pub fn outcome(&self) -> Outcome {
        self.reply.error.map_or(Outcome::Ok, Outcome::Error)
    }
}
