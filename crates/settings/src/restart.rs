//! A server that its owner restarts with files of ours: what is left to do on the host once those files are back.
//!
//! A server may only be restarted while it is out of service, and a host cannot know whether it is. So the host restarts
//! it only if the journal holds the owner's own commands for that, and only the watcher of the deadline runs them.
//! Otherwise the running server is left as it is, and the entry stays open.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};

use super::commands::Commands;
use super::foreign::Foreign;
use super::journal::{Journal, Open, ServerStart, VariableValue};
use super::survival;
use super::variables::{self, Server};
use host::server::{galera, replication};
use mysql::ServerArguments;

/// Held while one of the owner's commands runs, also by the controller's.
const LOCK: &str = "commands.lock";
/// A restart that began before the file was back may end after ours; after that only a person restarts it.
const MOST_RESTARTS: usize = 2;
const STRETCH: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(100);
const MOST_SAID: usize = 300;
/// Runs command $0 without the watcher's own protection from a shortage of memory: a server must not inherit it.
const AS_BEFORE: &str = r#"echo "$1" 2>/dev/null >/proc/self/oom_score_adj; exec sh -c "$0""#;

/// What an entry of the journal says of the server.
pub struct Pending<'a> {
    pub login: &'a ServerArguments,
    pub start: &'a ServerStart,
    pub restore: &'a [VariableValue],
    pub commands: Option<&'a Commands>,
}

/// What the server is once the files are back.
#[derive(PartialEq)]
enum Seen {
    /// It has the original values: it was not restarted with the files, or again since.
    Old,
    New(String),
    Silent(String),
}

impl Seen {
    fn text(&self) -> &str {
        match self {
            Seen::Old => "the server has its original values",
            Seen::New(text) | Seen::Silent(text) => text,
        }
    }
}

impl Pending<'_> {
    /// For any call: done if the server has its original values; otherwise it is left as it is.
    pub fn left(&self) -> anyhow::Result<Option<String>> {
        match self.look()? {
            Seen::Old => Ok(None),
            Seen::New(text) => Err(Foreign(format!("{text}, and only a restart changes that")).into()),
            Seen::Silent(text) => anyhow::bail!("{text}"),
        }
    }

    /// For the watcher: bring the server back to its original values with the owner's commands.
    pub fn carry_out(&self, journal: &mut Journal, entry: &Open) -> anyhow::Result<Option<String>> {
        let Some(commands) = self.commands else { return self.left() };
        let runner = Runner::new(commands, &journal.state)?;
        let seen = self.look()?;
        if seen == Seen::Old {
            // It may have been drained for the restart that never came.
            runner.run("return", &commands.put_back, commands.within_s)?;
            return Ok(Some("not restarted: it has its original values".to_owned()));
        }
        anyhow::ensure!(
            entry.became.len() < MOST_RESTARTS,
            "{}, though this host restarted it with the original files: it stays out of service",
            seen.text()
        );
        let drained = runner.run("drain", &commands.drain, commands.within_s);
        if let Err(error) = drained.and_then(|()| self.must_be_idle(commands)) {
            // In service as it was, which is better than an unknown state.
            let _ = runner.run("return", &commands.put_back, commands.within_s);
            return Err(error);
        }
        let mut restarts = entry.became.clone();
        restarts.push(Some("restarted".to_owned()));
        journal.note_became(&entry.owner, entry.id, restarts)?;
        runner.run("restart", &commands.restart, commands.start_s)?;
        self.must_be_back(commands, &seen)?;
        runner.run("return", &commands.put_back, commands.within_s)?;
        Ok(Some("restarted by this host".to_owned()))
    }

    /// An error is the server's own answer: it is up, and says nothing of its values.
    fn look(&self) -> anyhow::Result<Seen> {
        let look = || -> anyhow::Result<Seen> {
            let mut server = Server::connect(self.login)?;
            let start = server.start()?;
            if start == *self.start {
                return Ok(Seen::Old);
            }
            if self.restore.is_empty() {
                return Ok(Seen::New(format!("the server was restarted since ({})", start.started_s)));
            }
            for VariableValue { name, value } in self.restore {
                let now = server.read(name)?;
                if !variables::is(value.as_deref(), now.as_deref()) {
                    let now = now.as_deref().unwrap_or("NULL");
                    return Ok(Seen::New(format!("the server still has {name} = {now}")));
                }
            }
            Ok(Seen::Old)
        };
        look().or_else(
            |error| if is_answer(&error) { Err(error) } else { Ok(Seen::Silent(format!("{error:#}"))) },
        )
    }

    /// The command's word is not enough: a restart would cut what is still served.
    fn must_be_idle(&self, commands: &Commands) -> anyhow::Result<()> {
        let within = Duration::from_secs_f64(commands.within_s);
        let (began, stretch) = (Instant::now(), STRETCH.min(within / 2));
        loop {
            let why = match self.questions_per_s(stretch) {
                Ok(per_s) if per_s < commands.idle_per_s => return Ok(()),
                Ok(per_s) => format!("it has {per_s:.0} queries/s"),
                Err(error) if is_answer(&error) => format!("{error:#}"),
                // A server that does not answer has no clients to lose.
                Err(_) => return Ok(()),
            };
            anyhow::ensure!(began.elapsed() < within, "drained, but {why}");
            std::thread::sleep(GLANCE);
        }
    }

    fn questions_per_s(&self, stretch: Duration) -> anyhow::Result<f64> {
        let mut server = Server::connect(self.login)?;
        let (first, at) = (server.questions()?, Instant::now());
        std::thread::sleep(stretch);
        // The last question is our own.
        let count = server.questions()?.saturating_sub(first + 1);
        Ok(count as f64 / at.elapsed().as_secs_f64())
    }

    /// Wait until the server answers with its original values and its replication has caught up.
    fn must_be_back(&self, commands: &Commands, before: &Seen) -> anyhow::Result<()> {
        let (began, within) = (Instant::now(), Duration::from_secs_f64(commands.start_s));
        loop {
            let now = self.look().unwrap_or_else(|error| Seen::Silent(format!("{error:#}")));
            let why = match &now {
                // Another value than it had with the files comes from something else, as before them.
                Seen::New(text) if now == *before => text.clone(),
                Seen::Silent(text) => text.clone(),
                _ => match self.lag_s() {
                    Ok(lag_s) if lag_s <= commands.lag_s => return Ok(()),
                    Ok(lag_s) => format!("its replication lags {lag_s} s, or has stopped"),
                    Err(error) => format!("{error:#}"),
                },
            };
            anyhow::ensure!(
                began.elapsed() < within,
                "restarted by this host, but {why}: it stays out of service"
            );
            std::thread::sleep(GLANCE * 5);
        }
    }

    /// The largest lag of its channels; infinite where replication does not run, or a node of a Galera cluster is not
    /// in step with it.
    fn lag_s(&self) -> anyhow::Result<f64> {
        let options = self.login.options(variables::STATEMENT)?.context("no login")?;
        let mut connection = mysql::Connection::open(&options)?;
        let channels = replication::channels(&mut connection, &mut 0, &mut None)?;
        if galera::read(&mut connection)?.is_some_and(|node| !node.is_synced) {
            return Ok(f64::INFINITY);
        }
        let lags = channels.iter().map(|channel| channel.lag_s.map_or(f64::INFINITY, |s| s as f64));
        Ok(lags.fold(0.0, f64::max))
    }
}

