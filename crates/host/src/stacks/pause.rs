//! A poor man's profiler: a debugger stops the process, reads its stacks and continues it. The cost is measured from
//! outside, by the state of its threads.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::fold::{Folded, parse_threads};
use base::stop::StopSignal;

/// How often the states are read; a pause is known to twice this.
pub const WATCH: Duration = Duration::from_micros(500);
/// Reading the states of thousands of threads would be a load itself.
const WATCHED_THREADS: usize = 32;
/// After a debugger was killed: how long threads run until they are left alone, and are tried to be woken at most.
const AWAKE: Duration = Duration::from_millis(200);
const LONGEST_WAKE: Duration = Duration::from_secs(5);
/// A debugger that stops nothing for this long reads symbols, or hangs.
const LONGEST_RUN: Duration = Duration::from_secs(60);

/// How long one sample stopped a thread (the longest of those watched), and the process from the first stop to the
/// last.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pause {
    pub thread: Duration,
    pub process: Duration,
}

pub struct Watched {
    pid: u32,
    threads: Vec<PathBuf>,
}

impl Watched {
    pub fn new(pid: u32) -> anyhow::Result<Self> {
        let folder = format!("/proc/{pid}/task");
        let entries = std::fs::read_dir(&folder).with_context(|| format!("no process {pid}"))?;
        let mut threads: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("stat")).collect();
        // The first and an even choice of the others.
        let step = threads.len().div_ceil(WATCHED_THREADS).max(1);
        threads = threads.into_iter().step_by(step).collect();
        Ok(Self { pid, threads })
    }

    fn states(&self) -> impl Iterator<Item = Option<u8>> {
        self.threads.iter().map(|path| state(&std::fs::read(path).ok()?))
    }

    /// A killed debugger may leave the process stopped, and nothing else would continue it. Its own stop may reach
    /// the threads only after it has ended: they are watched until they have run for a while.
    fn wake(&self, was_killed: bool) {
        let Some(pid) = Pid::from_raw(self.pid as i32) else { return };
        if was_killed {
            // Also takes back a stop that is on its way.
            let _ = kill_process(pid, Signal::CONT);
        }
        let end = Instant::now() + LONGEST_WAKE;
        let mut running_since = Instant::now();
        while Instant::now() < end {
            let states: Vec<u8> = self.states().flatten().collect();
            if states.contains(&b'T') {
                // It may have ended meanwhile.
                let _ = kill_process(pid, Signal::CONT);
            }
            if states.iter().any(|state| matches!(state, b't' | b'T')) {
                running_since = Instant::now();
            } else if !was_killed || running_since.elapsed() > AWAKE {
                return;
            }
            sleep(WATCH);
        }
    }
}

/// The letter after the name, which may itself hold brackets and blanks.
fn state(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end + 2).copied()
}

/// One sample of all threads by `command`. Kills the debugger, and fails, once a pause is longer than `most`.
pub fn sample(
    command: &mut Command,
    pid: u32,
    most: Duration,
    stop: &StopSignal,
    folded: &mut Folded,
) -> anyhow::Result<Pause> {
    let watched = Watched::new(pid)?;
    if watched.states().any(|state| matches!(state, Some(b't' | b'T'))) {
        bail!("process {pid} is stopped already, perhaps by another debugger");
    }
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut stdout = child.stdout.take().context("no output of the debugger")?;
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        text
    });
    let pause = watch(&mut child, &watched, most, stop);
    if pause.is_err() {
        // It may have ended in this moment.
        let _ = child.kill();
        let _ = child.wait();
    }
    watched.wake(pause.is_err());
    let text = reader.join().map_err(|_| anyhow::anyhow!("the debugger's output was lost"))?;
    let before = folded.samples;
    parse_threads(&String::from_utf8_lossy(&text), folded);
    let pause = pause?;
    if folded.samples == before {
        bail!("no stack was read: may this user trace process {pid}?");
    }
    Ok(pause)
}

fn watch(child: &mut Child, watched: &Watched, most: Duration, stop: &StopSignal) -> anyhow::Result<Pause> {
    let begun = Instant::now();
    let mut since: Vec<Option<Instant>> = vec![None; watched.threads.len()];
    let (mut first, mut last, mut pause) = (None, None, Pause::default());
    loop {
        let has_ended = child.try_wait()?.is_some();
        let now = Instant::now();
        for (thread, state) in watched.states().enumerate() {
            if matches!(state, Some(b't' | b'T')) {
                let start = *since[thread].get_or_insert(now);
                pause.thread = pause.thread.max(now - start);
                first.get_or_insert(now);
                last = Some(now);
            } else if let Some(start) = since[thread].take() {
                // It continued at some time between two readings.
                pause.thread = pause.thread.max(now - start);
                last = Some(now);
            }
        }
        if let (Some(first), Some(last)) = (first, last) {
            pause.process = last - first;
        }
        if has_ended {
            return Ok(pause);
        }
        if pause.process > most {
            bail!("a pause of more than {} ms; stopped at once (--max-pause)", most.as_millis());
        }
        if stop.is_set() {
            bail!("stopped");
        }
        if begun.elapsed() > LONGEST_RUN {
            bail!("the debugger did not end within {} s", LONGEST_RUN.as_secs());
        }
        sleep(WATCH);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use super::{Watched, sample, state};
    use base::stop::StopSignal;

    #[test]
    fn a_stop_that_comes_after_the_debugger_was_killed_does_not_last() {
        let mut process = Command::new("sleep").arg("60").stdout(Stdio::null()).spawn().unwrap();
        let pid = process.id();
        let late = format!("kill -STOP {pid}; (sleep 0.05; kill -STOP {pid}) >&- & exec sleep 60");
        let most = Duration::from_millis(2);
        let mut folded = Default::default();
        let (stop, _writer) = StopSignal::pair();
        let found = sample(Command::new("sh").args(["-c", &late]), pid, most, &stop, &mut folded);
        assert!(found.unwrap_err().to_string().contains("--max-pause"));
        std::thread::sleep(Duration::from_millis(150));
        let states: Vec<u8> = Watched::new(pid).unwrap().states().flatten().collect();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(states, [b'S']);
    }

    #[test]
    fn a_name_may_look_like_a_state() {
        assert_eq!(state(b"12 (a) t (x) S 1 2"), Some(b'S'));
        assert_eq!(state(b"12 (mariadbd) t 1"), Some(b't'));
        assert_eq!(state(b"12"), None);
    }
}
