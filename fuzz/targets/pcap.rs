//! A capture file that may say anything: errors and damage are fine, panics, hangs and broken promises are not.

#![no_main]

use std::collections::HashSet;

use traffic::packets::{PacketOptions, read};
use traffic::stream::{Opened, Side, Streams};

/// Checks what readers of streams rely on.
#[derive(Default)]
struct Contract {
    open: HashSet<u64>,
    last: u64,
    gaps: u64,
}

impl Streams for Contract {
    fn opened(&mut self, _: u64, opened: &Opened) -> anyhow::Result<()> {
        assert!(self.open.insert(opened.session));
        Ok(())
    }

    fn bytes(&mut self, _: u64, session: u64, _: Side, bytes: &[u8]) -> anyhow::Result<()> {
        assert!(self.open.contains(&session) && !bytes.is_empty());
        self.last = session;
        Ok(())
    }

    fn gap(&mut self, _: u64, session: u64, _: Side, missing: Option<u64>) -> anyhow::Result<()> {
        assert!(self.open.contains(&session) && missing != Some(0));
        self.gaps += 1;
        Ok(())
    }

    fn closed(&mut self, _: u64, session: u64) -> anyhow::Result<()> {
        assert!(self.open.remove(&session));
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let options = PacketOptions { max_connections: 4, max_held_bytes: 4096, ..PacketOptions::default() };
    let mut contract = Contract::default();
    if let Ok(coverage) = read(data, "fuzz", &options, &mut contract) {
        assert!(contract.open.is_empty());
        assert_eq!((coverage.bytes, coverage.gaps), (data.len() as u64, contract.gaps));
    }
});
