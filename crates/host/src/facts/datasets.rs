//! Properties of the ZFS datasets that are mounted, as zfs(8) prints them: no file of /proc has them.

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::files::Folder;
use crate::mountinfo::Mount;

/// What decides how a database's pages are stored and cached: zfsprops(7).
const PROPERTIES: &str = "recordsize,logbias,sync,primarycache,secondarycache,compression,checksum,dedup,atime,\
    redundant_metadata,volblocksize,available,used,quota,direct";
/// A pool that is suspended answers nobody.
const PATIENCE: Duration = Duration::from_secs(3);
/// On most hosts of databases there are a few; on some hosts of containers, thousands.
const MOST: usize = 64;
const MOST_BYTES: u64 = 1 << 20;

#[derive(Debug, Default, PartialEq, Serialize)]
pub struct Datasets {
    /// Dataset -> property -> value, sizes in bytes.
    properties: BTreeMap<String, BTreeMap<String, String>>,
    /// Why nothing is known; null if the datasets were read.
    unknown: Option<String>,
}

/// `None` without a ZFS mount.
pub fn read(host: &Folder, mounts: &[Mount], is_live: bool) -> Option<Datasets> {
    let mut names: Vec<&str> =
        mounts.iter().filter(|mount| mount.kind == "zfs").map(|mount| mount.source.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(MOST);
    if names.is_empty() {
        return None;
    }
    let text = if is_live { asked(&names) } else { saved(host) };
    Some(match text {
        Ok(text) => match parse(&text) {
            properties if properties.is_empty() => unknown("zfs get printed no properties"),
            properties => Datasets { properties, unknown: None },
        },
        Err(why) => unknown(&why),
    })
}

fn unknown(why: &str) -> Datasets {
    Datasets { properties: BTreeMap::new(), unknown: Some(why.to_owned()) }
}

fn asked(names: &[&str]) -> Result<String, String> {
    // A name that this version does not have (`direct` is of 2.3) would leave us without any.
    let mut command = Command::new("zfs");
    command.args(["get", "-Hp", "-o", "name,property,value", "all"]).args(names);
    command.env("PATH", "/usr/sbin:/sbin:/usr/local/sbin:/usr/bin:/bin").env("LC_ALL", "C");
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("the program zfs cannot be run: {error}"))?;
    let mut output = child.stdout.take().ok_or("zfs has no output")?;
    // Read beside the wait: a full pipe would stop the program.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.by_ref().take(MOST_BYTES).read_to_string(&mut text).map(|_| text)
    });
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => break,
            Some(status) => return Err(format!("zfs get failed: {status}")),
            None if Instant::now() >= deadline => {
                // One that hangs in the kernel cannot be killed: it is left to itself.
                let _ = child.kill();
                return Err(format!("zfs get did not answer within {} s", PATIENCE.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    reader.join().map_err(|_| "the output of zfs was not read")?.map_err(|error| error.to_string())
}

/// What a report of another program has kept: sosreport.
fn saved(host: &Folder) -> Result<String, String> {
    let folder = host.join("sos_commands/zfs");
    let name = folder.names("").into_iter().find(|name| name.starts_with("zfs_get"));
    name.and_then(|name| folder.text(&name))
        .ok_or_else(|| "the saved host has no output of zfs get".to_owned())
}

/// Lines of name, property and value, apart by tabs (-H); or, for people, by spaces, with a title and the source.
fn parse(text: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let wanted: Vec<&str> = PROPERTIES.split(',').collect();
    let mut found: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for line in text.lines() {
        let separator =
            |letter: char| if line.contains('\t') { letter == '\t' } else { letter.is_whitespace() };
        let mut words = line.split(separator).filter(|word| !word.is_empty());
        if let (Some(name), Some(property), Some(value)) = (words.next(), words.next(), words.next())
            && wanted.contains(&property)
        {
            found.entry(name.to_owned()).or_default().insert(property.to_owned(), in_bytes(property, value));
        }
    }
    found
}

/// `128K` -> `131072`, of a property that is a size: without -p the program prints it for people.
fn in_bytes(property: &str, value: &str) -> String {
    if !["recordsize", "volblocksize", "available", "used", "quota"].contains(&property) {
        return value.to_owned();
    }
    let (digits, unit) =
        value.split_at(value.len() - usize::from(value.ends_with(|c: char| c.is_ascii_uppercase())));
    let power = "BKMGTPE".find(unit).filter(|_| !unit.is_empty());
    match (digits.parse::<f64>(), power) {
        (Ok(number), Some(power)) => {
            format!("{:.0}", number * 1024_f64.powi(i32::try_from(power).unwrap_or(0)))
        }
        _ => value.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Datasets, parse, read};
    use crate::facts::files::Files;
    use crate::mountinfo;
    use std::fs;

    const MOUNTS: &str = "29 1 0:55 / /var/lib/mysql rw,noatime - zfs tank/mysql rw,xattr,noacl\n";

    #[test]
    fn lines_for_programs_and_for_people() {
        let for_programs =
            parse("tank/mysql\trecordsize\t131072\ntank/mysql\tsync\tstandard\ntank/mysql\tguid\t1\n");
        assert_eq!(for_programs["tank/mysql"]["recordsize"], "131072");
        assert_eq!(for_programs["tank/mysql"].len(), 2);
        let for_people = parse(
            "NAME        PROPERTY      VALUE      SOURCE\ntank/mysql  recordsize    128K       default\n\
             tank/mysql  primarycache  metadata   local\ntank/mysql  quota  none  default\n",
        );
        assert_eq!(for_people["tank/mysql"]["recordsize"], "131072");
        assert_eq!(for_people["tank/mysql"]["primarycache"], "metadata");
        assert_eq!(for_people["tank/mysql"]["quota"], "none");
    }

    #[test]
    fn a_saved_host_is_read_or_unknown() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::open(Some(root.path())).unwrap();
        let mounts = mountinfo::parse(MOUNTS);
        assert_eq!(read(&files.root(), &[], false), None);
        let found = read(&files.root(), &mounts, false).unwrap();
        assert!(found.unknown.unwrap().contains("no output of zfs get"));
        fs::create_dir_all(root.path().join("sos_commands/zfs")).unwrap();
        fs::write(
            root.path().join("sos_commands/zfs/zfs_get_all"),
            "NAME PROPERTY VALUE SOURCE\ntank/mysql logbias latency default\n",
        )
        .unwrap();
        let Datasets { properties, unknown } = read(&files.root(), &mounts, false).unwrap();
        assert_eq!(unknown, None);
        assert_eq!(properties["tank/mysql"]["logbias"], "latency");
    }

    #[test]
    fn a_host_without_the_program_says_so() {
        if std::path::Path::new("/usr/sbin/zfs").exists() || std::path::Path::new("/sbin/zfs").exists() {
            return;
        }
        let found = read(&Files::open(None).unwrap().root(), &mountinfo::parse(MOUNTS), true).unwrap();
        assert!(found.unknown.unwrap().contains("cannot be run"));
    }
}
