//! What is left of a recording after a crash, a bad disk or a hostile hand.

use std::io::{Seek, SeekFrom, Write};

use proptest::prelude::{any, proptest};
use proptest::{collection, sample};

use super::{read_all, with_literals};
use crate::coverage::Coverage;
use crate::event::{Command, Event, Sink};
use crate::recording::frame::{HEADER_BYTES, Header, Kind};
use crate::recording::source::{Entry, Source};
use crate::recording::{Reader, Writer, WriterOptions, fuzzing};

/// Three blocks of two events each; `finished` with totals and an index.
fn small(finished: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    // Two events fill a block.
    let options = WriterOptions { block_bytes: 200, ..with_literals() };
    let mut writer = Writer::create(&path, &options).unwrap();
    for index in 0..6 {
        let text = format!("select {index} from a_table_with_a_name /* {} */", "x".repeat(30));
        let event = Event { text: text.as_bytes(), ..Event::new(1_000 + index, index % 2, Command::Prepare) };
        writer.event(&event).unwrap();
    }
    if finished {
        writer.finish(&Coverage::default()).unwrap();
    } else {
        writer.drain(u64::MAX).unwrap();
        writer.flush().unwrap();
    }
    std::fs::read(&path).unwrap()
}

fn events_of(bytes: Vec<u8>) -> Option<(Vec<String>, Coverage)> {
    let mut reader = Reader::of_bytes(bytes).ok()?;
    let events = read_all(&mut reader);
    Some((events, reader.damage().clone()))
}

/// Offset, length and header of each block.
fn blocks_of(bytes: &[u8]) -> Vec<(usize, usize, Header)> {
    let entries = Source::Bytes(bytes.to_vec()).scan(&mut Coverage::default()).unwrap();
    let at = |entry: &Entry| usize::try_from(entry.offset).unwrap();
    entries
        .iter()
        .map(|entry| (at(entry), HEADER_BYTES + entry.header.stored_bytes as usize, entry.header))
        .collect()
}

#[test]
fn a_damaged_byte_costs_its_block_and_nothing_else() {
    let bytes = small(false);
    let (whole, damage) = events_of(bytes.clone()).unwrap();
    assert_eq!((whole.len(), damage.damaged), (6, 0));
    let blocks = blocks_of(&bytes);
    let kinds: Vec<Kind> = blocks.iter().map(|block| block.2.kind).collect();
    assert_eq!(kinds, [Kind::Info, Kind::Events, Kind::Events, Kind::Events]);
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let (events, damage) = events_of(damaged).unwrap();
            let hit = blocks.iter().position(|block| at < block.0 + block.1).unwrap();
            let mut expected = whole.clone();
            if hit > 0 {
                expected.drain((hit - 1) * 2..hit * 2);
            }
            assert_eq!(events, expected, "byte {at}");
            assert_eq!(damage.damaged, 1, "byte {at}: {damage:?}");
            let place = &damage.places[0];
            assert_eq!(place.offset, blocks[hit].0 as u64, "byte {at}: {place:?}");
            // A header that cannot be read tells of no events.
            let is_told = hit > 0 && at >= blocks[hit].0 + HEADER_BYTES;
            assert_eq!(damage.lost_events, if is_told { 2 } else { 0 }, "byte {at}: {damage:?}");
        }
    }
}

#[test]
fn an_index_is_optional_at_every_byte() {
    let bytes = small(true);
    let (whole, _) = events_of(bytes.clone()).unwrap();
    let index = blocks_of(&bytes).iter().find(|block| block.2.kind == Kind::Index).unwrap().0;
    assert!(Reader::of_bytes(bytes.clone()).unwrap().has_index());
    for at in index..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(events_of(damaged).unwrap().0, whole, "byte {at}");
    }
}

