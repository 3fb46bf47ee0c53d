//! Logs of any content, in pieces of any size: no panic, every byte accounted for, and the same events whatever the
//! pieces. The first byte says which kind of log, the second how large the pieces are.

#![no_main]

use std::io::{self, Read};

use traffic::coverage::Coverage;
use traffic::event::Event;
use traffic::{general_log, slow_log};

struct Pieces<'d>(&'d [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.1.min(buffer.len()).min(self.0.len());
        buffer[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

fn read(is_slow: bool, log: &[u8], piece_bytes: usize) -> (Vec<String>, Coverage) {
    let mut events = Vec::new();
    let mut sink = |event: &Event<'_>| {
        events.push(format!("{event:?}"));
        Ok(())
    };
    let input = Pieces(log, piece_bytes);
    let coverage = if is_slow {
        slow_log::read(input, "log", &mut sink)
    } else {
        general_log::read(input, "log", &mut sink)
    };
    (events, coverage.expect("neither the input nor the sink fails"))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let [kind, piece_bytes, log @ ..] = data else { return };
    let is_slow = kind % 2 == 0;
    let (events, coverage) = read(is_slow, log, usize::MAX);
    assert_eq!(coverage.bytes, log.len() as u64);
    assert_eq!(coverage.events, events.len() as u64);
    assert!(coverage.skipped_bytes <= coverage.bytes);
    assert!(coverage.skipped_bytes == 0 || coverage.damaged > 0);
    assert_eq!((events, coverage), read(is_slow, log, usize::from(*piece_bytes).max(1)));
});
