//! Which processes a sampler lists.

use std::collections::HashSet;

/// The names (`comm`, which the kernel cuts after 15 bytes) that are followed unless `--follow` says otherwise.
pub const FOLLOWED: &str = "mysqld,mariadbd,memcached,proxysql,sysbench,fio,mysqlslap,mariadb-slap,memtier_benchmark,headrace,headrace-agent";

/// Which processes the sampler lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Listing {
    /// The followed ones on every tick, others when they used CPU time
    #[default]
    Active,
    /// Only the followed ones
    Followed,
    /// Every process on every tick (dear on a host with thousands)
    All,
}

/// Which processes, and the names of those that are followed.
pub struct Selection {
    pub listing: Listing,
    /// Cut as the kernel cuts them.
    pub names: HashSet<String>,
}

impl Selection {
    /// `names` is a comma-separated list of process names, as in /proc/PID/comm.
    pub fn new(listing: Listing, names: &str) -> Self {
        let cut = |name: &str| name.trim().chars().take(15).collect();
        Self { listing, names: names.split(',').map(cut).collect() }
    }
}
