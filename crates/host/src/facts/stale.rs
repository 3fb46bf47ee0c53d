//! Tables of InnoDB whose statistics are older than their rows.
//!
//! InnoDB counts the rows that were changed since it calculated a table's statistics, and calculates them again when
//! it has counted a tenth of the table: if the counter is larger, nothing does so.

use serde::Serialize;

/// Below this many changes a plan is rarely worth a word.
const CHANGES: u64 = 10_000;
const MOST: usize = 20;

#[derive(Debug, PartialEq, Serialize)]
pub struct Stale {
    /// `schema.table`; one of its partitions may be meant.
    table: String,
    /// InnoDB's estimate, which it keeps up to date.
    rows: u64,
    /// Rows changed since the statistics were calculated, or since the server has opened the table.
    changed: u64,
}

/// Half the table is five times what starts a calculation; a table without statistics counts nothing. Files of
/// full-text indexes have no statistics of use. MySQL 8 left SYS out of the name.
pub fn sql(has_sys: bool) -> String {
    let table = if has_sys { "INNODB_SYS_TABLESTATS" } else { "INNODB_TABLESTATS" };
    format!(
        "SELECT NAME, NUM_ROWS, MODIFIED_COUNTER FROM information_schema.{table} \
         WHERE MODIFIED_COUNTER >= {CHANGES} AND MODIFIED_COUNTER > NUM_ROWS / 2 \
         AND NAME LIKE '%/%' AND NAME NOT LIKE 'mysql/%' AND NAME NOT LIKE 'sys/%' \
         AND NAME NOT LIKE '%/#sql%' AND NAME NOT LIKE '%/fts\\_0%' \
         ORDER BY MODIFIED_COUNTER DESC LIMIT {MOST}"
    )
}

/// Of several partitions the one that changed most.
pub fn tables(rows: Vec<Vec<Option<String>>>) -> Vec<Stale> {
    let mut found: Vec<Stale> = Vec::new();
    for row in rows {
        let Ok([Some(name), Some(rows), Some(changed)]) = <[Option<String>; 3]>::try_from(row) else {
            continue;
        };
        let (Ok(rows), Ok(changed)) = (rows.parse(), changed.parse()) else { continue };
        let table = table_of(&name);
        if found.iter().all(|known| known.table != table) {
            found.push(Stale { table, rows, changed });
        }
    }
    found
}

/// `shop/orders#P#p0` -> `shop.orders`.
fn table_of(name: &str) -> String {
    let whole = ["#P#", "#p#"].iter().find_map(|mark| name.split_once(mark)).map_or(name, |(table, _)| table);
    whole.replacen('/', ".", 1)
}

#[cfg(test)]
mod tests {
    use super::{Stale, tables};

    fn row(cells: &[&str]) -> Vec<Option<String>> {
        cells.iter().map(|cell| Some((*cell).to_owned())).collect()
    }

    #[test]
    fn a_table_is_named_once() {
        let found = tables(vec![
            row(&["shop/orders#P#p1", "1000", "90000"]),
            row(&["shop/orders#p#p0", "1000", "80000"]),
            row(&["shop/lines", "131072", "131071"]),
            row(&["shop/odd", "x", "1"]),
            vec![None; 3],
            row(&["too", "few"]),
        ]);
        let stale = |table: &str, rows, changed| Stale { table: table.to_owned(), rows, changed };
        assert_eq!(found, [stale("shop.orders", 1000, 90_000), stale("shop.lines", 131_072, 131_071)]);
    }
}
