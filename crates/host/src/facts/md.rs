//! Software RAID, from /sys/block/mdN/md.

use serde::Serialize;

use super::files::Folder;

const SECTOR_BYTES: u64 = 512;

#[derive(Serialize)]
pub struct Array {
    name: String,
    level: Option<String>,
    metadata_version: Option<String>,
    array_state: Option<String>,
    raid_disks: Option<u64>,
    /// Missing members; null for a level without redundancy.
    degraded: Option<u64>,
    /// 0 for a level without stripes.
    chunk_bytes: Option<u64>,
    /// The kernel's number: its meaning depends on the level (258 is `f2` of RAID10).
    layout: Option<i64>,
    members: Vec<Member>,
    bitmap: Bitmap,
    consistency_policy: Option<String>,
    /// `idle`, `resync`, `recover`, `check`, `repair`, `reshape`, `frozen`; null for a level without redundancy.
    sync_action: Option<String>,
    /// Null while nothing is synchronised or the synchronisation waits for another array.
    sync_done_bytes: Option<u64>,
    sync_total_bytes: Option<u64>,
    sync_speed_min_kib_s: Option<u64>,
    sync_speed_max_kib_s: Option<u64>,
    /// RAID4/5/6 only: in stripes of one page for each member.
    stripe_cache_size: Option<u64>,
    group_thread_cnt: Option<u64>,
    preread_bypass_threshold: Option<u64>,
}

#[derive(Serialize)]
struct Member {
    name: String,
    /// Null for a spare.
    slot: Option<u64>,
    state: Option<String>,
    errors: Option<u64>,
}

#[derive(Serialize)]
struct Bitmap {
    /// `none`, `file`, or the offset in sectors from the superblock (`+8`).
    location: Option<String>,
    chunk_bytes: Option<u64>,
}

pub fn read(host: &Folder) -> Vec<Array> {
    let folder = host.join("sys/block");
    let names = folder.names("").into_iter().filter(|name| name.starts_with("md"));
    names.filter(|name| folder.exists(&format!("{name}/md"))).map(|name| array(&folder, name)).collect()
}

fn array(block: &Folder, name: String) -> Array {
    let md = block.join(&format!("{name}/md"));
    let progress = md.line("sync_completed").and_then(|line| sync_progress(&line));
    let bitmap = Bitmap { location: md.line("bitmap/location"), chunk_bytes: None };
    let has_bitmap = bitmap.location.as_deref().is_some_and(|location| location != "none");
    Array {
        name,
        level: md.line("level"),
        metadata_version: md.line("metadata_version"),
        array_state: md.line("array_state"),
        raid_disks: md.number("raid_disks"),
        degraded: md.number("degraded"),
        chunk_bytes: md.number("chunk_size"),
        layout: md.number("layout"),
        members: members(&md),
        bitmap: Bitmap {
            chunk_bytes: if has_bitmap { md.number("bitmap/chunksize") } else { None },
            ..bitmap
        },
        consistency_policy: md.line("consistency_policy"),
        sync_action: md.line("sync_action"),
        sync_done_bytes: progress.map(|(done, _)| done),
        sync_total_bytes: progress.map(|(_, total)| total),
        sync_speed_min_kib_s: md.number("sync_speed_min"),
        sync_speed_max_kib_s: md.number("sync_speed_max"),
        stripe_cache_size: md.number("stripe_cache_size"),
        group_thread_cnt: md.number("group_thread_cnt"),
        preread_bypass_threshold: md.number("preread_bypass_threshold"),
    }
}

fn members(md: &Folder) -> Vec<Member> {
    let names = md.names("");
    let mut members: Vec<Member> = names
        .iter()
        .filter_map(|entry| {
            let member = md.join(entry);
            Some(Member {
                name: entry.strip_prefix("dev-")?.to_owned(),
                slot: member.line("slot").and_then(|slot| slot.parse().ok()),
                state: member.line("state"),
                errors: member.number("errors"),
            })
        })
        .collect();
    members.sort_by_key(|member| member.slot.unwrap_or(u64::MAX));
    members
}

/// Done and total in bytes of `1024 / 4096`, which counts sectors; `none` and `delayed` are no progress.
fn sync_progress(line: &str) -> Option<(u64, u64)> {
    let (done, total) = line.split_once(" / ")?;
    Some((done.parse::<u64>().ok()? * SECTOR_BYTES, total.parse::<u64>().ok()? * SECTOR_BYTES))
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::facts::files::Files;
    use std::fs;

    #[test]
    fn a_degraded_raid5_that_recovers() {
        let root = tempfile::tempdir().unwrap();
        let md = root.path().join("sys/block/md127/md");
        for (name, text) in [
            ("level", "raid5"),
            ("metadata_version", "1.2"),
            ("array_state", "active"),
            ("raid_disks", "3 (2)"),
            ("degraded", "1"),
            ("chunk_size", "524288"),
            ("layout", "2"),
            ("bitmap/location", "+8"),
            ("bitmap/chunksize", "67108864"),
            ("sync_action", "recover"),
            ("sync_completed", "2048 / 8192"),
            ("sync_speed_max", "200000 (system)"),
            ("stripe_cache_size", "256"),
            ("dev-sdb/slot", "1"),
            ("dev-sdb/state", "in_sync"),
            ("dev-sda/slot", "0"),
            ("dev-sda/state", "in_sync,write_mostly"),
            ("dev-sdc/slot", "none"),
            ("dev-sdc/state", "spare"),
        ] {
            let path = md.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let files = Files::open(Some(root.path())).unwrap();
        let arrays = read(&files.root());
        assert!(files.into_errors().is_empty());
        let array = &arrays[0];
        assert_eq!(array.raid_disks, Some(3));
        assert_eq!(array.degraded, Some(1));
        assert_eq!(array.bitmap.chunk_bytes, Some(67_108_864));
        assert_eq!((array.sync_done_bytes, array.sync_total_bytes), (Some(1 << 20), Some(4 << 20)));
        assert_eq!(array.sync_speed_max_kib_s, Some(200_000));
        assert_eq!(array.group_thread_cnt, None);
        let members: Vec<_> =
            array.members.iter().map(|member| (member.name.as_str(), member.slot)).collect();
        assert_eq!(members, [("sda", Some(0)), ("sdb", Some(1)), ("sdc", None)]);
    }
}