#[test]
fn a_file_cut_anywhere_is_read_up_to_its_last_whole_block() {
    let bytes = small(true);
    let (whole, _) = events_of(bytes.clone()).unwrap();
    let blocks = blocks_of(&bytes);
    for length in 0..bytes.len() {
        let result = events_of(bytes[..length].to_vec());
        let is_whole = |block: &&(usize, usize, Header)| block.0 + block.1 <= length;
        let (count, events): (usize, u32) = (
            blocks.iter().filter(is_whole).count(),
            blocks.iter().filter(is_whole).map(|block| block.2.events).sum(),
        );
        if count == 0 {
            assert!(result.is_none(), "{length} bytes");
            continue;
        }
        let (read, damage) = result.unwrap();
        assert_eq!(read, whole[..events as usize], "{length} bytes");
        let is_between = blocks.iter().any(|block| block.0 == length);
        assert_eq!(damage.damaged, u64::from(!is_between), "{length} bytes: {damage:?}");
        // Of the block that is cut off, its header says how much is lost, once that is whole.
        let cut = blocks.iter().find(|block| block.0 + HEADER_BYTES <= length && length < block.0 + block.1);
        let lost = cut.map_or(0, |block| u64::from(block.2.events));
        assert_eq!(damage.lost_events, lost, "{length} bytes: {damage:?}");
    }
}

#[test]
fn a_lost_block_is_missed() {
    let bytes = small(false);
    let blocks = blocks_of(&bytes);
    let (at, length, _) = blocks[2];
    let without = [&bytes[..at], &bytes[at + length..]].concat();
    let (events, damage) = events_of(without).unwrap();
    assert_eq!((events.len(), damage.damaged), (4, 1));
    assert_eq!(damage.places[0].reason, "block 2 is missing: 3 follows");
}

#[test]
fn a_killed_recorder_can_go_on_at_every_length() {
    let bytes = small(true);
    let blocks = blocks_of(&bytes);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    for length in blocks[0].1..=bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let before: u32 = blocks.iter().filter(|b| b.0 + b.1 <= length).map(|b| b.2.events).sum();
        let mut writer = Writer::append(&path, &with_literals()).unwrap();
        writer.event(&Event::new(5_000, 1, Command::Ping)).unwrap();
        writer.finish(&Coverage::default()).unwrap();
        let mut reader = Reader::open(&path).unwrap();
        assert_eq!(read_all(&mut reader).len(), before as usize + 1, "{length} bytes");
        assert!(reader.has_index() && reader.damage().damaged == 0, "{length} bytes: {:?}", reader.damage());
        let segments: Vec<u32> = reader.info().iter().map(|info| info.segment).collect();
        assert_eq!(segments, [0, 1], "{length} bytes");
    }
}

#[test]
fn appending_keeps_the_choice_of_literals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    std::fs::write(&path, small(true)).unwrap();
    let error = Writer::append(&path, &WriterOptions::default()).err().unwrap().to_string();
    assert!(error.contains("has literals"), "{error}");
}

#[test]
fn sixteen_gigabytes_of_nothing_are_passed_over() {
    let bytes = small(false);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.rec");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&bytes).unwrap();
    file.set_len(16 << 30).unwrap();
    file.seek(SeekFrom::End(0)).unwrap();
    file.write_all(&bytes).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    assert_eq!(read_all(&mut reader).len(), 12);
    assert_eq!(reader.damage().damaged, 1);
    assert_eq!(reader.damage().skipped_bytes, (16 << 30) - bytes.len() as u64);
}

#[test]
fn what_is_no_recording_is_refused() {
    for bytes in [vec![], b"select 1".to_vec(), vec![0; 1000], b"\x89HRREC\r\n".repeat(50)] {
        assert!(Reader::of_bytes(bytes).is_err());
    }
    let mut later = small(false);
    let mut header = Header::decode(later.first_chunk().unwrap()).unwrap();
    header.version += 1;
    later[..HEADER_BYTES].copy_from_slice(&header.encode());
    let error = Reader::of_bytes(later).err().unwrap().to_string();
    assert!(error.contains("version 2"), "{error}");
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(mut data in collection::vec(any::<u8>(), 0..300)) {
        fuzzing::recording(&data);
        // Small numbers are what columns begin with: more of the decoder is reached.
        for byte in &mut data {
            *byte %= 40;
        }
        fuzzing::recording(&data);
    }

    #[test]
    fn a_wrong_byte_in_a_block_with_a_right_checksum_is_no_panic(at in any::<sample::Index>(), byte in any::<u8>()) {
        let bytes = small(false);
        let (start, length, header) = blocks_of(&bytes)[1];
        let mut raw = Vec::new();
        let mut decompressor = zstd::bulk::Decompressor::new().unwrap();
        header.open(&bytes[start + HEADER_BYTES..start + length], &mut decompressor, &mut raw).unwrap();
        let at = at.index(raw.len());
        raw[at] = byte;
        let payload = [&2_u16.to_le_bytes()[..], &raw].concat();
        fuzzing::recording(&payload);
    }
}
