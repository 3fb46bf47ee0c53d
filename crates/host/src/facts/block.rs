//! Block devices: type, queues, components.

use std::collections::HashMap;

use serde::Serialize;

use super::attachment::{Attachment, attachment};
use super::files::Folder;

/// Sysfs counts sizes and offsets in these, regardless of the device's block size.
const SECTOR_BYTES: u64 = 512;

#[derive(Serialize)]
pub struct BlockDevice {
    pub name: String,
    kind: Kind,
    /// major:minor
    pub device_number: Option<String>,
    size_bytes: Option<u64>,
    rotational: Option<bool>,
    removable: Option<bool>,
    read_only: Option<bool>,
    model: Option<String>,
    vendor: Option<String>,
    serial: Option<String>,
    firmware: Option<String>,
    wwid: Option<String>,
    /// The names in /dev/disk/by-id.
    stable_ids: Vec<String>,
    driver: Option<String>,
    controller_driver: Option<String>,
    pci_address: Option<String>,
    numa_node: Option<u32>,
    /// Requests that a SCSI device takes at a time.
    queue_depth: Option<u64>,
    queue: Queue,
    pub partitions: Vec<Partition>,
    /// The devices that this one is made of, and those made of it.
    slaves: Vec<String>,
    holders: Vec<String>,
    pub dm: Option<Dm>,
    #[serde(rename = "loop")]
    loop_device: Option<Loop>,
    bcache: Option<Bcache>,
    #[serde(skip)]
    pub irqs: Vec<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Disk,
    Dm,
    Loop,
    Md,
    /// Without local hardware: zram, nbd, rbd, drbd.
    Virtual,
}

/// The attributes of `queue/`, under their own names if these include the unit.
#[derive(Serialize)]
struct Queue {
    scheduler: Option<String>,
    schedulers: Option<Vec<String>>,
    nr_requests: Option<u64>,
    rq_affinity: Option<u8>,
    read_ahead_kb: Option<u64>,
    nomerges: Option<u8>,
    max_sectors_kb: Option<u64>,
    max_hw_sectors_kb: Option<u64>,
    wbt_lat_usec: Option<i64>,
    write_cache: Option<String>,
    fua: Option<bool>,
    add_random: Option<bool>,
    iostats: Option<bool>,
    io_poll: Option<bool>,
    discard_max_bytes: Option<u64>,
    discard_granularity_bytes: Option<u64>,
    logical_block_bytes: Option<u64>,
    physical_block_bytes: Option<u64>,
    minimum_io_bytes: Option<u64>,
    /// 0 if the device reports no optimum.
    optimal_io_bytes: Option<u64>,
    /// Null before blk-mq.
    hardware_queues: Option<usize>,
}

#[derive(Serialize)]
pub struct Partition {
    pub name: String,
    pub device_number: Option<String>,
    start_bytes: Option<u64>,
    size_bytes: Option<u64>,
    stable_ids: Vec<String>,
    holders: Vec<String>,
}

#[derive(Serialize)]
pub struct Dm {
    pub name: Option<String>,
    uuid: Option<String>,
}

#[derive(Serialize)]
struct Loop {
    backing_file: Option<String>,
    direct_io: Option<bool>,
    offset_bytes: Option<u64>,
}

/// Of a cached device (Documentation/admin-guide/bcache.rst).
#[derive(Serialize)]
struct Bcache {
    /// `writeback`: a write is done when the cache has it.
    mode: Option<String>,
    /// `clean`, `dirty`, `no cache` or `inconsistent`.
    state: Option<String>,
    /// The slow device or its partition; the others that it is made of are the cache.
    backing: Option<String>,
}

/// Every device of /sys/block but RAM disks, hidden paths of multipathing and virtual devices not set up.
pub fn read(host: &Folder) -> Vec<BlockDevice> {
    let ids = stable_ids(&host.join("dev/disk/by-id"));
    let folder = host.join("sys/block");
    folder.names("").iter().filter_map(|name| device(&folder.join(name), name, &ids)).collect()
}

/// Kernel name -> names in /dev/disk/by-id.
fn stable_ids(folder: &Folder) -> HashMap<String, Vec<String>> {
    let mut ids: HashMap<String, Vec<String>> = HashMap::new();
    for id in folder.names("") {
        if let Some(name) = folder.link_name(&id) {
            ids.entry(name).or_default().push(id);
        }
    }
    ids
}

