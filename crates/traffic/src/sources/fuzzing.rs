//! What fuzzers drive: files of any content, as every command reads them. Compiled for `cargo fuzz` and for the test below, which
//! reads the seeds.

use std::io::{Cursor, Read};

use super::{Kind, head};
use crate::coverage::Coverage;
use crate::event::{Event, Sink, Summary};
use crate::packets::{self, PacketOptions};
use crate::rewritten::InPieces;
use crate::wire::{Decoder, WireOptions};
use crate::{binlog, exports, general_log, prefixed, slow_log};

#[derive(Default)]
struct Events(Vec<String>);

impl Sink for Events {
    fn event(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.0.push(format!("{event:?}"));
        Ok(())
    }

    fn summary(&mut self, summary: &Summary<'_>) -> anyhow::Result<()> {
        self.0.push(format!("{summary:?}"));
        Ok(())
    }
}

/// A log, a log with prefixes, an export, or the text of a binary log: the first byte says how large the pieces are in which
/// it comes.
///
/// # Panics
///
/// That is what it looks for; also where the size of the pieces changes what is read, and where bytes are not accounted for.
pub fn text(data: &[u8]) {
    let [piece_bytes, text @ ..] = data else { return };
    let Some((events, coverage)) = read(text, usize::MAX) else { return };
    assert_eq!(coverage.bytes, text.len() as u64);
    assert!(coverage.skipped_bytes == 0 || coverage.damaged > 0);
    // Where an export is damaged, its texts are told apart by what came of them.
    if let Some(found) = read(text, usize::from(*piece_bytes) + 1)
        && coverage.damaged == 0
        && found.1.damaged == 0
    {
        assert_eq!((events, coverage), found);
    }
}

/// What text is read as, in pieces; `None` where it is nothing that is read as text.
fn read(text: &[u8], piece_bytes: usize) -> Option<(Vec<String>, Coverage)> {
    let mut input = InPieces(text, piece_bytes);
    let (kind, head) = head(&mut input, "fuzz").ok()?;
    let mut events = Events::default();
    let read = match kind {
        Kind::Export => exports::read(head, input, "fuzz", false, &mut events),
        Kind::Prefixed => prefixed::read(head, input, "fuzz", false, &mut events),
        Kind::SlowLog => slow_log::read(Cursor::new(head).chain(input), "fuzz", &mut events),
        Kind::GeneralLog => general_log::read(Cursor::new(head).chain(input), "fuzz", &mut events),
        Kind::BinaryLogText => binlog::read_text(Cursor::new(head).chain(input), "fuzz", &mut events),
        _ => return None,
    };
    Some((events.0, read.ok()?))
}

/// A binary log, or a piece of one.
///
/// # Panics
///
/// As above.
pub fn binary_log(data: &[u8]) {
    let [piece_bytes, log @ ..] = data else { return };
    let read = |piece_bytes| {
        let mut events = Events::default();
        let coverage = binlog::read(InPieces(log, piece_bytes), "fuzz", &mut events);
        coverage.ok().map(|coverage| (events.0, coverage))
    };
    let whole = read(usize::MAX);
    assert!(whole.as_ref().is_none_or(|(_, coverage)| coverage.bytes == log.len() as u64));
    assert_eq!(whole, read(usize::from(*piece_bytes) + 1));
}

/// A capture down to its events: tunnels, balancers' headers, other protocols.
///
/// # Panics
///
/// As above.
pub fn packets(data: &[u8]) {
    let options = PacketOptions {
        ports: vec![3306, 33306, 33307],
        max_connections: 4,
        max_held_bytes: 4096,
        ..PacketOptions::default()
    };
    let mut events = 0;
    let mut count = |_: &Event<'_>| {
        events += 1;
        Ok(())
    };
    let wire = WireOptions { max_text_bytes: 4096, ..WireOptions::default() };
    let mut decoder = Decoder::with_options(&mut count, wire);
    let Ok(mut coverage) = packets::read(data, "fuzz", &options, &mut decoder) else { return };
    coverage.merge(&decoder.finish().expect("the sink does not fail"));
    assert_eq!((coverage.events, coverage.bytes), (events, data.len() as u64));
    let _ = coverage.unreadable();
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// The seeds, and each with a few bytes changed: what was right when they were written still is.
    fn each_seed(name: &str, drive: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
        let mut count = 0;
        let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let seed = std::fs::read(path).unwrap();
            drive(&seed);
            // Any numbers, always the same.
            let mut state = 7_usize;
            let mut below = |limit: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % limit
            };
            for _ in 0..20 {
                let mut changed = seed.clone();
                for _ in 0..=below(3) {
                    let at = below(changed.len());
                    match below(3) {
                        0 => changed[at] = below(256).to_le_bytes()[0],
                        1 => changed.truncate(at.max(1)),
                        _ => changed.insert(at, b"\n#{\r"[below(4)]),
                    }
                }
                drive(&changed);
            }
            count += 1;
        }
        assert!(count >= 4, "{count}");
    }

    #[test]
    fn seeds_of_texts() {
        each_seed("text", super::text);
    }

    #[test]
    fn seeds_of_binary_logs() {
        each_seed("binlog", super::binary_log);
    }

    #[test]
    fn seeds_of_captures() {
        each_seed("tunnels", super::packets);
    }
}
