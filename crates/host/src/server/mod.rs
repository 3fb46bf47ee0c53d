//! What a live server reports: one file per statement, and samplers of its counters.

pub mod explain;
pub mod galera;
pub mod group;
pub mod histograms;
mod innodb_cmp;
pub mod innodb_mutex;
pub mod innodb_status;
mod lock_waits;
pub mod patience;
pub mod performance_schema;
pub mod processlist;
pub mod query;
pub mod replication;
pub mod running;
pub mod statements;
pub mod status;
pub mod tables;
pub mod thread_pool;

use crate::sample::sampler::Kind;

/// Its samplers, in the order in which a tick reads them.
pub const SAMPLERS: &[&Kind] = &[
    &status::MYSQL_STATUS,
    &status::INNODB_METRICS,
    &innodb_cmp::INNODB_CMP,
    &innodb_mutex::INNODB_MUTEX,
    &innodb_status::INNODB_STATUS,
    &performance_schema::MYSQL_WAITS,
    &performance_schema::STATEMENTS,
    &performance_schema::TEMPTABLE,
    &processlist::PROCESSLIST,
    &replication::REPLICATION,
    &thread_pool::THREAD_POOL,
];
