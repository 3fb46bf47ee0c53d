//! SHOW ENGINE INNODB MUTEX: how often threads had to wait for each latch.

use std::collections::BTreeMap;

use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;

pub const INNODB_MUTEX: Kind = Kind::server(
    "innodb_mutex",
    "waits by latch since the server started, and its spins if MySQL counts them (SHOW ENGINE INNODB MUTEX)",
    sample,
)
.every(10);

/// MySQL scans the locks of all pages for it, and meanwhile no such lock can be created or freed.
const MAX_POOL_BYTES: u64 = 8 << 30;

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    if !session.connection.is_mariadb() && !session.is_thorough {
        refuse_large_pool(session)?;
    }
    let mut waits = Waits::new();
    session.connection.query("SHOW ENGINE INNODB MUTEX", |_, row| {
        let (Some(name), Some(status)) = (row.get(1), row.get(2)) else { return };
        add(&mut waits, &String::from_utf8_lossy(name), &String::from_utf8_lossy(status));
    })?;
    for (column, metric) in METRICS.into_iter().enumerate() {
        values.metric(metric);
        for (latch, numbers) in &waits {
            if let Some(number) = numbers[column] {
                values.value(latch, number);
            }
        }
    }
    Ok(())
}

/// MySQL counts spins only while its monitor `latch` is on.
const METRICS: [&str; 3] = ["waits", "os_waits", "spins"];

/// Numbers by latch, in the order of `METRICS`.
type Waits = BTreeMap<String, [Option<u64>; METRICS.len()]>;

/// `waits=7`, or on older servers `os_waits=7`, with or without other counters. Latches of one kind (for example
/// those of a partitioned hash) have a row each and the same name.
fn add(waits: &mut Waits, name: &str, status: &str) {
    for part in status.split([',', ' ']) {
        let Some((key, number)) = part.split_once('=') else { continue };
        let (Some(column), Ok(number)) =
            (METRICS.iter().position(|metric| *metric == key), number.parse::<u64>())
        else {
            continue;
        };
        let sum = &mut waits.entry(name.to_owned()).or_default()[column];
        *sum = Some(sum.unwrap_or(0).saturating_add(number));
    }
}

fn refuse_large_pool(session: &mut Session) -> Result<(), Trouble> {
    let mut pool_bytes = 0;
    session.connection.query("SELECT @@global.innodb_buffer_pool_size", |_, row| {
        pool_bytes = row.get(0).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok()).unwrap_or(0);
    })?;
    if pool_bytes <= MAX_POOL_BYTES {
        return Ok(());
    }
    Err(Trouble::Absent(format!(
        "SHOW ENGINE INNODB MUTEX was not asked: it walks the locks of all pages, and the pool has {} GiB; \
         performance_schema (mysql_waits) tells the same for wait/synch/% instruments; --thorough asks it",
        pool_bytes >> 30
    )))
}

#[cfg(test)]
mod tests {
    use super::add;
    use std::collections::BTreeMap;

    #[test]
    fn both_forms_and_latches_of_one_name() {
        let mut waits = BTreeMap::new();
        for (name, status) in [
            ("rwlock: hash0hash.cc:117", "waits=4"),
            ("rwlock: hash0hash.cc:117", "waits=2"),
            ("sum rwlock: buf0buf.cc:791", "waits=658"),
            ("&log_sys->mutex", "os_waits=12"),
            ("&dict_sys->mutex", "count=3, spin_waits=1, spin_rounds=30, os_waits=9"),
            ("LOCK_SYS_PAGE", "spins=1384,waits=39,calls=77"),
            ("LOCK_SYS_PAGE", "spins=16,waits=1,calls=9"),
            ("nonsense", "waits=many"),
        ] {
            add(&mut waits, name, status);
        }
        let expected = [
            ("&dict_sys->mutex", [None, Some(9), None]),
            ("&log_sys->mutex", [None, Some(12), None]),
            ("LOCK_SYS_PAGE", [Some(40), None, Some(1_400)]),
            ("rwlock: hash0hash.cc:117", [Some(6), None, None]),
            ("sum rwlock: buf0buf.cc:791", [Some(658), None, None]),
        ];
        let found: Vec<_> = waits.iter().map(|(name, numbers)| (name.as_str(), *numbers)).collect();
        assert_eq!(found, expected);
    }
}
