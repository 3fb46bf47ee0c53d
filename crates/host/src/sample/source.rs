//! Reads the same small kernel files repeatedly: they stay open, and their buffer is reused.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::sampler::Sample;
use super::values::Values;

/// A file that is read from its start on every tick. For most of /proc opening costs more than reading.
pub struct KeptFile {
    path: PathBuf,
    file: Option<File>,
    buffer: Vec<u8>,
}

impl KeptFile {
    /// `path` is relative to `root`. The file is opened at the first read, so that its absence is that read's error.
    pub fn new(root: &Path, path: impl AsRef<Path>) -> Self {
        Self { path: root.join(path), file: None, buffer: Vec::new() }
    }

    /// The file's text now.
    pub fn read(&mut self) -> anyhow::Result<&str> {
        match self.fill() {
            Ok(length) => std::str::from_utf8(&self.buffer[..length])
                .with_context(|| format!("{} is not text", self.path.display())),
            Err(error) => {
                // A device may have disappeared and returned under the same name: the next tick reopens it.
                self.file = None;
                Err(error).with_context(|| format!("cannot read {}", self.path.display()))
            }
        }
    }

    fn fill(&mut self) -> std::io::Result<usize> {
        let file = match &mut self.file {
            Some(file) => file,
            empty => empty.insert(File::open(&self.path)?),
        };
        let mut length = 0;
        loop {
            if self.buffer.len() < length + 4096 {
                self.buffer.resize((2 * self.buffer.len()).max(8192), 0);
            }
            match file.read_at(&mut self.buffer[length..], length as u64) {
                Ok(0) => return Ok(length),
                Ok(count) => length += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Turns the text of one file into values; fails if the text is not what the kernel writes.
pub type WriteValues = fn(&str, &mut Values) -> anyhow::Result<()>;

struct TextSampler {
    file: KeptFile,
    write: WriteValues,
}

impl Sample for TextSampler {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        (self.write)(self.file.read()?, values)
    }
}

/// The sampler of a single text file: what most files of /proc need.
pub fn text(root: &Path, path: &str, write: WriteValues) -> Box<dyn Sample> {
    Box::new(TextSampler { file: KeptFile::new(root, path), write })
}

/// The unsigned numbers at the start of a text, separated by spaces; ends at the first other word.
pub fn numbers(text: &str) -> impl Iterator<Item = u64> {
    let mut rest = text.as_bytes();
    std::iter::from_fn(move || {
        let start = rest.iter().position(|byte| *byte != b' ' && *byte != b'\t')?;
        let mut end = start;
        let mut number = 0_u64;
        while let Some(digit) = rest.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|digit| *digit < 10)
        {
            // A counter past 64 bits cannot exist; that many digits are not a number of the kernel's.
            number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
            end += 1;
        }
        if end == start || rest.get(end).is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return None;
        }
        rest = &rest[end..];
        Some(number)
    })
}

#[cfg(test)]
mod tests {
    use super::{KeptFile, numbers};

    #[test]
    fn numbers_end_at_the_first_word() {
        assert_eq!(numbers("  1 22\t333   IR-PCI 4").collect::<Vec<_>>(), [1, 22, 333]);
        assert_eq!(numbers("18446744073709551615").collect::<Vec<_>>(), [u64::MAX]);
        assert_eq!(numbers("18446744073709551616").count(), 0);
        assert_eq!(numbers("12kB 3").count(), 0);
        assert_eq!(numbers("").count(), 0);
    }

    #[test]
    fn a_kept_file_is_read_from_its_start_each_time_and_found_again_when_it_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut kept = KeptFile::new(folder.path(), "file");
        assert!(format!("{:#}", kept.read().unwrap_err()).contains("file: No such file"));
        let long = "x".repeat(20_000);
        std::fs::write(&path, &long).unwrap();
        assert_eq!(kept.read().unwrap(), long);
        std::fs::write(&path, "short").unwrap();
        assert_eq!(kept.read().unwrap(), "short");
    }
}
