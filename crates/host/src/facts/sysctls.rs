//! The sysctls that are relevant to a server.

use std::collections::BTreeMap;

use super::files::Folder;

/// Folder under /proc/sys, prefixes of the names that matter in it, prefixes to leave out. By prefix, because
/// the sysctls of a subsystem differ between kernels, and a knob that is missing here could not be explained.
const GROUPS: [(&str, &[&str], &[&str]); 7] = [
    // compact_memory and drop_caches only act; reading stat_refresh interrupts every CPU.
    ("vm", &[""], &["compact_memory", "drop_caches", "stat_refresh", "lowmem_reserve_ratio", "mmap_rnd_"]),
    // The key of the receive hash is secret.
    ("net/core", &[""], &["netdev_rss_key", "bpf_jit_"]),
    // So is the key of fast open.
    (
        "net/ipv4",
        &["tcp_", "udp_mem", "udp_rmem", "udp_wmem", "ip_local_port_range", "ip_local_reserved_ports"],
        &["tcp_fastopen_key"],
    ),
    (
        "kernel",
        &[
            "sched_",
            "numa_balancing",
            "nmi_watchdog",
            "watchdog_cpumask",
            "timer_migration",
            "pid_max",
            "threads-max",
            "sem",
            "shmall",
            "shmmax",
            "shmmni",
            "io_uring_disabled",
            "perf_event_paranoid",
            "randomize_va_space",
        ],
        &[],
    ),
    ("fs", &["aio-max-nr", "file-max", "nr_open"], &[]),
    ("fs/xfs", &[""], &["stats_clear"]),
    ("net/netfilter", &["nf_conntrack_max", "nf_conntrack_count"], &[]),
];

/// Name with dots -> value as the kernel prints it, columns separated by one space.
pub fn read(host: &Folder) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    for (group, prefixes, left_out) in GROUPS {
        let folder = host.join("proc/sys").join(group);
        let names = folder.names("").into_iter();
        for name in names.filter(|name| prefixes.iter().any(|prefix| name.starts_with(prefix))) {
            if left_out.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            if let Some(text) = folder.text(&name) {
                let value = text.split_whitespace().collect::<Vec<_>>().join(" ");
                values.insert(format!("{}.{name}", group.replace('/', ".")), value);
            }
        }
    }
    values
}
