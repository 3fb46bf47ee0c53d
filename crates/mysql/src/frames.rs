//! Packets on the wire: payloads are split into frames of at most 16 MiB - 1, each with length and number.

use super::error::Error;

/// Length and number before a frame.
pub const HEADER: usize = 4;
/// A frame of this length is continued by the next.
pub const LARGEST_FRAME: usize = 0xFF_FFFF;
/// Whatever is said before and during a login is far smaller.
const LARGEST_LOGIN: usize = 1 << 20;
const SMALLEST_SPACE: usize = 16 * 1024;

/// Appends a payload as frames. `sequence` is the number of the first frame and becomes that of the next.
pub fn encode(payload: &[u8], sequence: &mut u8, out: &mut Vec<u8>) {
    let mut rest = payload;
    loop {
        let (frame, after) = rest.split_at(rest.len().min(LARGEST_FRAME));
        out.extend_from_slice(&u32::try_from(frame.len()).expect("24 bits").to_le_bytes()[..3]);
        out.push(*sequence);
        out.extend_from_slice(frame);
        *sequence = sequence.wrapping_add(1);
        rest = after;
        // A payload whose last frame is full ends with an empty one.
        if frame.len() < LARGEST_FRAME {
            return;
        }
    }
}

/// Appends a length-encoded integer.
pub fn write_length(length: usize, out: &mut Vec<u8>) {
    let bytes = (length as u64).to_le_bytes();
    match length {
        0..=0xFA => out.push(bytes[0]),
        0xFB..=0xFFFF => {
            out.push(0xFC);
            out.extend_from_slice(&bytes[..2]);
        }
        0x1_0000..=0xFF_FFFF => {
            out.push(0xFD);
            out.extend_from_slice(&bytes[..3]);
        }
        _ => {
            out.push(0xFE);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Collects bytes as they arrive and returns payloads, without a copy if a payload is one frame. What it takes is
/// limited: one that sends too much is refused before it fills the memory.
pub struct Frames {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    joined: Vec<u8>,
    is_joining: bool,
    payload: Payload,
    /// The number that the next frame must have.
    pub sequence: u8,
    /// How many bytes may be taken, and how many of them are left.
    limit: usize,
    left: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            buffer: Vec::new(),
            start: 0,
            end: 0,
            joined: Vec::new(),
            is_joining: false,
            payload: Payload::default(),
            sequence: 0,
            limit: LARGEST_LOGIN,
            left: LARGEST_LOGIN,
        }
    }
}

#[derive(Default)]
enum Payload {
    Frame(std::ops::Range<usize>),
    #[default]
    Joined,
}

impl Frames {
    /// From now on `limit` bytes may be taken. Before the first call it is what a login may need.
    pub fn allow(&mut self, limit: usize) {
        (self.limit, self.left) = (limit, limit);
    }

    /// Whoever keeps what was taken needs `bytes` more for it.
    pub fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        self.left = self.left.checked_sub(bytes).ok_or(Error::TooLong(self.limit))?;
        Ok(())
    }

    /// Room for the next bytes; after writing there, `advance` says how many.
    pub fn space(&mut self) -> &mut [u8] {
        let wanted =
            self.frame_length().map_or(0, |length| (HEADER + length).saturating_sub(self.end - self.start));
        let wanted = wanted.max(SMALLEST_SPACE);
        if self.buffer.len() - self.end < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.buffer.len() - self.end < wanted {
                self.buffer.resize(self.end + wanted, 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    pub fn advance(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Looks for the next payload; if it is complete, `payload` returns it.
    pub fn has_payload(&mut self) -> Result<bool, Error> {
        loop {
            let Some(length) = self.frame_length() else { return Ok(false) };
            // Before its content arrives: another protocol's greeting looks like a packet of megabytes.
            if self.buffer[self.start + 3] != self.sequence {
                return Err(Error::Malformed("a packet is out of order"));
            }
            if HEADER + length > self.left {
                return Err(Error::TooLong(self.limit));
            }
            if self.end - self.start < HEADER + length {
                return Ok(false);
            }
            self.left -= HEADER + length;
            self.sequence = self.sequence.wrapping_add(1);
            let frame = self.start + HEADER..self.start + HEADER + length;
            self.start = frame.end;
            let is_last = length < LARGEST_FRAME;
            if is_last && !self.is_joining {
                self.payload = Payload::Frame(frame);
                return Ok(true);
            }
            if !self.is_joining {
                self.joined.clear();
                self.is_joining = true;
            }
            self.joined.extend_from_slice(&self.buffer[frame]);
            if is_last {
                self.is_joining = false;
                self.payload = Payload::Joined;
                return Ok(true);
            }
        }
    }

    /// The payload that `has_payload` found last; valid until the next `space`.
    pub fn payload(&self) -> &[u8] {
        match &self.payload {
            Payload::Frame(frame) => &self.buffer[frame.clone()],
            Payload::Joined => &self.joined,
        }
    }

    /// Whether bytes are left after the last payload. After the greeting they mean that an attacker injected data
    /// before the encryption started.
    pub fn has_rest(&self) -> bool {
        self.end > self.start
    }

    fn frame_length(&self) -> Option<usize> {
        match self.buffer[self.start..self.end] {
            [a, b, c, _, ..] => Some(u32::from_le_bytes([a, b, c, 0]) as usize),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, Frames, HEADER, LARGEST_FRAME, encode};
    use proptest::prelude::{any, prop_assert_eq, proptest};

    /// Feeds `wire` in pieces of `step` bytes and collects the payloads.
    fn decode(wire: &[u8], step: usize) -> Vec<Vec<u8>> {
        let mut frames = Frames::default();
        frames.allow(wire.len());
        let mut payloads = Vec::new();
        let mut rest = wire;
        while !rest.is_empty() {
            let space = frames.space();
            let count = step.min(rest.len()).min(space.len());
            space[..count].copy_from_slice(&rest[..count]);
            frames.advance(count);
            rest = &rest[count..];
            while frames.has_payload().unwrap() {
                payloads.push(frames.payload().to_vec());
            }
        }
        assert!(!frames.has_rest());
        payloads
    }

    #[test]
    fn payloads_around_the_largest_frame() {
        for length in [0, 1, LARGEST_FRAME - 1, LARGEST_FRAME, LARGEST_FRAME + 1, 2 * LARGEST_FRAME] {
            let payload: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let mut wire = Vec::new();
            let mut sequence = 0;
            encode(&payload, &mut sequence, &mut wire);
            encode(b"next", &mut sequence, &mut wire);
            assert_eq!(usize::from(sequence), length / LARGEST_FRAME + 2);
            let decoded = decode(&wire, 100_000);
            assert_eq!(decoded.len(), 2);
            assert!(decoded[0] == payload, "{length}");
            assert_eq!(decoded[1], b"next");
        }
    }

    #[test]
    fn a_wrong_number_is_an_error() {
        let mut frames = Frames::default();
        frames.space()[..5].copy_from_slice(&[1, 0, 0, 7, 42]);
        frames.advance(5);
        assert!(frames.has_payload().is_err());
    }

    #[test]
    fn what_is_too_large_is_refused_by_its_header() {
        let mut wire = Vec::new();
        encode(&[0; 90], &mut 0, &mut wire);
        encode(&[0; 100], &mut 1, &mut wire);
        let mut frames = Frames::default();
        frames.allow(2 * HEADER + 90 + 99);
        let given = HEADER + 90 + HEADER;
        frames.space()[..given].copy_from_slice(&wire[..given]);
        frames.advance(given);
        assert!(frames.has_payload().unwrap());
        assert!(matches!(frames.has_payload(), Err(Error::TooLong(197))));
        frames.allow(HEADER + 100);
        assert!(!frames.has_payload().unwrap());
        assert!(frames.charge(HEADER + 100).is_ok());
        assert!(matches!(frames.has_payload(), Err(Error::TooLong(_))));
    }

    proptest! {
        #[test]
        fn any_payloads_in_any_pieces(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..20),
            step in 1..50_usize,
        ) {
            let mut wire = Vec::new();
            let mut sequence = 0;
            for payload in &payloads {
                encode(payload, &mut sequence, &mut wire);
            }
            prop_assert_eq!(decode(&wire, step), payloads);
        }

        #[test]
        fn no_bytes_can_break_the_decoder(wire in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let mut frames = Frames::default();
            for piece in wire.chunks(100) {
                frames.space()[..piece.len()].copy_from_slice(piece);
                frames.advance(piece.len());
                while let Ok(true) = frames.has_payload() {
                    let _ = frames.payload();
                }
            }
        }
    }
}
