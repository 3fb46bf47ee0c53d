//! sysbench's tables, as `prepare` of its OLTP scripts makes them (sysbench 1.0.20, oltp_common.lua).

use std::time::Instant;

use rand::{RngExt, SeedableRng};

use super::bulk::{self, Effort, Filled, Part, Rows};
use crate::digits::{C_LENGTH, PAD_LENGTH, groups};
use crate::oltp;
use crate::script::Random;
use base::error::AgentError;
use base::stop::StopSignal;
use mysql::{Connection, Options};

/// Rows that one connection fills at a time. With larger ranges fewer pages are shared between connections; with
/// smaller ones the last connection has less to do alone.
const ROWS_A_PART: u64 = 50_000;

/// sysbench draws k from its distribution `special`: a quarter of the values are near the normal distribution over
/// the whole range, three quarters are even over the hundredth in its middle (its defaults for --rand-spec-iter,
/// -pct, -res).
const NORMAL_SHARE: f64 = 0.25;
const NORMAL_DRAWS: u32 = 12;
const MIDDLE_SHARE: f64 = 0.01;

/// The tables sbtest1, sbtest2 and so on.
pub struct Tables {
    pub count: usize,
    pub rows: u64,
    /// A secondary index in place of the primary key.
    pub secondary: bool,
    /// An index on k.
    pub create_secondary: bool,
    pub storage_engine: String,
    pub seed: u64,
}

