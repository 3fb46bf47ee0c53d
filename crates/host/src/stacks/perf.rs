//! On-CPU stacks by `perf record`, of the whole machine: recording one process, perf spins once a thread of it ends.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::fold::{Folded, parse_perf};
use base::stop::StopSignal;

/// How long perf may take to finish after its recording time.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Reading symbols of a large server.
const SCRIPT_TIME: Duration = Duration::from_secs(60);

/// Records into a file in `folder`, and folds the stacks of process `pid`.
pub fn record(
    pid: u32,
    seconds: f64,
    hertz: u32,
    folder: &Path,
    stop: &StopSignal,
    folded: &mut Folded,
) -> anyhow::Result<()> {
    let data = folder.join("perf.data");
    let mut recording = Command::new("perf");
    recording
        .args(["record", "--quiet", "--all-cpus", "--event", "cpu-clock", "--call-graph", "fp", "--freq"])
        .arg(hertz.to_string())
        .arg("--output")
        .arg(&data)
        .args(["--", "sleep", &seconds.to_string()]);
    run(&mut recording, Duration::from_secs_f64(seconds) + TIMEOUT, stop)
        .context("perf record failed: it needs root, or kernel.perf_event_paranoid=-1")?;
    let output = folder.join("script.txt");
    let mut script = Command::new("perf");
    script
        // Looking up inlined functions takes a process for every address.
        .args([
            "script",
            "--no-inline",
            "--fields",
            "comm,tid,ip,sym,dso",
            "--pid",
            &pid.to_string(),
            "--input",
        ])
        .arg(&data)
        .stdout(std::fs::File::create(&output)?);
    run(&mut script, SCRIPT_TIME, stop).context("perf script failed")?;
    parse_perf(&String::from_utf8_lossy(&std::fs::read(&output)?), folded);
    Ok(())
}

/// Runs it to its end, or kills it after this time.
fn run(command: &mut Command, most: Duration, stop: &StopSignal) -> anyhow::Result<()> {
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let end = Instant::now() + most;
    loop {
        if let Some(status) = child.try_wait()? {
            if !status.success() {
                bail!("it ended with {status}");
            }
            return Ok(());
        }
        if stop.is_set() {
            end_child(&mut child);
            bail!("stopped");
        }
        if Instant::now() > end {
            end_child(&mut child);
            bail!("it took more than {} s and was killed", most.as_secs());
        }
        sleep(Duration::from_millis(20));
    }
}

fn end_child(child: &mut Child) {
    // It may have ended in this moment.
    let _ = child.kill();
    let _ = child.wait();
}
