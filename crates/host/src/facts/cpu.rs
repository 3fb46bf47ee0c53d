//! CPUs: model, topology, caches, frequency and idle drivers.

use std::collections::BTreeSet;

use serde::Serialize;

use super::files::Folder;
use crate::{cpuinfo, cpulist};

/// Flags that decide how fast a server's hot paths can be (checksums, memory copies, clock reads, system
/// calls under mitigations) or that show where the host runs.
const FLAGS: [&str; 28] = [
    "aes",
    "arat",
    "asimd",
    "atomics",
    "avx",
    "avx2",
    "avx512f",
    "constant_tsc",
    "crc32",
    "erms",
    "fsrm",
    "ht",
    "hwp",
    "hypervisor",
    "ibpb",
    "ibrs_enhanced",
    "invpcid",
    "md_clear",
    "nonstop_tsc",
    "pclmulqdq",
    "pcid",
    "pdpe1gb",
    "rdtscp",
    "sse4_2",
    "svm",
    "tsc_deadline_timer",
    "tsc_known_freq",
    "vmx",
];

#[derive(Serialize)]
pub struct Cpu {
    /// Whether the CPUs have this flag; `None` if they list no flags, or are of an architecture without it.
    #[serde(skip)]
    pub hypervisor_flag: Option<bool>,
    model: Option<String>,
    vendor: Option<String>,
    family: Option<String>,
    model_number: Option<String>,
    stepping: Option<String>,
    microcode: Option<String>,
    /// The relevant flags of the first CPU.
    flags: Option<Vec<String>>,
    online: Option<Vec<u32>>,
    online_count: Option<usize>,
    /// Of the present CPUs: a guest may have room for many more.
    offline: Option<Vec<u32>>,
    isolated: Option<Vec<u32>>,
    sockets: Option<usize>,
    cores: Option<usize>,
    threads_per_core: Option<usize>,
    smt: Option<String>,
    topology: Vec<Thread>,
    /// Of the first CPU.
    caches: Vec<Cache>,
    frequency: Frequency,
    idle: Idle,
}

