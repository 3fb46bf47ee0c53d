//! Two network namespaces and a pair of interfaces between them, without names: they end with their processes.
//!
//! Each process leaves the host's namespaces before it makes anything, so nothing of the host changes, and nothing is
//! left behind even by `kill -9`. An interface has its /sys where its namespace is: each process mounts its own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Deserialize;

use super::client;
use super::spec::Spec;
use base::error::AgentError;
use base::stop::StopSignal;

/// An end's interface and its address, from the range for benchmarks (RFC 2544).
pub type Place = (&'static str, &'static str);
const CLIENT: Place = ("hrp0", "198.18.77.1");
pub const SERVER: Place = ("hrp1", "198.18.77.2");
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct Listening {
    port: u16,
}

pub fn run(mut spec: Spec) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(AgentError::Refused("network namespaces need root".to_owned()).into());
    }
    let stop = StopSignal::install()?;
    spec.address = SERVER.1.parse()?;
    let mut inside = spec.clone();
    inside.is_inside = true;
    let mut server = Server::start(&inside)?;
    leave().context("cannot make a network namespace")?;
    let pid = server.0.id().to_string();
    ip(&["link", "add", CLIENT.0, "type", "veth", "peer", "name", SERVER.0, "netns", &pid])?;
    set_up(CLIENT, &spec.rps)?;
    spec.port = server.port()?;
    client::measure(&spec, &stop)
}

/// The server, in namespaces of its own; it ends with us.
struct Server(Child);

impl Server {
    fn start(spec: &Spec) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["packets", "serve"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // SAFETY: three system calls, and nothing else happens between fork and exec.
        unsafe {
            command.pre_exec(|| {
                set_parent_process_death_signal(Some(Signal::KILL))?;
                leave()?;
                Ok(())
            });
        }
        let mut child = command.spawn().context("cannot start the server")?;
        let mut stdin = child.stdin.take().expect("a pipe");
        stdin.write_all(&serde_json::to_vec(spec)?).context("the server's SPEC")?;
        Ok(Self(child))
    }

    /// Waits until it listens.
    fn port(&mut self) -> anyhow::Result<u16> {
        let mut line = String::new();
        BufReader::new(self.0.stdout.take().context("asked twice")?).read_line(&mut line)?;
        let listening: Listening =
            serde_json::from_str(&line).context("the server in its namespace did not start")?;
        Ok(listening.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Into a network and a mount namespace of this thread's own; threads that it starts later are in them, too.
fn leave() -> rustix::io::Result<()> {
    use rustix::thread::{UnshareFlags, unshare_unsafe};
    // SAFETY: neither flag takes file descriptors or memory from another thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET | UnshareFlags::NEWNS) }
}

/// Waits for the interface of this end, and makes it ready. `rps` is a mask, empty to leave it.
pub fn set_up((interface, address): Place, rps: &str) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !std::fs::read_to_string("/proc/self/net/dev")?.contains(&format!("{interface}:")) {
        if Instant::now() > end {
            bail!("the interface {interface} did not appear");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    if !rps.is_empty() {
        mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        mount("sysfs", "/sys", "sysfs", MountFlags::empty(), None).context("cannot mount its /sys")?;
        let path = format!("/sys/class/net/{interface}/queues/rx-0/rps_cpus");
        std::fs::write(&path, rps).with_context(|| format!("the kernel does not take {rps} for RPS"))?;
    }
    ip(&["addr", "add", &format!("{address}/24"), "dev", interface])?;
    ip(&["link", "set", interface, "up"])
}

fn ip(words: &[&str]) -> anyhow::Result<()> {
    let done = Command::new("ip")
        .args(words)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output()
        .context("cannot run ip of iproute2")?;
    if !done.status.success() {
        bail!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(())
}
