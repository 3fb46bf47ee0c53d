use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;

fn all(path: &Path) -> (Vec<u8>, Option<io::Error>) {
    let mut input = open(path, false).unwrap();
    let mut out = Vec::new();
    let error = input.read_to_end(&mut out).err();
    (out, error)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn text() -> Vec<u8> {
    (0..20_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect()
}

#[test]
fn compressed_files_are_known_by_their_first_bytes_and_may_have_several_parts() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let text = text();
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"abc"].concat();
    for content in [
        text.clone(),
        [gzip(&text[..999]), gzip(&text[999..])].concat(),
        [zstd(&text[..999]), zstd(&text[999..])].concat(),
        [skippable, zstd(&text)].concat(),
    ] {
        std::fs::write(&path, content).unwrap();
        let (read, error) = all(&path);
        assert!(error.is_none(), "{error:?}");
        assert!(read == text);
    }
    for short in [&b""[..], b"\x1f", b"(\xb5/"] {
        std::fs::write(&path, short).unwrap();
        assert_eq!(all(&path).0, short);
    }
}

#[test]
fn text_of_utf_16_is_read_inside_of_what_is_compressed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let text = "# Time: 2024-01-31T12:00:00Z\nselect '\u{e9}\u{1f600}';\n".repeat(3000);
    let little = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    let big = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    let marked = format!("\u{feff}{text}");
    for wide in [little(&text), big(&text), little(&marked), big(&marked)] {
        for content in [gzip(&wide), zstd::encode_all(&wide[..], 1).unwrap()] {
            std::fs::write(&path, &content).unwrap();
            let (read, error) = all(&path);
            assert!(error.is_none() && read == text.as_bytes(), "{error:?}");
            assert!(!is_plain(&path).unwrap());
            // Cut off early and late: an error behind what there is.
            for length in [12, content.len() - 5] {
                std::fs::write(&path, &content[..length]).unwrap();
                let (read, error) = all(&path);
                assert!(text.as_bytes().starts_with(&read) && is_damage(&error.unwrap()));
            }
        }
    }
    std::fs::write(&path, gzip(b"\xff\xfe\0\0#\0\0\0")).unwrap();
    let error = format!("{:#}", open(&path, false).err().unwrap());
    assert!(error.contains("compressed here is UTF-32") && error.contains("iconv -f UTF-32"), "{error}");
}

#[test]
fn what_is_not_read_is_named_with_the_command_that_helps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    for (content, said) in [
        (&b"\xfd7zXZ\x00\x00\x04"[..], "xz -dc"),
        (b"BZh91AY&SY", "bzip2 -dc"),
        (b"\x04\x22\x4d\x18d", "lz4 -dc"),
        (b"PK\x03\x04", "unzip -p"),
        (b"\xff\xfe\0\0#\0\0\0", "iconv -f UTF-32"),
    ] {
        std::fs::write(&path, content).unwrap();
        let error = format!("{:#}", open(&path, false).err().unwrap());
        assert!(error.contains(said), "{error}");
        assert!(is_plain(&path).is_err());
    }
}

#[test]
fn what_can_be_read_of_a_damaged_file_is_given_before_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let text = text();
    for mut content in [gzip(&text), zstd::encode_all(&text[..], 1).unwrap()] {
        content.truncate(content.len() - 5);
        std::fs::write(&path, &content).unwrap();
        let (read, error) = all(&path);
        assert!(text.starts_with(&read));
        let error = error.unwrap();
        assert!(is_damage(&error) && error.to_string().contains("cut off"), "{error}");
    }
    let content = [gzip(&text), b"no member".to_vec()].concat();
    std::fs::write(&path, &content).unwrap();
    let (read, error) = all(&path);
    assert!(read == text && is_damage(&error.unwrap()));
}

/// A thread that follows a file and tells what it reads.
struct Follower {
    path: PathBuf,
    bytes: Receiver<Vec<u8>>,
    stop: UnixStream,
    thread: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Follower {
    fn new(content: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        std::fs::write(&path, content).unwrap();
        let (stop, writer) = StopSignal::pair();
        let (sender, bytes) = channel();
        let mut input = open_until(&path, Some(stop)).unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            loop {
                match input.read(&mut buffer).unwrap() {
                    0 => return,
                    count => sender.send(buffer[..count].to_vec()).unwrap(),
                }
            }
        });
        Self { path, bytes, stop: writer, thread, _folder: folder }
    }

    fn append(&self, path: &Path, text: &str) {
        std::fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn expect(&self, text: &str) {
        let mut read = Vec::new();
        while read.len() < text.len() {
            read.extend(self.bytes.recv_timeout(Duration::from_secs(10)).unwrap());
        }
        assert_eq!(String::from_utf8_lossy(&read), text);
    }

    fn finish(mut self, rest: &str) {
        self.stop.write_all(b"!").unwrap();
        self.thread.join().unwrap();
        let read: Vec<u8> = self.bytes.iter().flatten().collect();
        assert_eq!(String::from_utf8_lossy(&read), rest);
    }
}

#[test]
fn a_followed_file_is_read_to_its_end_before_the_signal_counts() {
    let follower = Follower::new("one\n");
    follower.expect("one\n");
    follower.append(&follower.path, "two\n");
    follower.expect("two\n");
    follower.append(&follower.path, "three\n");
    follower.finish("three\n");
}

#[test]
fn a_renamed_file_is_read_until_its_successor_has_something() {
    let follower = Follower::new("one\n");
    follower.expect("one\n");
    let old = follower.path.with_extension("1");
    std::fs::rename(&follower.path, &old).unwrap();
    std::fs::write(&follower.path, "").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    follower.append(&old, "two\n");
    follower.expect("two\n");
    follower.append(&old, "three\n");
    follower.append(&follower.path, "four\n");
    follower.expect("three\nfour\n");
    follower.finish("");
}

#[test]
fn a_deleted_file_is_read_on_and_its_successor_found() {
    let follower = Follower::new("one\n");
    follower.expect("one\n");
    std::fs::remove_file(&follower.path).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(&follower.path, "two\n").unwrap();
    follower.expect("two\n");
    follower.finish("");
}

#[test]
fn a_truncated_file_is_read_from_its_beginning() {
    let follower = Follower::new("one\ntwo\n");
    follower.expect("one\ntwo\n");
    std::fs::write(&follower.path, "three\n").unwrap();
    follower.expect("three\n");
    // Grown past the old end before it was looked at.
    std::fs::write(&follower.path, "four\nfive\nsix\n").unwrap();
    follower.expect("four\nfive\nsix\n");
    follower.finish("");
}

#[test]
fn a_file_that_was_truncated_and_has_grown_since_is_read_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, "three\n").unwrap();
    let (stop, _writer) = StopSignal::pair();
    let mut input = open_until(&path, Some(stop)).unwrap();
    let mut buffer = [0; 1 << 16];
    for text in ["three\n", "four\nfive\nsix\n"] {
        // The second time it is longer before the reader looks at it.
        std::fs::write(&path, text).unwrap();
        let mut read = vec![];
        while read.len() < text.len() {
            let count = input.read(&mut buffer).unwrap();
            read.extend_from_slice(&buffer[..count]);
        }
        assert_eq!(String::from_utf8_lossy(&read), text);
    }
}

#[test]
fn a_compressed_file_is_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    std::fs::write(&path, gzip(b"one\n")).unwrap();
    let error = open_until(&path, Some(StopSignal::pair().0)).err().unwrap();
    assert!(format!("{error:#}").contains("compressed"));
}