/// A hardware thread. Core numbers are the kernel's: unique within a socket at best.
#[derive(Serialize)]
struct Thread {
    cpu: u32,
    socket: Option<i64>,
    core: Option<i64>,
    /// The hardware threads of the same core, this one included.
    siblings: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Cache {
    level: Option<u32>,
    kind: Option<String>,
    size_bytes: Option<u64>,
    shared_by: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Frequency {
    /// `cpufreq/boost`, or the inverse of `intel_pstate/no_turbo`.
    boost: Option<bool>,
    policies: Vec<Policy>,
}

#[derive(Serialize)]
struct Policy {
    cpus: Option<Vec<u32>>,
    driver: Option<String>,
    governor: Option<String>,
    energy_performance_preference: Option<String>,
    min_khz: Option<u64>,
    max_khz: Option<u64>,
    hardware_min_khz: Option<u64>,
    hardware_max_khz: Option<u64>,
}

#[derive(Serialize)]
struct Idle {
    driver: Option<String>,
    governor: Option<String>,
    /// Of the first CPU.
    states: Vec<IdleState>,
}

#[derive(Serialize)]
struct IdleState {
    name: Option<String>,
    exit_latency_us: Option<u64>,
    target_residency_us: Option<u64>,
    disabled: Option<bool>,
}

pub fn read(host: &Folder) -> Cpu {
    let text = host.text("proc/cpuinfo").unwrap_or_default();
    let value = |key: &str| cpuinfo::first(&text, key).map(str::to_owned);
    let x86_flags = cpuinfo::first(&text, "flags");
    let flags = x86_flags.or_else(|| cpuinfo::first(&text, "Features"));
    let folder = host.join("sys/devices/system/cpu");
    let online = list(&folder, "online");
    let topology: Vec<Thread> = online.iter().flatten().map(|&cpu| thread(&folder, cpu)).collect();
    let known = topology.iter().all(|thread| thread.siblings.is_some()) && !topology.is_empty();
    let cores: BTreeSet<_> = topology.iter().filter_map(|thread| thread.siblings.as_ref()).collect();
    let sockets: BTreeSet<_> = topology.iter().filter_map(|thread| thread.socket).collect();
    let first = folder.join(&format!("cpu{}", online.as_ref().and_then(|list| list.first()).unwrap_or(&0)));
    Cpu {
        hypervisor_flag: x86_flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
        model: value("model name").or_else(|| arm_model(&text)),
        vendor: value("vendor_id").or_else(|| value("CPU implementer")),
        family: value("cpu family").or_else(|| value("CPU architecture")),
        model_number: value("model").or_else(|| value("CPU part")),
        stepping: value("stepping").or_else(|| value("CPU revision")),
        microcode: value("microcode"),
        flags: flags.map(|flags| {
            flags.split_whitespace().filter(|flag| FLAGS.contains(flag)).map(str::to_owned).collect()
        }),
        offline: offline(&folder),
        isolated: list(&folder, "isolated"),
        sockets: known.then_some(sockets.len()),
        // Counted by siblings, because core numbers repeat on every socket and, on some CPUs, on every die.
        cores: known.then_some(cores.len()),
        threads_per_core: cores.iter().map(|siblings| siblings.len()).max(),
        smt: folder.line("smt/control"),
        caches: caches(&first),
        frequency: frequency(&folder, online.as_deref().unwrap_or_default()),
        idle: idle(&folder, &first),
        online_count: online.as_ref().map(Vec::len),
        online,
        topology,
    }
}

/// ARM's CPUs have numbers where others have names. With no model two unlike hosts would count as alike.
fn arm_model(text: &str) -> Option<String> {
    let value = |key: &str| cpuinfo::first(text, key);
    Some(format!("ARM implementer {} part {}", value("CPU implementer")?, value("CPU part")?))
}

fn list(folder: &Folder, name: &str) -> Option<Vec<u32>> {
    cpulist::parse(&folder.text(name)?)
}

fn offline(folder: &Folder) -> Option<Vec<u32>> {
    let (mut offline, present) = (list(folder, "offline")?, list(folder, "present")?);
    offline.retain(|cpu| present.contains(cpu));
    Some(offline)
}

fn thread(folder: &Folder, cpu: u32) -> Thread {
    let topology = folder.join(&format!("cpu{cpu}/topology"));
    Thread {
        cpu,
        socket: topology.number("physical_package_id"),
        core: topology.number("core_id"),
        siblings: list(&topology, "thread_siblings_list"),
    }
}

fn caches(cpu: &Folder) -> Vec<Cache> {
    let folder = cpu.join("cache");
    let indexes = folder.names("").into_iter().filter(|name| name.starts_with("index"));
    indexes
        .map(|index| {
            let cache = folder.join(&index);
            Cache {
                level: cache.number("level"),
                kind: cache.line("type").map(|kind| kind.to_lowercase()),
                size_bytes: cache
                    .line("size")
                    .and_then(|size| Some(size.strip_suffix('K')?.parse::<u64>().ok()? * 1024)),
                shared_by: list(&cache, "shared_cpu_list"),
            }
        })
        .collect()
}

fn frequency(folder: &Folder, online: &[u32]) -> Frequency {
    let shared = folder.join("cpufreq");
    let mut policies: Vec<Folder> = shared
        .names("")
        .into_iter()
        .filter(|name| name.starts_with("policy"))
        .map(|name| shared.join(&name))
        .collect();
    if policies.is_empty() {
        // Kernels before 4.3 keep them with the CPUs.
        policies = online
            .iter()
            .map(|cpu| folder.join(&format!("cpu{cpu}/cpufreq")))
            .filter(|policy| policy.exists(""))
            .collect();
    }
    Frequency {
        boost: shared.flag("boost").or_else(|| folder.flag("intel_pstate/no_turbo").map(|off| !off)),
        policies: policies.iter().map(policy).collect(),
    }
}

fn policy(folder: &Folder) -> Policy {
    // Numbers separated by spaces, not a list with ranges.
    let cpus = folder.line("affected_cpus");
    Policy {
        cpus: cpus.and_then(|cpus| cpus.split_whitespace().map(|cpu| cpu.parse().ok()).collect()),
        driver: folder.line("scaling_driver"),
        governor: folder.line("scaling_governor"),
        energy_performance_preference: folder.line("energy_performance_preference"),
        min_khz: folder.number("scaling_min_freq"),
        max_khz: folder.number("scaling_max_freq"),
        hardware_min_khz: folder.number("cpuinfo_min_freq"),
        hardware_max_khz: folder.number("cpuinfo_max_freq"),
    }
}

fn idle(folder: &Folder, first: &Folder) -> Idle {
    let states = first.join("cpuidle");
    Idle {
        driver: folder.line("cpuidle/current_driver"),
        governor: folder
            .line("cpuidle/current_governor")
            .or_else(|| folder.line("cpuidle/current_governor_ro")),
        states: states
            .names("")
            .into_iter()
            .map(|name| {
                let state = states.join(&name);
                IdleState {
                    name: state.line("name"),
                    exit_latency_us: state.number("latency"),
                    target_residency_us: state.number("residency"),
                    disabled: state.flag("disable"),
                }
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::facts::files::Files;
    use std::fs;

    /// As Linux prints it on ARM: numbers for names, no model, and no flag that a guest has.
    const ARM: &str = "processor\t: 0\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd evtstrm aes crc32 atomics\n\
        CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n\
        processor\t: 1\nCPU implementer\t: 0x41\n";

    #[test]
    fn arm_has_a_model_and_says_nothing_of_a_hypervisor() {
        let host = tempfile::tempdir().unwrap();
        fs::create_dir_all(host.path().join("proc")).unwrap();
        fs::write(host.path().join("proc/cpuinfo"), ARM).unwrap();
        let files = Files::open(Some(host.path())).unwrap();
        let cpu = read(&files.root());
        assert_eq!(cpu.model.as_deref(), Some("ARM implementer 0x41 part 0xd0c"));
        assert_eq!(cpu.flags.unwrap(), ["asimd", "aes", "crc32", "atomics"]);
        assert_eq!(cpu.hypervisor_flag, None);
    }
}
