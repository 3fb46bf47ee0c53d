//! How far the reading is, on standard error if that is a terminal.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// A thread that looks at what the process has read; readers know nothing of it.
pub struct Progress(Option<(Sender<()>, JoinHandle<()>)>);

impl Progress {
    #[must_use]
    pub fn start(files: &[PathBuf], follow: bool) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        // The length of a pipe is unknown.
        let sizes: Option<u64> = files
            .iter()
            .map(|path| std::fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| found.len()))
            .sum();
        let total = sizes.filter(|total| *total > 0 && !follow);
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || {
            let (start, first) = (Instant::now(), bytes_read());
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                let (Some(first), Some(now)) = (first, bytes_read()) else { return };
                let line = line(now.saturating_sub(first), total, start.elapsed().as_secs_f64());
                let _ = write!(std::io::stderr(), "\r{line}\x1b[K");
            }
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        });
        Self(Some((end, thread)))
    }

    /// Takes its line away.
    pub fn end(self) {
        if let Some((end, thread)) = self.0 {
            drop(end);
            let _ = thread.join();
        }
    }
}

fn line(bytes: u64, total: Option<u64>, elapsed_s: f64) -> String {
    let rate = bytes as f64 / elapsed_s.max(1e-3);
    let read = format!("{:.0} MB, {:.0} MB/s", bytes as f64 / 1e6, rate / 1e6);
    match total {
        Some(total) if rate > 0.0 => {
            let left_s = total.saturating_sub(bytes) as f64 / rate;
            let percent = (bytes as f64 / total as f64 * 100.0).min(100.0);
            format!("{percent:3.0}%, {read}, {left_s:.0} s left")
        }
        _ => read,
    }
}

/// What this process has asked the kernel to read so far.
fn bytes_read() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("rchar: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{bytes_read, line};

    #[test]
    fn a_line_tells_what_is_left() {
        assert_eq!(line(50_000_000, Some(200_000_000), 0.5), " 25%, 50 MB, 100 MB/s, 2 s left");
        assert_eq!(line(50_000_000, None, 0.5), "50 MB, 100 MB/s");
        assert!(bytes_read().is_some());
    }
}
