//! Space on file systems on block devices. Network file systems may hang and are never asked.

use std::collections::HashSet;

use rustix::fs::statvfs;

use super::mountinfo::{self, Mount};
use super::sample::sampler::{Host, Kind, Sample};
use super::sample::source::KeptFile;
use super::sample::values::Values;

pub const FILE_SYSTEMS: Kind = Kind::host(
    "file_systems",
    "size and available bytes and inodes by mount point, of those on block devices (statvfs)",
    |host: &Host| {
        let is_live = host.root.as_os_str() == "/";
        Box::new(FileSystems { mounts: KeptFile::new(&host.root, "proc/self/mountinfo"), is_live })
    },
)
.every(10);

struct FileSystems {
    mounts: KeptFile,
    is_live: bool,
}

impl Sample for FileSystems {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if !self.is_live {
            let message = "a saved host has no file systems whose room could be asked for";
            return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, message).into());
        }
        let mounts = mountinfo::parse(self.mounts.read()?);
        let rows: Vec<(String, [u64; 4])> = on_devices(&mounts)
            .filter_map(|mount| {
                // It may be unmounted by now, or be hidden below another mount.
                let space = statvfs(mount.mount_point.as_str()).ok()?;
                let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
                let numbers = [bytes(space.f_blocks), bytes(space.f_bavail), space.f_files, space.f_favail];
                Some((mount.mount_point.clone(), numbers))
            })
            .collect();
        values.table(&["size_bytes", "available_bytes", "inodes", "available_inodes"], &rows);
        Ok(())
    }
}

/// Each once, at its first mount: bind mounts have the same space. btrfs has no device number of its own.
fn on_devices(mounts: &[Mount]) -> impl Iterator<Item = &Mount> {
    let mut seen = HashSet::new();
    mounts.iter().filter(move |mount| {
        let is_on_device = !mount.device.starts_with("0:") || mount.kind == "btrfs";
        is_on_device && !mount.kind.starts_with("fuse") && seen.insert(mount.device.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::on_devices;
    use crate::mountinfo;

    #[test]
    fn only_block_devices_and_each_once() {
        let text = "\
22 1 254:1 / / rw,noatime shared:1 - ext4 /dev/vda1 rw
23 22 0:20 / /proc rw - proc proc rw
24 22 0:45 / /mnt/far rw - nfs4 far:/x rw
25 22 254:1 /srv /bind rw - ext4 /dev/vda1 rw
26 22 0:50 / /data rw - btrfs /dev/vdb rw
27 22 8:16 / /fuse rw - fuseblk /dev/sdb rw
28 22 0:51 / /tmp rw - tmpfs tmpfs rw
";
        let mounts = mountinfo::parse(text);
        let found: Vec<_> = on_devices(&mounts).map(|mount| mount.mount_point.as_str()).collect();
        assert_eq!(found, ["/", "/data"]);
    }
}
