//! systemd as what keeps a watcher alive.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::world;

/// There if and only if systemd is the init system (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
/// A unit of systemd runs in those of process 1. In others it would find another journal, another server or no process.
const NAMESPACES: [&str; 4] = ["mnt", "net", "pid", "user"];
/// 0 is the exit code of a watcher that has nothing left to watch. What a watcher started (a server, by the commands of
/// its owner) is not ended with it.
const PROPERTIES: [&str; 6] = [
    "--property=Type=exec",
    "--property=Restart=always",
    "--property=RestartSec=1",
    "--property=RestartPreventExitStatus=0",
    "--property=StartLimitIntervalSec=0",
    "--property=KillMode=process",
];

/// Start the watcher of `owner` as a transient unit. If systemd is not there or does not do it: false, and nothing runs.
pub fn start(program: &Path, words: &[OsString], owner: &str) -> bool {
    is_there() && world::succeeds(&mut unit(program, words, owner))
}

fn is_there() -> bool {
    let of = |process: &str, kind: &str| fs::read_link(format!("/proc/{process}/ns/{kind}")).ok();
    rustix::process::geteuid().is_root()
        && Path::new(BOOTED).is_dir()
        && NAMESPACES.iter().all(|kind| of("self", kind).is_some_and(|own| Some(own) == of("1", kind)))
}

fn unit(program: &Path, words: &[OsString], owner: &str) -> Command {
    let mut command = Command::new("systemd-run");
    command.args(["--quiet", "--collect", "--no-ask-password"]).args(PROPERTIES);
    command.arg(format!("--unit=headrace-watch-{}", world::since_boot().as_nanos()));
    command.arg(format!("--description=headrace: undoes {owner} unless it is confirmed"));
    // The commands of a server's owner, and a login's file, are looked for as where they were given.
    for name in ["HOME", "PATH"] {
        if let Some(value) = std::env::var_os(name) {
            let mut setting = OsString::from(format!("--setenv={name}="));
            setting.push(value);
            command.arg(setting);
        }
    }
    command.arg("--").arg(program).args(words).arg("--is-unit");
    command
}
