//! Memory, swap, huge pages, NUMA nodes.

use std::collections::HashMap;

use rustix::param::page_size;
use serde::Serialize;

use super::files::{Choice, Folder};
use crate::{cpulist, meminfo};

#[derive(Serialize)]
pub struct Memory {
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Null before Linux 3.14.
    available_bytes: Option<u64>,
    /// 4 KiB on x86; 4, 16 or 64 KiB on ARM, as the kernel was built.
    page_bytes: Option<usize>,
    cached_bytes: Option<u64>,
    swap_total_bytes: Option<u64>,
    swap_free_bytes: Option<u64>,
    commit_limit_bytes: Option<u64>,
    swaps: Vec<Swap>,
    huge_pages: Vec<HugePages>,
    transparent_huge_pages: TransparentHugePages,
    /// Same-page merging: 0 off, 1 on, 2 off and unmerged.
    ksm_run: Option<u8>,
}

#[derive(Serialize)]
struct Swap {
    path: String,
    kind: String,
    size_bytes: Option<u64>,
    used_bytes: Option<u64>,
    priority: Option<i32>,
}

#[derive(Serialize)]
struct HugePages {
    size_bytes: u64,
    pages: Option<u64>,
    free_pages: Option<u64>,
    reserved_pages: Option<u64>,
    surplus_pages: Option<u64>,
    overcommit_pages: Option<u64>,
}

#[derive(Serialize)]
struct TransparentHugePages {
    enabled: Option<Choice>,
    defrag: Option<Choice>,
    shmem_enabled: Option<Choice>,
    khugepaged_defrag: Option<bool>,
    khugepaged_max_ptes_none: Option<u64>,
}

pub fn read(host: &Folder, is_live: bool) -> Memory {
    let text = host.text("proc/meminfo").unwrap_or_default();
    let values: HashMap<&str, u64> = meminfo::parse(&text).collect();
    let value = |name: &str| values.get(name).copied();
    Memory {
        total_bytes: value("MemTotal"),
        free_bytes: value("MemFree"),
        available_bytes: value("MemAvailable"),
        page_bytes: is_live.then(page_size),
        cached_bytes: value("Cached"),
        swap_total_bytes: value("SwapTotal"),
        swap_free_bytes: value("SwapFree"),
        commit_limit_bytes: value("CommitLimit"),
        swaps: host.text("proc/swaps").as_deref().map(swaps).unwrap_or_default(),
        huge_pages: huge_pages(&host.join("sys/kernel/mm/hugepages")),
        transparent_huge_pages: transparent_huge_pages(&host.join("sys/kernel/mm/transparent_hugepage")),
        ksm_run: host.number("sys/kernel/mm/ksm/run"),
    }
}

fn swaps(text: &str) -> Vec<Swap> {
    let lines = text.lines().skip(1);
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let kib = |word: Option<&str>| word?.parse::<u64>().ok()?.checked_mul(1024);
            Some(Swap {
                path: words.next()?.to_owned(),
                kind: words.next()?.to_owned(),
                size_bytes: kib(words.next()),
                used_bytes: kib(words.next()),
                priority: words.next().and_then(|word| word.parse().ok()),
            })
        })
        .collect()
}

fn huge_pages(folder: &Folder) -> Vec<HugePages> {
    let size = |name: &str| name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse::<u64>().ok();
    let names = folder.names("");
    names
        .iter()
        .filter_map(|name| {
            let pool = folder.join(name);
            Some(HugePages {
                size_bytes: size(name)? * 1024,
                pages: pool.number("nr_hugepages"),
                free_pages: pool.number("free_hugepages"),
                reserved_pages: pool.number("resv_hugepages"),
                surplus_pages: pool.number("surplus_hugepages"),
                overcommit_pages: pool.number("nr_overcommit_hugepages"),
            })
        })
        .collect()
}

fn transparent_huge_pages(folder: &Folder) -> TransparentHugePages {
    TransparentHugePages {
        enabled: folder.choice("enabled"),
        defrag: folder.choice("defrag"),
        shmem_enabled: folder.choice("shmem_enabled"),
        khugepaged_defrag: folder.flag("khugepaged/defrag"),
        khugepaged_max_ptes_none: folder.number("khugepaged/max_ptes_none"),
    }
}

#[derive(Serialize)]
pub struct NumaNode {
    node: u32,
    cpus: Option<Vec<u32>>,
    memory_total_bytes: Option<u64>,
    memory_free_bytes: Option<u64>,
    /// To every node in order; 10 is this node itself.
    distances: Option<Vec<u32>>,
}

pub fn numa_nodes(host: &Folder) -> Vec<NumaNode> {
    let folder = host.join("sys/devices/system/node");
    let names = folder.names("");
    names
        .iter()
        .filter_map(|name| {
            let node = name.strip_prefix("node")?.parse().ok()?;
            let folder = folder.join(name);
            // Each line starts with `Node 0`.
            let text = folder.text("meminfo").unwrap_or_default().replace(&format!("Node {node} "), "");
            let values: HashMap<&str, u64> = meminfo::parse(&text).collect();
            let distances = folder.line("distance");
            Some(NumaNode {
                node,
                cpus: folder.text("cpulist").and_then(|text| cpulist::parse(&text)),
                memory_total_bytes: values.get("MemTotal").copied(),
                memory_free_bytes: values.get("MemFree").copied(),
                distances: distances
                    .and_then(|line| line.split_whitespace().map(|word| word.parse().ok()).collect()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::swaps;

    #[test]
    fn swaps_are_in_bytes() {
        let text = "Filename\tType\tSize\tUsed\tPriority\n/dev/dm-1  partition\t999420\t268\t-2\n";
        let swaps = swaps(text);
        assert_eq!(swaps.len(), 1);
        assert_eq!(swaps[0].size_bytes, Some(999_420 * 1024));
        assert_eq!(swaps[0].priority, Some(-2));
    }
}
