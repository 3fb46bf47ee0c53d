//! File systems: what is mounted where, with which options, on what, and how full.

use std::collections::HashMap;

use serde::Serialize;

use super::block::BlockDevice;
use super::files::Folder;
use crate::mountinfo::Mount;

#[derive(Serialize)]
pub struct FileSystem {
    mount_point: String,
    kind: String,
    source: String,
    /// The folder of the file system that is mounted here: not `/` for a bind mount or a subvolume.
    root: String,
    device_number: String,
    /// The kernel's name of the block device or partition.
    block_device: Option<String>,
    options: Vec<String>,
    super_options: Vec<String>,
    size_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// The part of the free bytes that unprivileged users may fill.
    available_bytes: Option<u64>,
}

/// File systems that hold data but have no block device number.
const WITHOUT_DEVICE: [&str; 14] = [
    "9p",
    "bcachefs",
    "btrfs",
    "ceph",
    "cifs",
    "fuse.glusterfs",
    "glusterfs",
    "nfs",
    "nfs4",
    "overlay",
    "smb3",
    "tmpfs",
    "virtiofs",
    "zfs",
];

/// Asking these for their size may block forever if their server is unreachable.
fn may_hang(kind: &str) -> bool {
    kind.starts_with("fuse")
        || ["9p", "ceph", "cifs", "glusterfs", "nfs", "nfs4", "smb3", "virtiofs"].contains(&kind)
}

/// `root` is the `/` that the mount points are below.
pub fn read(root: &Folder, mounts: &[Mount], devices: &[BlockDevice]) -> Vec<FileSystem> {
    let names = device_names(devices);
    let holds_data = |mount: &&Mount| {
        let has_storage = !mount.device.starts_with("0:") || WITHOUT_DEVICE.contains(&mount.kind.as_str());
        // cgroup v1 keeps its hierarchies in a tmpfs, and `ip netns` mounts this folder on itself.
        has_storage && !mount.mount_point.starts_with("/sys/") && mount.mount_point != "/run/netns"
    };
    mounts.iter().filter(holds_data).map(|mount| file_system(root, mount, &names)).collect()
}

fn file_system(root: &Folder, mount: &Mount, names: &HashMap<String, &str>) -> FileSystem {
    let space =
        if may_hang(&mount.kind) { None } else { root.join(mount.mount_point.trim_matches('/')).space() };
    FileSystem {
        mount_point: mount.mount_point.clone(),
        kind: mount.kind.clone(),
        source: mount.source.clone(),
        root: mount.root.clone(),
        device_number: mount.device.clone(),
        // btrfs has no number of its own, but its source is a device.
        block_device: names
            .get(&mount.device)
            .or_else(|| names.get(&mount.source))
            .map(|&name| name.to_owned()),
        options: mount.options.clone(),
        super_options: mount.super_options.clone(),
        size_bytes: space.as_ref().map(|space| space.f_blocks * space.f_frsize),
        free_bytes: space.as_ref().map(|space| space.f_bfree * space.f_frsize),
        available_bytes: space.as_ref().map(|space| space.f_bavail * space.f_frsize),
    }
}

/// Device number, and path in /dev -> kernel name.
fn device_names(devices: &[BlockDevice]) -> HashMap<String, &str> {
    let mut names = HashMap::new();
    for device in devices {
        let parts = device.partitions.iter().map(|part| (&part.name, &part.device_number));
        for (name, number) in parts.chain([(&device.name, &device.device_number)]) {
            names.insert(format!("/dev/{name}"), name.as_str());
            names.extend(number.clone().map(|number| (number, name.as_str())));
        }
        if let Some(mapped) = device.dm.as_ref().and_then(|dm| dm.name.as_ref()) {
            names.insert(format!("/dev/mapper/{mapped}"), device.name.as_str());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::facts::files::Files;
    use crate::mountinfo;

    #[test]
    fn what_holds_no_data_is_left_out() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::open(Some(root.path())).unwrap();
        let mounts = mountinfo::parse(
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             24 22 0:5 / /proc rw - proc proc rw\n\
             25 22 0:22 / /run rw - tmpfs tmpfs rw\n\
             26 22 0:23 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
             99 25 0:22 /netns /run/netns rw - tmpfs tmpfs rw\n\
             98 99 0:4 net:[4026532281] /run/netns/db1 rw - nsfs nsfs rw\n",
        );
        let found = read(&files.root(), &mounts, &[]);
        assert_eq!(found.iter().map(|each| each.mount_point.as_str()).collect::<Vec<_>>(), ["/", "/run"]);
    }
}
