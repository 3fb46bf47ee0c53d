//! Mounts: the options of a place and those of its file system, and what a remount makes of them.

use std::collections::BTreeSet;

use rustix::io::Errno;
use rustix::mount::MountFlags;

/// What the kernel prints of a place, and its flag.
const OWN: [(&str, u32); 6] =
    [("ro", 1), ("nosuid", 2), ("nodev", 4), ("noexec", 8), ("nodiratime", 1 << 11), ("nosymfollow", 1 << 8)];
/// Flags of the file system, which every remount without MS_BIND replaces.
const SET_ANEW: [(&str, u32); 3] = [("ro", 1), ("sync", 16), ("lazytime", 1 << 25)];

pub struct Mount {
    pub point: &'static str,
    own: BTreeSet<&'static str>,
    access: &'static str,
    whole: BTreeSet<&'static str>,
    is_discarding: bool,
    commit_s: u32,
}

impl Mount {
    fn new(point: &'static str, own: &[&'static str], whole: &[&'static str]) -> Mount {
        let [own, whole] = [own, whole].map(|flags| flags.iter().copied().collect());
        Mount { point, own, access: "relatime", whole, is_discarding: false, commit_s: 5 }
    }

    /// Those of a fresh boot: an ordinary one, and a read-only place of a file system that is written elsewhere.
    pub fn all() -> Vec<Mount> {
        vec![
            Mount::new("/data", &["nosuid", "nodev", "nosymfollow"], &["dirsync"]),
            Mount::new("/place", &["ro", "noexec", "nodiratime"], &["sync"]),
        ]
    }

    /// A line of mountinfo.
    pub fn line(&self, number: usize) -> String {
        let access = if self.own.contains("ro") { "ro" } else { "rw" };
        let mut own = vec![access];
        own.extend(self.own.iter().filter(|flag| **flag != "ro"));
        own.extend((self.access != "strictatime").then_some(self.access));
        let mut whole = vec![if self.whole.contains("ro") { "ro" } else { "rw" }.to_owned()];
        whole.extend(self.whole.iter().filter(|flag| **flag != "ro").map(|flag| (*flag).to_owned()));
        whole.extend(self.is_discarding.then(|| "discard".to_owned()));
        whole.extend((self.commit_s != 5).then(|| format!("commit={}", self.commit_s)));
        let (own, whole) = (own.join(","), whole.join(","));
        format!("{number} 1 8:{number} / {} {own} shared:1 - ext4 /dev/sda{number} {whole}\n", self.point)
    }

    /// Each kind of option by its key, for comparison.
    pub fn values(&self) -> Vec<(String, String)> {
        let key = |kind: &str| format!("mount {} {kind}", self.point);
        let list = |flags: &BTreeSet<&'static str>| {
            flags.iter().filter(|flag| **flag != "lazytime").copied().collect::<Vec<_>>().join(",")
        };
        let lazytime = if self.whole.contains("lazytime") { "lazytime" } else { "nolazytime" };
        vec![
            (key("atime"), self.access.to_owned()),
            (key("lazytime"), lazytime.to_owned()),
            (key("discard"), if self.is_discarding { "discard" } else { "nodiscard" }.to_owned()),
            (key("commit"), format!("commit={}", self.commit_s)),
            (key("flags"), list(&self.own)),
            (key("flags of the file system"), list(&self.whole)),
        ]
    }

    /// Sets one option and keeps the others, as a stranger or fstab at boot does.
    pub fn set(&mut self, option: &str) -> Result<(), Errno> {
        let flag =
            |known: &[(&'static str, u32)]| known.iter().find(|(name, _)| *name == option).map(|f| f.0);
        match option {
            "noatime" => self.access = "noatime",
            "relatime" => self.access = "relatime",
            "strictatime" => self.access = "strictatime",
            _ if flag(&OWN).is_some() => self.own.extend(flag(&OWN)),
            _ => self.set_whole(option)?,
        }
        Ok(())
    }

    /// One option of the file system.
    fn set_whole(&mut self, option: &str) -> Result<(), Errno> {
        match option {
            "lazytime" => self.whole.extend(["lazytime"]),
            "sync" => self.whole.extend(["sync"]),
            "ro" => self.whole.extend(["ro"]),
            "nolazytime" => self.whole.retain(|flag| *flag != "lazytime"),
            "async" => self.whole.retain(|flag| *flag != "sync"),
            "discard" | "nodiscard" => self.is_discarding = option == "discard",
            _ => {
                let seconds = option.strip_prefix("commit=").and_then(|text| text.parse().ok());
                self.commit_s = seconds.ok_or(Errno::INVAL)?;
            }
        }
        Ok(())
    }

    /// mount(2) with MS_REMOUNT: with MS_BIND only the place, else both. The flags that are not given are gone.
    pub fn remount(&mut self, flags: MountFlags, data: &str) -> Result<(), Errno> {
        if !flags.contains(MountFlags::BIND) {
            for (name, bit) in SET_ANEW {
                self.whole.retain(|flag| *flag != name);
                self.whole.extend((flags.bits() & bit != 0).then_some(name));
            }
            data.split(',')
                .filter(|option| !option.is_empty())
                .try_for_each(|option| self.set_whole(option))?;
        }
        self.own = OWN.iter().filter(|(_, bit)| flags.bits() & bit != 0).map(|(name, _)| *name).collect();
        if flags.contains(MountFlags::STRICTATIME) {
            self.access = "strictatime";
        } else if flags.contains(MountFlags::NOATIME) {
            self.access = "noatime";
        } else if flags.intersects(MountFlags::RELATIME | MountFlags::NODIRATIME) {
            self.access = "relatime";
        }
        Ok(())
    }

    /// fsconfig(2): the file system only, and what is not given stays.
    pub fn reconfigure(&mut self, options: &[String]) -> Result<(), Errno> {
        options.iter().try_for_each(|option| self.set_whole(option))
    }
}
