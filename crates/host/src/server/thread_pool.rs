//! MariaDB's thread pool: how many requests wait for a thread, and why.

use crate::sample::sampler::Kind;
use crate::sample::session::{Session, Trouble};
use crate::sample::values::Values;

/// Every tick, because a queue is a gauge: one row per group, and a server has about as many groups as CPUs.
pub const THREAD_POOL: Kind = Kind::server(
    "thread_pool",
    "connections, threads and queued requests of all groups of MariaDB's thread pool",
    sample,
);

/// The tables came with MariaDB 10.5. They are empty if each connection has its own thread.
const GROUPS: &str = "SELECT COUNT(*), SUM(CONNECTIONS), SUM(THREADS), SUM(ACTIVE_THREADS), SUM(QUEUE_LENGTH), \
    SUM(IS_STALLED) FROM information_schema.THREAD_POOL_GROUPS";
const METRICS: [&str; 6] = ["groups", "connections", "threads", "active", "queued", "stalled"];

fn sample(session: &mut Session, values: &mut Values) -> Result<(), Trouble> {
    if !session.connection.is_mariadb() {
        return Err(Trouble::Absent("the server does not report its thread pool".to_owned()));
    }
    let mut sums = None;
    session.connection.query(GROUPS, |_, row| {
        let number = |column| std::str::from_utf8(row.get(column)?).ok()?.parse().ok();
        sums = (0..METRICS.len()).map(number).collect::<Option<Vec<u64>>>();
    })?;
    let Some(sums) = sums else {
        return Err(Trouble::Absent(
            "each connection has its own thread: there is no thread pool".to_owned(),
        ));
    };
    for (metric, sum) in METRICS.into_iter().zip(sums) {
        values.single(metric, sum);
    }
    Ok(())
}
