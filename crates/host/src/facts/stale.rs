//! Tables of InnoDB whose statistics are older than their rows.
//!
//! InnoDB counts the rows that were changed since it calculated a table's statistics, and calculates them again when
//! it has counted a tenth of the table: if the counter is larger, nothing does so. It forgets the counter when it
//! closes the table, which a restart does, and in MySQL 9 also FLUSH TABLES. But it keeps the pages that the statistics
//! describe, and the file shows how many there are.

use serde::Serialize;

/// Below this many changes a plan is rarely worth a word.
const CHANGES: u64 = 10_000;
const MOST: usize = 20;
/// How far the bytes in use must exceed those that the statistics describe. The server counts a few free extents of
/// 1 MiB, which it keeps in reserve, as used.
const TIMES: u64 = 4;
const MORE_BYTES: u64 = 8 << 20;

#[derive(Debug, PartialEq, Serialize)]
pub struct Stale {
    /// `schema.table`; one of its partitions may be meant.
    table: String,
    /// InnoDB's estimate, which it keeps up to date.
    rows: u64,
    /// Rows changed since the statistics were calculated, or since the server has opened the table.
    changed: u64,
    /// What the statistics describe, and what is in use of the file, if that is much more.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Bytes>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Bytes {
    described: u64,
    used: u64,
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

/// Files with much more in use than the statistics describe. What a DELETE has freed is not in use.
pub fn sql_of_files(is_mariadb: bool) -> String {
    let bytes = |column: &str| format!("CAST({column} AS SIGNED)");
    // Both sides have collations of their own.
    let same = |one: &str, other: &str| {
        format!(
            "CONVERT({one} USING utf8mb4) COLLATE utf8mb4_bin = CONVERT({other} USING utf8mb4) COLLATE utf8mb4_bin"
        )
    };
    let name = "CONCAT(s.database_name, '/', s.table_name)";
    let (used, files) = if is_mariadb {
        let tables = format!(
            "information_schema.INNODB_SYS_TABLESPACES f ON {} JOIN information_schema.TABLES t ON {} AND {}",
            same("f.NAME", name),
            same("t.TABLE_SCHEMA", "s.database_name"),
            same("t.TABLE_NAME", "s.table_name"),
        );
        (format!("{} - {}", bytes("f.FILE_SIZE"), bytes("t.DATA_FREE")), tables)
    } else {
        let files = format!("information_schema.FILES f ON {}", same("f.TABLESPACE_NAME", name));
        let extents = format!("({} - {})", bytes("f.TOTAL_EXTENTS"), bytes("f.FREE_EXTENTS"));
        (format!("{extents} * f.EXTENT_SIZE"), files)
    };
    let described = "(s.clustered_index_size + s.sum_of_other_index_sizes) * @@innodb_page_size";
    format!(
        "SELECT {name}, s.n_rows, {described} AS described, {used} AS used \
         FROM mysql.innodb_table_stats s JOIN {files} \
         WHERE @@innodb_stats_persistent AND s.database_name NOT IN ('mysql', 'sys') \
         HAVING used > {TIMES} * described AND used > described + {MORE_BYTES} \
         ORDER BY used DESC LIMIT {MOST}"
    )
}

/// Of several partitions the one that changed most; then those that only their files show.
pub fn tables(changed: Vec<Vec<Option<String>>>, files: Vec<Vec<Option<String>>>) -> Vec<Stale> {
    let mut found: Vec<Stale> = Vec::new();
    let mut add = |name: &str, rows: u64, changed: u64, bytes: Option<Bytes>| {
        let table = table_of(name);
        if found.iter().all(|known| known.table != table) {
            found.push(Stale { table, rows, changed, bytes });
        }
    };
    for row in changed {
        if let Some((name, [rows, changed])) = numbers(row) {
            add(&name, rows, changed, None);
        }
    }
    for row in files {
        if let Some((name, [rows, described, used])) = numbers(row) {
            add(&name, rows, 0, Some(Bytes { described, used }));
        }
    }
    found
}

/// A name and the numbers after it.
fn numbers<const N: usize>(row: Vec<Option<String>>) -> Option<(String, [u64; N])> {
    let mut cells = row.into_iter();
    let name = cells.next()??;
    let found: Option<Vec<u64>> = cells.map(|cell| cell?.parse().ok()).collect();
    Some((name, found?.try_into().ok()?))
}

/// `shop/orders#P#p0` -> `shop.orders`.
fn table_of(name: &str) -> String {
    let whole = ["#P#", "#p#"].iter().find_map(|mark| name.split_once(mark)).map_or(name, |(table, _)| table);
    whole.replacen('/', ".", 1)
}

#[cfg(test)]
mod tests {
    use super::{Bytes, Stale, tables};

    fn row(cells: &[&str]) -> Vec<Option<String>> {
        cells.iter().map(|cell| Some((*cell).to_owned())).collect()
    }

    fn stale(table: &str, rows: u64, changed: u64, bytes: Option<(u64, u64)>) -> Stale {
        let bytes = bytes.map(|(described, used)| Bytes { described, used });
        Stale { table: table.to_owned(), rows, changed, bytes }
    }

    #[test]
    fn a_table_is_named_once() {
        let changed = vec![
            row(&["shop/orders#P#p1", "1000", "90000"]),
            row(&["shop/orders#p#p0", "1000", "80000"]),
            row(&["shop/lines", "131072", "131071"]),
            row(&["shop/odd", "x", "1"]),
            vec![None; 3],
            row(&["too", "few"]),
        ];
        let files = vec![
            row(&["shop/lines", "100", "32768", "11534336"]),
            row(&["shop/parts", "100", "32768", "11534336"]),
            row(&["shop/few", "100", "32768"]),
            row(&["shop/negative", "100", "32768", "-1"]),
        ];
        assert_eq!(
            tables(changed, files),
            [
                stale("shop.orders", 1000, 90_000, None),
                stale("shop.lines", 131_072, 131_071, None),
                stale("shop.parts", 100, 0, Some((32_768, 11_534_336))),
            ]
        );
    }
}
