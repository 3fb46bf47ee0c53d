//! Captures made here, with every trouble, and what must come of them.

mod formats;
mod generate;
mod random;
mod rarer;
mod several;
mod troubles;
mod tunnels;

use self::generate::{Calls, Packet, ethernet};
use super::{PacketOptions, read};
use crate::coverage::Coverage;

fn read_bytes(capture: &[u8]) -> (Calls, Coverage) {
    let mut calls = Calls::default();
    let coverage = read(capture, "test", &PacketOptions::default(), &mut calls).unwrap();
    assert_eq!(calls.opened().len(), calls.closed(), "every session is closed");
    assert_eq!((coverage.bytes, coverage.sessions), (capture.len() as u64, calls.closed() as u64));
    (calls, coverage)
}

fn read_packets(packets: &[Packet]) -> (Calls, Coverage) {
    read_bytes(&ethernet(packets))
}
