//! Replies: counted by the headers of their packets, decoded only if a script asked for the rows.

use mysql::fields::{Cell, Rows};

/// The reply to one request.
#[derive(Clone, Copy)]
pub struct Reply<'a> {
    pub affected_rows: u64,
    /// Rows of all results.
    pub rows: u64,
    kept: &'a Rows,
}

impl<'a> Reply<'a> {
    pub(super) fn new(affected_rows: u64, rows: u64, kept: &'a Rows) -> Self {
        Self { affected_rows, rows, kept }
    }

    /// How many rows were kept: all of the first result, if the request said `keep_rows`.
    pub fn kept_rows(&self) -> usize {
        self.kept.count()
    }

    /// A cell of a kept row; None if there is no such row or column.
    pub fn cell(&self, row: usize, column: usize) -> Option<Cell<'a>> {
        self.kept.cell(row, column)
    }

    /// An integer, also from a DECIMAL or text that is one.
    pub fn int(&self, row: usize, column: usize) -> Option<i64> {
        match self.cell(row, column)? {
            Cell::Int(value) => Some(value),
            Cell::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            Cell::Null | Cell::Float(_) => None,
        }
    }

    /// A number, also from a DECIMAL or text that is one.
    pub fn float(&self, row: usize, column: usize) -> Option<f64> {
        match self.cell(row, column)? {
            Cell::Int(value) => Some(value as f64),
            Cell::Float(value) => Some(value),
            Cell::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            Cell::Null => None,
        }
    }

    pub fn bytes(&self, row: usize, column: usize) -> Option<&'a [u8]> {
        match self.cell(row, column)? {
            Cell::Bytes(bytes) => Some(bytes),
            Cell::Null | Cell::Int(_) | Cell::Float(_) => None,
        }
    }
}
