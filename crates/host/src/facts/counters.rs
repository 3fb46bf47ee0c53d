//! AUTO_INCREMENT columns that approach the largest number of their type.

use std::collections::HashMap;

use serde::Serialize;

/// Columns fuller than this are reported, at most this many.
const FULL: f64 = 0.5;
const MOST: usize = 20;

/// Only columns whose type can run out: a BIGINT takes centuries.
pub const COLUMNS: &str = "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS \
    WHERE EXTRA LIKE '%auto_increment%' AND DATA_TYPE <> 'bigint'";
/// The smallest type ends at 127.
pub const NEXT: &str = "SELECT TABLE_SCHEMA, TABLE_NAME, AUTO_INCREMENT FROM information_schema.TABLES WHERE AUTO_INCREMENT > 63";

#[derive(Debug, PartialEq, Serialize)]
pub struct Counter {
    /// `schema.table.column`
    column: String,
    /// `smallint unsigned`
    column_type: String,
    /// The next number, and the largest that the type can hold.
    next: u64,
    limit: u64,
}

/// The fullest first. Rows are those of `COLUMNS` and `NEXT`.
pub fn fullest(columns: Vec<Vec<Option<String>>>, next: Vec<Vec<Option<String>>>) -> Vec<Counter> {
    let next: HashMap<(String, String), u64> = next
        .into_iter()
        .filter_map(|row| {
            let [schema, table, number] = <[Option<String>; 3]>::try_from(row).ok()?;
            Some(((schema?, table?), number?.parse().ok()?))
        })
        .collect();
    let mut counters: Vec<Counter> = columns
        .into_iter()
        .filter_map(|row| {
            let [schema, table, column, column_type] = <[Option<String>; 4]>::try_from(row).ok()?;
            let (schema, table, column_type) = (schema?, table?, column_type?);
            let limit = limit(&column_type)?;
            let name = format!("{schema}.{table}.{}", column?);
            let next = *next.get(&(schema, table))?;
            Some(Counter { column: name, column_type, next, limit })
        })
        .filter(|counter| counter.used() >= FULL)
        .collect();
    counters.sort_by(|one, other| other.used().total_cmp(&one.used()));
    counters.truncate(MOST);
    counters
}

impl Counter {
    fn used(&self) -> f64 {
        self.next as f64 / self.limit as f64
    }
}

/// `smallint(5) unsigned` -> 65535. None for types that are not integers.
fn limit(column_type: &str) -> Option<u64> {
    let name = column_type.split([' ', '(']).next()?;
    let bits = match name {
        "tinyint" => 8,
        "smallint" => 16,
        "mediumint" => 24,
        "int" => 32,
        _ => return None,
    };
    let is_unsigned = column_type.split(' ').any(|word| word == "unsigned");
    Some((1 << (bits - u64::from(!is_unsigned))) - 1)
}

#[cfg(test)]
mod tests {
    use super::{Counter, fullest, limit};

    fn row(cells: &[&str]) -> Vec<Option<String>> {
        cells.iter().map(|cell| Some((*cell).to_owned())).collect()
    }

    #[test]
    fn types_end_where_the_manual_says() {
        for (column_type, number) in [
            ("tinyint(4)", Some(127)),
            ("tinyint unsigned", Some(255)),
            ("smallint(5) unsigned zerofill", Some(65_535)),
            ("mediumint", Some(8_388_607)),
            ("int(11)", Some(2_147_483_647)),
            ("int unsigned", Some(4_294_967_295)),
            ("float", None),
            ("", None),
        ] {
            assert_eq!(limit(column_type), number, "{column_type}");
        }
    }

    #[test]
    fn the_fullest_come_first_and_the_rest_is_left_out() {
        let columns = vec![
            row(&["shop", "small", "id", "smallint"]),
            row(&["shop", "tiny", "id", "tinyint unsigned"]),
            row(&["shop", "young", "id", "int"]),
            row(&["shop", "unused", "id", "int"]),
        ];
        let next = vec![
            row(&["shop", "small", "20000"]),
            row(&["shop", "tiny", "250"]),
            row(&["shop", "young", "900"]),
        ];
        let found = fullest(columns, next);
        let names: Vec<_> = found.iter().map(|counter| counter.column.as_str()).collect();
        assert_eq!(names, ["shop.tiny.id", "shop.small.id"]);
        assert_eq!(
            found[0],
            Counter {
                column: "shop.tiny.id".to_owned(),
                column_type: "tinyint unsigned".to_owned(),
                next: 250,
                limit: 255
            }
        );
        assert_eq!(fullest(vec![vec![None; 4]], vec![vec![None; 3]]), []);
    }
}
