//! The namespaces of a process, compared with ours.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::system::uname;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// As /proc/PID/ns names them. Without `ipc` and `time`, in which a server's files, limits and addresses do not differ.
const KINDS: [&str; 6] = ["cgroup", "mnt", "net", "pid", "user", "uts"];

/// Whether a process is in our namespace of this kind; `None` without permission to look.
pub fn is_shared(pid: u32, kind: &str) -> Option<bool> {
    let own = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
    let its = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
    Some(own == its)
}

/// The kinds in which it is not in ours, sorted; `None` without permission to look.
pub fn of_its_own(pid: u32) -> Option<Vec<String>> {
    // A kernel without one kind has no file for it.
    is_shared(pid, "mnt")?;
    let differs = |kind: &&str| is_shared(pid, kind) == Some(false);
    Some(KINDS.into_iter().filter(differs).map(str::to_owned).collect())
}

/// The number of the device that a process's working directory is on, as mountinfo writes it; `None` without
/// permission to look.
pub fn device_of_work(pid: u32) -> Option<String> {
    let device = fs::metadata(format!("/proc/{pid}/cwd")).ok()?.dev();
    Some(format!("{}:{}", libc::major(device), libc::minor(device)))
}

/// The host name in a process's namespace; `None` without permission to enter it.
pub fn host_name_in(pid: u32) -> Option<String> {
    let namespace = fs::File::open(format!("/proc/{pid}/ns/uts")).ok()?;
    // In a thread of its own, because it does not come back.
    let entered = move || {
        let kind = Some(LinkNameSpaceType::HostNameAndNISDomainName);
        move_into_link_name_space(namespace.as_fd(), kind).ok()?;
        Some(uname().nodename().to_string_lossy().into_owned())
    };
    std::thread::spawn(entered).join().ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::{device_of_work, is_shared, of_its_own};
    use crate::mountinfo;
    use std::fs;

    #[test]
    fn we_are_in_our_own() {
        assert_eq!(is_shared(std::process::id(), "net"), Some(true));
        assert_eq!(of_its_own(std::process::id()), Some(Vec::new()));
        assert_eq!(of_its_own(u32::MAX), None);
    }

    #[test]
    fn a_device_of_work_is_one_of_the_mounts() {
        assert_eq!(device_of_work(u32::MAX), None);
        let device = device_of_work(std::process::id()).unwrap();
        let mounts = mountinfo::parse(&fs::read_to_string("/proc/self/mountinfo").unwrap());
        assert!(mounts.iter().any(|mount| mount.device == device || mount.kind == "btrfs"), "{device}");
    }
}
