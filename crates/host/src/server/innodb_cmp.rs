//! information_schema.INNODB_CMP: the pages of compressed tables, and the time that compressing them takes.

use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;

/// Not every second, because the times are whole seconds.
pub const INNODB_CMP: Kind = Kind::server(
    "innodb_cmp",
    "pages of compressed tables that were compressed and decompressed, by page size, and the seconds it took",
    sample,
)
.every(5);

/// A server that has compressed nothing since its start has rows of 0.
const PAGES: &str = "SELECT page_size, compress_ops, compress_ops_ok, compress_time, uncompress_ops, \
    uncompress_time FROM information_schema.INNODB_CMP WHERE compress_ops + uncompress_ops > 0";
const METRICS: [&str; 5] =
    ["compress_ops", "compress_ops_ok", "compress_s", "uncompress_ops", "uncompress_s"];

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    let mut rows = Vec::new();
    session.connection.query(PAGES, |_, row| {
        let text = |column| std::str::from_utf8(row.get(column)?).ok();
        let number = |column: usize| text(column + 1)?.parse::<u64>().ok();
        let numbers = (0..METRICS.len()).map(number).collect::<Option<Vec<u64>>>();
        if let (Some(size), Some(numbers)) = (text(0), numbers) {
            rows.push((size.to_owned(), numbers));
        }
    })?;
    values.table(&METRICS, &rows);
    Ok(())
}
