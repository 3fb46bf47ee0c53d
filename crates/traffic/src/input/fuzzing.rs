//! What fuzzers drive: compressed files that may hold anything. Compiled for `cargo fuzz` only.

use std::io::{self, Cursor, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{GZIP, Input, OTHERS, Start, ZSTD, decompress, is_damage};

/// A few kilobytes of a hostile file may stand for gigabytes: what is read stays small, what is kept must.
const MOST_BYTES: u64 = 4 << 20;
const PIECE_BYTES: usize = 64 << 10;

/// The first byte says what the rest is: a file as it is, one behind the magic of gzip or of zstd, or what a good gzip or
/// zstd file holds, of which the second byte damages one. The third says how large the pieces are in which it is read.
///
/// # Panics
///
/// That is what it looks for; also where the size of the pieces changes what is read by more than a piece before the
/// damage, and where an error that comes from the content does not say so.
pub fn compressed(data: &[u8]) {
    let [kind, at, piece_bytes, rest @ ..] = data else { return };
    let file = match kind % 5 {
        0 => rest.to_vec(),
        1 => [&GZIP, rest].concat(),
        2 => [&ZSTD, rest].concat(),
        3 => damaged(gzip(rest), *at),
        _ => damaged(zstd::encode_all(rest, 1).expect("memory"), *at),
    };
    if OTHERS.iter().any(|(magic, ..)| file.starts_with(magic)) {
        return; // it is named, not read
    }
    let (whole, ended) = read(&file, usize::MAX);
    let (pieces, pieces_ended) = read(&file, usize::from(*piece_bytes) + 1);
    assert_eq!(ended, pieces_ended);
    if ended {
        assert_eq!(whole, pieces);
    } else {
        // A decoder that meets damage keeps what it had ready for this call, so smaller pieces may come further.
        assert!(whole.starts_with(&pieces) || pieces.starts_with(&whole));
        assert!(whole.len().abs_diff(pieces.len()) <= PIECE_BYTES);
    }
    if *at == 0 && kind % 5 > 2 {
        assert_eq!((whole, ended), (rest.to_vec(), true));
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// 0 leaves it as it is; the highest bit cuts the file, the others change a byte.
fn damaged(mut file: Vec<u8>, at: u8) -> Vec<u8> {
    let place = usize::from(at & 0x7F) % file.len();
    match at {
        0 => {}
        128.. => file.truncate(place),
        _ => file[place] ^= 1 + at,
    }
    file
}

/// What came, and whether it came to an end.
fn read(file: &[u8], piece_bytes: usize) -> (Vec<u8>, bool) {
    let source =
        match Start::of(Box::new(Cursor::new(file.to_vec()))).map_err(Into::into).and_then(decompress) {
            Ok(source) => source,
            Err(error) => panic!("{error:#}"),
        };
    let mut input = Input { name: "fuzz".to_owned(), source }.take(MOST_BYTES);
    let (mut content, mut buffer) = (Vec::new(), vec![0; piece_bytes.min(PIECE_BYTES)]);
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return (content, true),
            Ok(count) => content.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                assert!(is_damage(&error), "{error}");
                return (content, false);
            }
        }
    }
}
