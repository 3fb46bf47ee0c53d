//! How many rows an event has: their bytes are stepped over, never read as values.

use super::bodies::{Cursor, expand};
use super::kinds::PARTIAL_UPDATE_ROWS;
use super::tables::{Table, Width};
use super::transaction::Kind;

/// The last event of a statement.
const ENDS_STATEMENT: u16 = 1;

/// An event that changes rows.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    pub kind: Kind,
    pub table: u64,
    pub ends_statement: bool,
    event: u8,
    /// Behind the fixed part: the number of columns and what follows.
    content: &'a [u8],
}

/// What is done, by the kind of event.
#[must_use]
pub fn kind_of(event: u8) -> Option<Kind> {
    match event {
        23 | 30 | 166 | 169 => Some(Kind::Insert),
        24 | 31 | 167 | 170 | PARTIAL_UPDATE_ROWS => Some(Kind::Update),
        25 | 32 | 168 | 171 => Some(Kind::Delete),
        _ => None,
    }
}

/// Takes the fixed part, in which the number of the table has so many bytes.
pub fn rows(event: u8, body: &[u8], number_bytes: usize) -> Option<Rows<'_>> {
    let kind = kind_of(event)?;
    let mut rest = Cursor(body);
    let table = rest.integer(number_bytes)?;
    let flags = rest.integer(2)? as u16;
    if matches!(event, 30..=32 | PARTIAL_UPDATE_ROWS | 169..=171) {
        let more = rest.integer(2)? as usize;
        rest.take(more.checked_sub(2)?)?;
    }
    Some(Rows { kind, table, ends_statement: flags & ENDS_STATEMENT != 0, event, content: rest.0 })
}

/// What counting found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub rows: u64,
    /// What compression took off the event's bytes.
    pub saved_bytes: u64,
}

impl Rows<'_> {
    /// None if the rows are not what the table's definition says.
    pub fn count(&self, table: &Table, expanded: &mut Vec<u8>) -> Option<Counted> {
        let mut rest = Cursor(self.content);
        let columns = usize::try_from(rest.packed()?).ok()?;
        if columns != table.columns.len() {
            return None;
        }
        let before = Image::new(rest.take(columns.div_ceil(8))?, &table.columns);
        let after = match self.kind {
            Kind::Update => Some(Image::new(rest.take(columns.div_ceil(8))?, &table.columns)),
            _ => None,
        };
        let mut saved_bytes = 0;
        if matches!(self.event, 166..=171) {
            expand(rest.0, expanded)?;
            saved_bytes = (expanded.len() as u64).saturating_sub(rest.0.len() as u64);
            rest = Cursor(expanded);
        }
        let documents = table.columns.iter().filter(|width| matches!(width, Width::Json(_))).count();
        let mut count = 0;
        while !rest.0.is_empty() {
            let length = rest.0.len();
            before.step(&mut rest)?;
            if let Some(after) = &after {
                if self.event == PARTIAL_UPDATE_ROWS && rest.packed()? & 1 != 0 {
                    rest.take(documents.div_ceil(8))?;
                }
                after.step(&mut rest)?;
            }
            if rest.0.len() == length {
                return None;
            }
            count += 1;
        }
        Some(Counted { rows: count, saved_bytes })
    }
}

/// The columns that a row has, before or after a change.
struct Image {
    widths: Vec<Width>,
    null_bytes: usize,
}

impl Image {
    fn new(present: &[u8], columns: &[Width]) -> Self {
        let is_present = |place: usize| present[place / 8] >> (place % 8) & 1 == 1;
        let widths: Vec<_> = columns
            .iter()
            .enumerate()
            .filter(|(place, _)| is_present(*place))
            .map(|(_, width)| *width)
            .collect();
        Self { null_bytes: widths.len().div_ceil(8), widths }
    }

    /// Steps over one row.
    fn step(&self, rest: &mut Cursor<'_>) -> Option<()> {
        let nulls = rest.take(self.null_bytes)?;
        for (place, width) in self.widths.iter().enumerate() {
            if nulls[place / 8] >> (place % 8) & 1 == 1 {
                continue;
            }
            let bytes = match *width {
                Width::Fixed(bytes) => bytes as usize,
                Width::Prefixed(bytes) | Width::Json(bytes) if (1..=4).contains(&bytes) => {
                    rest.integer(bytes.into())? as usize
                }
                _ => return None,
            };
            rest.take(bytes)?;
        }
        Some(())
    }
}