impl Tables {
    /// Fails on options that the server could not be given as written.
    pub fn new(options: &oltp::Options, seed: u64) -> Result<Self, AgentError> {
        let bad = |what: String| Err(AgentError::Named(what));
        let Ok(rows) = u64::try_from(options.table_size) else {
            return bad(format!("table_size = {}: give a number of rows", options.table_size));
        };
        // The column id is a signed INTEGER.
        if rows > i32::MAX as u64 {
            return bad(format!("table_size = {rows}: a table of sysbench has at most {} rows", i32::MAX));
        }
        let engine = &options.storage_engine;
        if engine.is_empty() || !engine.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return bad(format!("storage_engine = {engine:?}: give the name of an engine"));
        }
        Ok(Self {
            count: options.tables,
            rows,
            secondary: options.secondary,
            create_secondary: options.create_secondary,
            storage_engine: engine.clone(),
            seed,
        })
    }

    fn name(number: usize) -> String {
        format!("sbtest{number}")
    }

    pub fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.count).map(Self::name)
    }

    /// Creates and fills the tables, then makes their indexes; how many seconds these took. The rows depend on the
    /// seed, the table and its size only.
    ///
    /// Refuses if one of the tables exists.
    pub fn load(
        &self,
        options: &Options,
        effort: &Effort,
        stop: &StopSignal,
    ) -> anyhow::Result<(Filled, f64)> {
        self.refuse_existing(&mut Connection::open(options)?)?;
        let creations: Vec<String> = (1..=self.count).map(|table| self.creation(table)).collect();
        bulk::execute_all(options, &creations, effort, stop)?;
        let writers: Vec<_> = (1..=self.count)
            .map(|table| move |id: u64, rows: &mut Rows| self.write(table, id, rows))
            .collect();
        // Table by table within each range, so that connections work on different tables for as long as possible.
        let mut parts = Vec::new();
        let mut start = 1;
        while start <= self.rows {
            let end = (start + ROWS_A_PART).min(self.rows + 1);
            parts.extend(writers.iter().enumerate().map(|(place, write)| Part {
                table: Self::name(place + 1),
                columns: "id, k, c, pad",
                items: start..end,
                write,
            }));
            start = end;
        }
        let filled = bulk::fill(options, &parts, effort, stop)?;
        let filled_at = Instant::now();
        // One sort of all rows is cheaper than maintaining an index from the first row on.
        if self.create_secondary {
            let indexes: Vec<String> =
                (1..=self.count).map(|table| format!("CREATE INDEX k_{table} ON sbtest{table}(k)")).collect();
            bulk::execute_all(options, &indexes, effort, stop)?;
        }
        Ok((filled, filled_at.elapsed().as_secs_f64()))
    }

    fn refuse_existing(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let mut database = None;
        let mut existing = Vec::new();
        connection.query("SELECT DATABASE()", |_, row| {
            database = row.get(0).map(|name| String::from_utf8_lossy(name).into_owned());
        })?;
        let Some(database) = database else {
            let message = "no database: give --mysql-database";
            return Err(AgentError::Input(message.to_owned()).into());
        };
        connection.query("SHOW TABLES LIKE 'sbtest%'", |_, row| {
            existing.push(String::from_utf8_lossy(row.get(0).unwrap_or_default()).into_owned());
        })?;
        match self.names().find(|name| existing.contains(name)) {
            Some(name) => Err(AgentError::Refused(format!(
                "the table {name} exists in {database}; `drive clean` with this SPEC drops it"
            ))
            .into()),
            None => Ok(()),
        }
    }

    fn creation(&self, table: usize) -> String {
        let key = if self.secondary { "KEY xid" } else { "PRIMARY KEY" };
        format!(
            "CREATE TABLE {}(id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, \
             c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, {key} (id)) ENGINE = {}",
            Self::name(table),
            self.storage_engine
        )
    }

    fn write(&self, table: usize, id: u64, rows: &mut Rows) {
        let mut random = self.random(table, id);
        rows.int(id as i64);
        rows.int(self.k(&mut random));
        rows.text(&groups::<C_LENGTH>(&mut random));
        rows.text(&groups::<PAD_LENGTH>(&mut random));
        rows.end();
    }

    /// Each row has its own generator, so it does not matter which connection writes it.
    fn random(&self, table: usize, id: u64) -> Random {
        // The odd factor, from the golden ratio, separates consecutive seeds and tables.
        let table = self.seed.rotate_left(32).wrapping_add(table as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Random::seed_from_u64(table.wrapping_add(id))
    }

    /// Within 1 and the number of rows.
    fn k(&self, random: &mut Random) -> i64 {
        let span = (self.rows - 1) as f64;
        let draw: f64 = random.random();
        if draw < NORMAL_SHARE {
            let sum: f64 = (0..NORMAL_DRAWS).map(|_| random.random::<f64>()).sum();
            return 1 + (sum * span / f64::from(NORMAL_DRAWS)) as i64;
        }
        // The same draw again, as in sysbench: only the upper three quarters of the hundredth are ever drawn.
        let middle = span * MIDDLE_SHARE;
        1 + (draw * (middle + 1.0) + span / 2.0 - middle / 2.0) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::{Rows, Tables};
    use crate::load::bulk::Method;
    use crate::oltp;

    fn tables(rows: u64, seed: u64) -> Tables {
        let options = oltp::Options { tables: 2, table_size: rows as i64, ..oltp::Options::default() };
        Tables::new(&options, seed).unwrap()
    }

    fn lines(tables: &Tables, table: usize, ids: std::ops::Range<u64>) -> Vec<String> {
        let mut rows = Rows::new(Method::LoadData);
        for id in ids {
            tables.write(table, id, &mut rows);
        }
        String::from_utf8(rows.bytes().to_vec()).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_row_has_the_formats_of_sysbench() {
        for line in lines(&tables(1000, 1), 1, 1..1001) {
            let cells: Vec<&str> = line.split('\t').collect();
            let [_, k, c, pad] = cells[..] else { panic!("{line}") };
            assert!((1..=1000).contains(&k.parse::<i64>().unwrap()), "{line}");
            for (text, groups) in [(c, 10), (pad, 5)] {
                let groups_found: Vec<&str> = text.split('-').collect();
                assert_eq!(groups_found.len(), groups);
                assert!(groups_found.iter().all(|g| g.len() == 11 && g.bytes().all(|b| b.is_ascii_digit())));
            }
        }
    }

    #[test]
    fn rows_follow_from_seed_table_and_id_only() {
        let first = lines(&tables(1000, 1), 1, 1..1001);
        assert_eq!(lines(&tables(1000, 1), 1, 500..501), first[499..500]);
        let mut texts: Vec<String> = first;
        texts.extend(lines(&tables(1000, 1), 2, 1..1001));
        texts.extend(lines(&tables(1000, 2), 1, 1..1001));
        let mut contents: Vec<&str> = texts.iter().map(|line| line.split_once('\t').unwrap().1).collect();
        contents.sort_unstable();
        contents.dedup();
        assert_eq!(contents.len(), 3000);
    }

    #[test]
    fn k_is_special() {
        let tables = tables(1_000_000, 1);
        let of = |id| tables.k(&mut tables.random(1, id));
        let values: Vec<i64> = (0..100_000).map(of).collect();
        assert!(values.iter().all(|k| (1..=1_000_000).contains(k)));
        // Three quarters within the hundredth in the middle, and of the rest as many as the sum of twelve even draws
        // puts there: a standard deviation of a twelfth of the range, so 4.8% of a quarter.
        let share = |low, high| {
            values.iter().filter(|k| (low..high).contains(*k)).count() as f64 / values.len() as f64
        };
        assert!((share(495_000, 505_002) - 0.762).abs() < 0.005);
        assert!((share(495_000, 497_500) - 0.003).abs() < 0.002);
        assert!((share(1, 416_667) - 0.25 * 0.159).abs() < 0.003);
    }

    #[test]
    fn a_table_of_one_row_and_of_none() {
        assert!(lines(&tables(1, 1), 1, 1..2)[0].starts_with("1\t1\t"));
        assert_eq!(tables(0, 1).rows, 0);
    }

    #[test]
    fn what_cannot_be_a_table_is_refused() {
        for options in [
            oltp::Options { table_size: -1, ..oltp::Options::default() },
            oltp::Options { table_size: 1 << 31, ..oltp::Options::default() },
            oltp::Options { storage_engine: "innodb; DROP TABLE x".to_owned(), ..oltp::Options::default() },
        ] {
            assert!(Tables::new(&options, 1).is_err());
        }
    }
}
