//! Surviving what ends other processes: the end of a unit's control group, and a shortage of memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use host::mountinfo;

/// Tried from the lowest: without CAP_SYS_RESOURCE the kernel only allows values we already had.
const OOM_SCORES: [&str; 11] =
    ["-1000", "-900", "-800", "-700", "-600", "-500", "-400", "-300", "-200", "-100", "0"];

/// Leave the control group of the systemd unit that started us: ending the unit then does not reach us. Only the
/// hierarchy that units are ended by, and no group but a unit's: what anybody else put us into is not ours to leave.
pub fn outlive_the_unit() {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for folder in roots(&own, &mounts) {
        // 0 means the writing process. If it is not allowed, we stay.
        let _ = fs::write(folder.join("cgroup.procs"), "0");
    }
}

/// What this process had before it asked to be spared; what it starts gets that again.
static USUAL_OOM_SCORE: OnceLock<i32> = OnceLock::new();

pub fn usual_oom_score() -> Option<i32> {
    USUAL_OOM_SCORE.get().copied()
}

/// Ask the kernel to kill any other process first.
pub fn outlive_a_shortage() {
    let path = Path::new("/proc/self/oom_score_adj");
    let now = fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<i32>().ok()).unwrap_or(0);
    let _ = USUAL_OOM_SCORE.set(now);
    for score in OOM_SCORES {
        if score.parse::<i32>().is_ok_and(|score| score >= now) || fs::write(path, score).is_ok() {
            return;
        }
    }
}

/// Where the roots of systemd's own hierarchies are mounted in which we are in a unit.
fn roots(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mounts = mountinfo::parse(mounts);
    let mut found = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        if !path.ends_with(".service") && !path.ends_with(".scope") {
            continue;
        }
        let mount = mounts.iter().find(|mount| match controllers {
            "" => mount.kind == "cgroup2",
            "name=systemd" => mount.kind == "cgroup" && mount.super_options.iter().any(|o| o == controllers),
            _ => false,
        });
        found.extend(mount.map(|mount| PathBuf::from(&mount.mount_point)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
29 23 0:26 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw,nsdelegate
30 23 0:27 / /sys/fs/cgroup/systemd rw,nosuid - cgroup cgroup rw,xattr,name=systemd
31 23 0:28 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory
";

    #[test]
    fn only_a_unit_is_left_and_only_in_the_hierarchy_that_ends_it() {
        let own = "3:memory:/system.slice/ssh.service\n1:name=systemd:/system.slice/ssh.service\n\
                   0::/user.slice/user-0.slice/session-1.scope\n";
        let found = roots(own, MOUNTS);
        assert_eq!(found, [Path::new("/sys/fs/cgroup/systemd"), Path::new("/sys/fs/cgroup/unified")]);
    }

    #[test]
    fn a_group_that_is_no_unit_is_not_ours_to_leave() {
        assert_eq!(
            roots("4:memory:/jobs/7\n1:name=systemd:/\n0::/jobs/7\n", MOUNTS),
            [""; 0].map(PathBuf::from)
        );
    }
}
