//! The progress of a load, on standard error.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

pub struct Progress {
    is_shown: bool,
    is_terminal: bool,
    total: u64,
    start: Instant,
    last: Instant,
}

impl Progress {
    /// For `total` items. Shown if standard error is a terminal, or `always`.
    pub fn new(always: bool, total: u64) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let start = Instant::now();
        Self { is_shown: always || is_terminal, is_terminal, total, start, last: start }
    }

    /// Prints, at most once per second, how many items and rows are done.
    pub fn tick(&mut self, items: u64, rows: u64) {
        if !self.is_shown || self.last.elapsed() < EVERY {
            return;
        }
        self.last = Instant::now();
        let line = line(self.start.elapsed().as_secs_f64(), items, self.total, rows);
        // A closed terminal must not end the load.
        let _ = if self.is_terminal {
            write!(std::io::stderr(), "\r\x1b[K{line}")
        } else {
            writeln!(std::io::stderr(), "{line}")
        };
    }

    /// Clears the terminal's line for the next output.
    pub fn end(&self) {
        if self.is_shown && self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(elapsed_s: f64, items: u64, total: u64, rows: u64) -> String {
    let share = items as f64 / total.max(1) as f64;
    let left = if items == 0 {
        "time left unknown".to_owned()
    } else {
        format!("{:.0} s left", elapsed_s / share * (1.0 - share))
    };
    format!("loaded {:.1}%: {rows} rows, {:.0} rows/s, {left}", 100.0 * share, rows as f64 / elapsed_s)
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn the_rate_and_the_time_left() {
        assert_eq!(line(2.0, 250, 1000, 500), "loaded 25.0%: 500 rows, 250 rows/s, 6 s left");
        assert_eq!(line(1.0, 0, 1000, 0), "loaded 0.0%: 0 rows, 0 rows/s, time left unknown");
    }
}