fn is_answer(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<mysql::Error>().is_some_and(|cause| cause.code().is_some()))
}

/// Runs an owner's commands, one at a time on this host.
struct Runner<'a> {
    commands: &'a Commands,
    state: PathBuf,
    _lock: fs::File,
}

impl<'a> Runner<'a> {
    fn new(commands: &'a Commands, state: &Path) -> anyhow::Result<Runner<'a>> {
        let path = state.join(LOCK);
        let file = fs::OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let lock = file.with_context(|| path.display().to_string())?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Runner { commands, state: state.to_owned(), _lock: lock }),
            Err(Errno::WOULDBLOCK) => anyhow::bail!("an earlier command for this server still runs"),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    fn run(&self, verb: &str, text: &str, within_s: f64) -> anyhow::Result<()> {
        let path = self.state.join("commands.out");
        let opened =
            fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path);
        let mut out = opened.with_context(|| path.display().to_string())?;
        // What it starts may write for years.
        fs::remove_file(&path)?;
        let mut command = Command::new("sh");
        let score = survival::usual_oom_score().unwrap_or(0).to_string();
        command
            .args(["-c", AS_BEFORE, text, &score])
            .envs(&self.commands.environment)
            .env("HEADRACE_VERB", verb)
            .current_dir("/");
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out.try_clone()?).process_group(0);
        let mut child = command.spawn().with_context(|| format!("the {verb} command"))?;
        let (began, within) = (Instant::now(), Duration::from_secs_f64(within_s));
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if began.elapsed() > within {
                if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process_group(group, Signal::KILL);
                }
                let _ = child.wait();
                anyhow::bail!("the {verb} command did not end within {within_s} s");
            }
            std::thread::sleep(GLANCE);
        };
        if status.success() {
            return Ok(());
        }
        let mut said = Vec::new();
        out.seek(SeekFrom::Start(0))?;
        out.read_to_end(&mut said)?;
        let said = String::from_utf8_lossy(&said[said.len().saturating_sub(MOST_SAID)..]).trim().to_owned();
        anyhow::bail!("the {verb} command failed ({status}): {said}")
    }
}
