//! Where events end that do not say so: since 11.7 MariaDB writes `end_log_pos 0` into events of transactions, because it does not
//! know yet where they will be. The position at which the next one begins tells.

use std::collections::VecDeque;
use std::io::Read;

use memchr::memmem;

use super::lines::{Lines, MOST_BYTES};
use super::text_header::number;

const NO_END: &[u8] = b" end_log_pos 0 ";

/// Takes a line, whether it is cut, and the offset behind it.
type Give<'a> = &'a mut dyn FnMut(&[u8], bool, u64) -> anyhow::Result<()>;

#[derive(Default)]
struct Ends {
    /// Positions of events whose heads are still to come.
    begins: VecDeque<u64>,
    /// Lines from a head on that waits for its end, and where its event begins.
    held: Vec<(Vec<u8>, bool, u64)>,
    begin: u64,
    held_bytes: usize,
}

impl Ends {
    fn take(&mut self, line: &[u8], is_cut: bool, offset: u64, give: Give<'_>) -> anyhow::Result<()> {
        if let Some((at, b"")) = line.strip_prefix(b"# at ").and_then(number) {
            self.release((at > self.begin).then_some(at), give)?;
            self.begins.push_back(at);
        } else if line.starts_with(b"#") && memmem::find(line, b" end_log_pos ").is_some() {
            self.release(None, give)?;
            let begin = self.begins.pop_front();
            if let Some(begin) = begin.filter(|_| memmem::find(line, NO_END).is_some()) {
                self.begin = begin;
                self.hold(line, is_cut, offset);
                let next = self.begins.front().copied().filter(|next| *next > begin);
                return if next.is_some() { self.release(next, give) } else { Ok(()) };
            }
        } else if !self.held.is_empty() {
            self.hold(line, is_cut, offset);
            return if self.held_bytes > MOST_BYTES { self.release(None, give) } else { Ok(()) };
        }
        give(line, is_cut, offset)
    }

    fn hold(&mut self, line: &[u8], is_cut: bool, offset: u64) {
        self.held_bytes += line.len();
        self.held.push((line.to_vec(), is_cut, offset));
    }

    /// Gives what waited, the head with its end if that is known.
    fn release(&mut self, end: Option<u64>, give: Give<'_>) -> anyhow::Result<()> {
        self.held_bytes = 0;
        for (number, (mut line, is_cut, offset)) in std::mem::take(&mut self.held).into_iter().enumerate() {
            if number == 0
                && let Some(end) = end
                && let Some(at) = memmem::find(&line, NO_END)
            {
                line.splice(at..at + NO_END.len(), format!(" end_log_pos {end} ").into_bytes());
            }
            give(&line, is_cut, offset)?;
        }
        Ok(())
    }
}

/// Gives all lines of a text of mysqlbinlog; what the input was is told by what comes back.
///
/// # Errors
/// It cannot be read, or as `give` says.
pub fn read<R: Read>(input: R, give: Give<'_>) -> anyhow::Result<Lines<R>> {
    let (mut lines, mut ends) = (Lines::new(input), Ends::default());
    while lines.next()? {
        ends.take(&lines.line, lines.is_cut, lines.offset, give)?;
    }
    ends.release(None, give)?;
    Ok(lines)
}

#[cfg(test)]
mod tests {
    fn ends(text: &str) -> Vec<String> {
        let mut given = Vec::new();
        let mut give = |line: &[u8], _: bool, _: u64| {
            given.push(String::from_utf8_lossy(line).into_owned());
            Ok(())
        };
        super::read(text.as_bytes(), &mut give).unwrap();
        given
    }

    #[test]
    fn the_next_position_is_the_end() {
        let head = |end: u64, what: &str| {
            format!("#261201 12:31:46 server id 1  end_log_pos {end} CRC32 0x1 \t{what}")
        };
        let log = |ends: [u64; 5]| {
            [
                "# at 4".to_owned(),
                head(ends[0], "Start"),
                "# at 100".to_owned(),
                head(ends[1], "Query"),
                "insert into t values ('".to_owned(),
                "# at x')".to_owned(),
                "/*!*/;".to_owned(),
                "# at 150".to_owned(),
                "# at 190".to_owned(),
                head(ends[2], "Table_map"),
                head(ends[3], "Write_rows"),
                "BINLOG '".to_owned(),
                "# at 230".to_owned(),
                head(ends[4], "Xid = 1"),
            ]
            .map(|line| line + "\n")
            .concat()
        };
        let told = log([100, 150, 190, 230, 260]);
        assert_eq!(ends(&log([100, 0, 0, 0, 260])), ends(&told));
        assert_eq!(ends(&told).concat(), told.replace('\n', ""), "nothing changes");
        // The last one's end nothing tells.
        let open = log([100, 0, 0, 0, 0]);
        assert_eq!(ends(&open).last().unwrap(), &head(0, "Xid = 1"));
    }
}
