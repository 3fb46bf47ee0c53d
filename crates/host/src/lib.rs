//! Reads a host: one parser per file of /proc or /sys. Parsers take text; the root path is a parameter.

pub mod allowance;
pub mod cgroup;
pub mod cpuinfo;
pub mod cpulist;
pub mod diskstats;
pub mod ebs;
pub mod facts;
pub mod filesystems;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod interrupts;
pub mod ladder;
pub mod listen;
pub mod md;
pub mod meminfo;
pub mod mountinfo;
pub mod netdev;
mod netlink;
pub mod objects;
pub mod packets;
pub mod power_cut;
pub mod powercap;
pub mod process;
pub mod psi;
pub mod qdisc;
pub mod sample;
pub mod server;
pub mod server_process;
pub mod servers;
pub mod snmp;
pub mod sockstat;
pub mod softirqs;
pub mod softnet;
pub mod stacks;
pub mod stat;
pub mod taint;
pub mod thermal;
pub mod threads;
pub mod tracing;
pub mod vmstat;
pub mod zfs;

use self::sample::sampler::Kind;

/// The samplers of the host, in the order in which a tick reads them. A new one: its file, its `mod` above, its
/// line here.
const HOST_SAMPLERS: &[&Kind] = &[
    &stat::CPU,
    &interrupts::INTERRUPTS,
    &softirqs::SOFTIRQS,
    &softnet::SOFTNET,
    &diskstats::DISK,
    &meminfo::MEMORY,
    &vmstat::VMSTAT,
    &psi::PSI,
    &netdev::NETWORK,
    &snmp::SNMP,
    &sockstat::SOCKSTAT,
    &process::PROCESS,
    &md::MD,
    &thermal::THERMAL,
    &powercap::POWERCAP,
    &taint::TAINT,
    &threads::THREADS,
    &cgroup::CGROUP,
    &server_process::SERVER_PROCESS,
    &filesystems::FILE_SYSTEMS,
    &listen::LISTEN,
    &qdisc::QDISC,
    &tracing::TRACING,
    &zfs::ZFS,
    &allowance::ALLOWANCE,
    &ebs::EBS,
    &objects::OBJECTS,
];

/// Every sampler: those of the host, of a server, and the agent's own cost.
#[must_use]
pub fn samplers() -> Vec<&'static Kind> {
    [HOST_SAMPLERS, server::SAMPLERS, &[&sample::itself::AGENT]].concat()
}