fn device(folder: &Folder, name: &str, ids: &HashMap<String, Vec<String>>) -> Option<BlockDevice> {
    if is_numbered(name, "ram") {
        return None;
    }
    let size_bytes = folder.number::<u64>("size").map(|sectors| sectors * SECTOR_BYTES);
    let set_up_later = ["loop", "zram", "nbd"].iter().any(|prefix| is_numbered(name, prefix));
    if (set_up_later && size_bytes == Some(0)) || folder.flag("hidden") == Some(true) {
        return None;
    }
    let dm = folder.exists("dm").then(|| Dm { name: folder.line("dm/name"), uuid: folder.line("dm/uuid") });
    let loop_device = folder.exists("loop").then(|| Loop {
        backing_file: folder.line("loop/backing_file"),
        direct_io: folder.flag("loop/dio"),
        offset_bytes: folder.number("loop/offset"),
    });
    let bcache = (is_numbered(name, "bcache") && folder.exists("bcache")).then(|| Bcache {
        mode: folder.choice("bcache/cache_mode").and_then(|choice| choice.selected),
        state: folder.line("bcache/state"),
        // A link into the folder of the slow device.
        backing: folder.link("bcache").and_then(|link| Some(link.rsplit('/').nth(1)?.to_owned())),
    });
    let kind = if dm.is_some() {
        Kind::Dm
    } else if loop_device.is_some() {
        Kind::Loop
    } else if folder.exists("md") {
        Kind::Md
    } else if folder.exists("device") {
        Kind::Disk
    } else {
        Kind::Virtual
    };
    let Attachment { driver, controller_driver, pci_address, numa_node, irqs } = match kind {
        Kind::Disk => attachment(folder),
        _ => Attachment::default(),
    };
    Some(BlockDevice {
        name: name.to_owned(),
        kind,
        device_number: folder.line("dev"),
        size_bytes,
        rotational: folder.flag("queue/rotational"),
        removable: folder.flag("removable"),
        read_only: folder.flag("ro"),
        model: folder.line("device/model"),
        vendor: vendor(folder),
        // virtio and NVMe have it in different places.
        serial: folder.line("serial").or_else(|| folder.line("device/serial")),
        firmware: folder.line("device/firmware_rev").or_else(|| folder.line("device/rev")),
        wwid: folder.line("wwid").or_else(|| folder.line("device/wwid")),
        stable_ids: ids.get(name).cloned().unwrap_or_default(),
        driver,
        controller_driver,
        pci_address,
        numa_node,
        queue_depth: folder.number("device/queue_depth"),
        queue: queue(folder),
        partitions: partitions(folder, name, ids),
        slaves: folder.names("slaves"),
        holders: folder.names("holders"),
        dm,
        loop_device,
        bcache,
        irqs,
    })
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Of SCSI devices; virtio has a file of the same name with a PCI number in it.
fn vendor(folder: &Folder) -> Option<String> {
    folder.line("device/vendor").filter(|vendor| !vendor.starts_with("0x"))
}

fn queue(device: &Folder) -> Queue {
    let queue = device.join("queue");
    let (scheduler, schedulers) =
        queue.choice("scheduler").map_or((None, None), |choice| (choice.selected, Some(choice.available)));
    Queue {
        scheduler,
        schedulers,
        nr_requests: queue.number("nr_requests"),
        rq_affinity: queue.number("rq_affinity"),
        read_ahead_kb: queue.number("read_ahead_kb"),
        nomerges: queue.number("nomerges"),
        max_sectors_kb: queue.number("max_sectors_kb"),
        max_hw_sectors_kb: queue.number("max_hw_sectors_kb"),
        wbt_lat_usec: queue.number("wbt_lat_usec"),
        write_cache: queue.line("write_cache"),
        fua: queue.flag("fua"),
        add_random: queue.flag("add_random"),
        iostats: queue.flag("iostats"),
        io_poll: queue.flag("io_poll"),
        discard_max_bytes: queue.number("discard_max_bytes"),
        discard_granularity_bytes: queue.number("discard_granularity"),
        logical_block_bytes: queue.number("logical_block_size"),
        physical_block_bytes: queue.number("physical_block_size"),
        minimum_io_bytes: queue.number("minimum_io_size"),
        optimal_io_bytes: queue.number("optimal_io_size"),
        hardware_queues: device.exists("mq").then(|| device.names("mq").len()),
    }
}

fn partitions(device: &Folder, name: &str, ids: &HashMap<String, Vec<String>>) -> Vec<Partition> {
    let names = device.names("");
    names
        .iter()
        .filter(|entry| entry.starts_with(name) && device.exists(&format!("{entry}/partition")))
        .map(|entry| {
            let folder = device.join(entry);
            let bytes = |file: &str| folder.number::<u64>(file).map(|sectors| sectors * SECTOR_BYTES);
            Partition {
                name: entry.clone(),
                device_number: folder.line("dev"),
                start_bytes: bytes("start"),
                size_bytes: bytes("size"),
                stable_ids: ids.get(entry).cloned().unwrap_or_default(),
                holders: folder.names("holders"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::is_numbered;
    use crate::facts::files::Files;
    use std::collections::HashMap;

    #[test]
    fn a_cached_device_says_its_mode_and_its_slow_device() {
        let root = tempfile::tempdir().unwrap();
        let slow = root.path().join("sys/devices/sdb/sdb1/bcache");
        std::fs::create_dir_all(&slow).unwrap();
        std::fs::write(slow.join("cache_mode"), "writethrough [writeback] writearound none\n").unwrap();
        std::fs::write(slow.join("state"), "dirty\n").unwrap();
        let device = root.path().join("sys/block/bcache0");
        std::fs::create_dir_all(&device).unwrap();
        std::os::unix::fs::symlink("../../devices/sdb/sdb1/bcache", device.join("bcache")).unwrap();
        let files = Files::open(Some(root.path())).unwrap();
        let found =
            super::device(&files.root().join("sys/block/bcache0"), "bcache0", &HashMap::new()).unwrap();
        let found = serde_json::to_value(&found).unwrap();
        assert_eq!(
            found["bcache"],
            serde_json::json!({"mode": "writeback", "state": "dirty", "backing": "sdb1"})
        );
    }

    #[test]
    fn only_numbered_names_are_of_a_kind() {
        assert!(is_numbered("ram0", "ram"));
        assert!(!is_numbered("ram", "ram"));
        assert!(!is_numbered("rbd0", "ram"));
        assert!(!is_numbered("nbdx", "nbd"));
    }
}
