//! `stacks`: where a process spends its time, as folded stacks; and `flamegraph`, which draws them.

mod fold;
mod pause;
mod perf;

use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use inferno::flamegraph::color::MultiPalette;
use inferno::flamegraph::{Options as Drawing, Palette, from_reader};
use serde::Serialize;

use base::duration::parse_duration;
use base::error::AgentError;
use base::stop::StopSignal;

use self::fold::Folded;
use self::pause::Pause;

/// Samples per second for a method that stops the process: its pauses must stay rare.
const PAUSES_PER_SECOND: f64 = 1.0;

#[derive(Args)]
pub struct StacksArguments {
    /// The process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pid: u32,
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    seconds: u32,
    /// Samples a second and CPU, by perf; not a round number, so that it runs in step with nothing
    #[arg(long, value_name = "N", default_value_t = 49, value_parser = clap::value_parser!(u32).range(1..=999))]
    hertz: u32,
    #[arg(long, value_enum, default_value_t)]
    method: Method,
    /// eu-stack and gdb stop the process for every sample: allow it
    #[arg(long)]
    allow_pause: bool,
    /// Longest pause; after one that is longer there is no other
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    max_pause: Duration,
    /// JSON lines instead of folded stacks
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Method {
    /// What runs on a CPU; the process continues
    #[default]
    Perf,
    /// What every thread does, also waiting; short pauses
    EuStack,
    /// The same, with long pauses
    Gdb,
}

impl Method {
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Method::Perf => ("perf", "apt install linux-perf (perf on Fedora)"),
            Method::EuStack => ("eu-stack", "apt install elfutils"),
            Method::Gdb => ("gdb", "apt install gdb"),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    Stack { frames: &'a str, count: u64 },
    End(Summary),
}

/// The caption under the picture.
#[derive(Serialize)]
struct Summary {
    method: Method,
    pid: u32,
    samples: u64,
    elapsed_s: f64,
    hertz: Option<u32>,
    pauses: Option<Pauses>,
}

/// How long the samples held up the process, and its most delayed thread; known to `resolution_ms`.
#[derive(Debug, PartialEq, Serialize)]
struct Pauses {
    count: usize,
    median_ms: f64,
    max_ms: f64,
    thread_max_ms: f64,
    resolution_ms: f64,
    /// Why sampling ended early, if it did.
    ended_by: Option<String>,
}

impl Pauses {
    fn of(pauses: &[Pause], ended_by: Option<String>) -> Self {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let mut times: Vec<f64> = pauses.iter().map(|pause| ms(pause.process)).collect();
        times.sort_by(f64::total_cmp);
        Self {
            count: times.len(),
            median_ms: times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0.0),
            max_ms: times.last().copied().unwrap_or(0.0),
            thread_max_ms: pauses.iter().map(|pause| ms(pause.thread)).fold(0.0, f64::max),
            resolution_ms: ms(2 * pause::WATCH),
            ended_by,
        }
    }
}

pub fn run(arguments: &StacksArguments) -> anyhow::Result<()> {
    let (program, how) = arguments.method.program();
    if arguments.method != Method::Perf && !arguments.allow_pause {
        let message = format!("{program} stops process {} for every sample: --allow-pause", arguments.pid);
        return Err(AgentError::Refused(message).into());
    }
    if arguments.pid == std::process::id() {
        return Err(AgentError::Input("--pid is this very process".to_owned()).into());
    }
    if !Path::new(&format!("/proc/{}", arguments.pid)).exists() {
        return Err(AgentError::Input(format!("no process {}", arguments.pid)).into());
    }
    if !is_installed(program) {
        return Err(anyhow!("{program} is not installed: {how}"));
    }
    let stop = StopSignal::install()?;
    let begun = Instant::now();
    let mut folded = Folded::default();
    let pauses = match arguments.method {
        Method::Perf => {
            let folder = Scratch::new()?;
            perf::record(
                arguments.pid,
                arguments.seconds.into(),
                arguments.hertz,
                &folder.0,
                &stop,
                &mut folded,
            )?;
            None
        }
        method => Some(sample(method, arguments, &stop, &mut folded)?),
    };
    let ended_by = pauses.as_ref().and_then(|pauses| pauses.ended_by.clone());
    let summary = Summary {
        method: arguments.method,
        pid: arguments.pid,
        samples: folded.samples,
        elapsed_s: begun.elapsed().as_secs_f64(),
        hertz: (arguments.method == Method::Perf).then_some(arguments.hertz),
        pauses,
    };
    print(&folded, summary, arguments.json)?;
    match ended_by {
        Some(reason) => Err(AgentError::Refused(reason).into()),
        None => Ok(()),
    }
}

/// Samples until the time is over or a sample fails; earlier samples are kept.
fn sample(
    method: Method,
    arguments: &StacksArguments,
    stop: &StopSignal,
    folded: &mut Folded,
) -> anyhow::Result<Pauses> {
    let end = Instant::now() + Duration::from_secs(arguments.seconds.into());
    let mut pauses: Vec<Pause> = Vec::new();
    loop {
        let next = Instant::now() + Duration::from_secs_f64(1.0 / PAUSES_PER_SECOND);
        let mut command = debugger(method, arguments.pid);
        match pause::sample(&mut command, arguments.pid, arguments.max_pause, stop, folded) {
            Ok(pause) => pauses.push(pause),
            Err(error) => return Ok(Pauses::of(&pauses, Some(format!("{error:#}")))),
        }
        if pauses.last().is_some_and(|pause| pause.process > arguments.max_pause) {
            let reason = format!("a pause of more than {} ms (--max-pause)", arguments.max_pause.as_millis());
            return Ok(Pauses::of(&pauses, Some(reason)));
        }
        if next >= end || stop.is_set() {
            return Ok(Pauses::of(&pauses, None));
        }
        while Instant::now() < next && !stop.is_set() {
            sleep(Duration::from_millis(20));
        }
    }
}

fn debugger(method: Method, pid: u32) -> Command {
    let (program, _) = method.program();
    let mut command = Command::new(program);
    // Only local symbols: no debuginfod server is asked.
    command.env_remove("DEBUGINFOD_URLS");
    if method == Method::Gdb {
        // No start-up file and no script of the process's libraries; values of arguments may be user data.
        command.args(["--batch", "-nx", "-iex", "set auto-load no", "-iex", "set debuginfod enabled off"]);
        command.args(["-iex", "set print frame-arguments none", "-p", &pid.to_string()]);
        command.args(["-ex", "thread apply all bt 100"]);
    } else {
        command.args(["-n", "100", "-p", &pid.to_string()]);
    }
    command
}

fn print(folded: &Folded, summary: Summary, as_json: bool) -> anyhow::Result<()> {
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    for (frames, &count) in &folded.counts {
        if as_json {
            serde_json::to_writer(&mut stdout, &Line::Stack { frames, count })?;
            stdout.write_all(b"\n")?;
        } else {
            writeln!(stdout, "{frames} {count}")?;
        }
    }
    let line = serde_json::to_string(&Line::End(summary))?;
    if as_json {
        writeln!(stdout, "{line}")?;
    } else {
        eprintln!("{line}");
    }
    Ok(stdout.flush()?)
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A private temporary directory, removed on drop; other users must not read the stacks of a whole machine.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("headrace-stacks-{}", std::process::id()));
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Args)]
pub struct FlamegraphArguments {
    #[arg(long, default_value = "Where the time goes")]
    title: String,
    /// A second line [default: how many samples]
    #[arg(long)]
    subtitle: Option<String>,
    /// Width in pixels [default: that of the window]
    #[arg(long)]
    width: Option<usize>,
}

/// Folded stacks on standard input, an SVG on standard output: kernel orange, C++ yellow, all else red.
pub fn draw(arguments: &FlamegraphArguments) -> anyhow::Result<()> {
    let mut folded = String::new();
    std::io::stdin().lock().read_to_string(&mut folded).context("the folded stacks are not UTF-8")?;
    let mut stdout = std::io::BufWriter::new(std::io::stdout().lock());
    draw_into(arguments, &folded, &mut stdout)?;
    Ok(stdout.flush()?)
}

fn draw_into(arguments: &FlamegraphArguments, folded: &str, into: &mut impl Write) -> anyhow::Result<()> {
    let mut samples = 0_u64;
    for (number, line) in folded.lines().enumerate() {
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        let count =
            count.ok_or_else(|| AgentError::Input(format!("line {} is no folded stack", number + 1)))?;
        samples += count;
    }
    if samples == 0 {
        return Err(AgentError::Input("no stacks on standard input".to_owned()).into());
    }
    let clean_line: String =
        folded.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect();
    let mut drawing = Drawing::default();
    drawing.title = fold::clean(&arguments.title);
    drawing.subtitle = Some(arguments.subtitle.as_deref().map_or(format!("{samples} samples"), fold::clean));
    drawing.colors = Palette::Multi(MultiPalette::Java);
    drawing.deterministic = true;
    drawing.image_width = arguments.width;
    from_reader(&mut drawing, clean_line.as_bytes(), into).context("cannot draw these stacks")
}

#[cfg(test)]
mod tests {
    use super::{FlamegraphArguments, Pause, Pauses, draw_into};
    use std::time::Duration;

    fn drawn(folded: &str) -> anyhow::Result<String> {
        let arguments = FlamegraphArguments { title: "a <b>".to_owned(), subtitle: None, width: Some(800) };
        let mut svg = Vec::new();
        draw_into(&arguments, folded, &mut svg)?;
        Ok(String::from_utf8(svg)?)
    }

    #[test]
    fn hostile_names_stay_text() {
        let svg = drawn("a;</title><script>alert(1)</script>;\"'&]]>\u{1} 3\na;read_[k] 2\n").unwrap();
        assert!(!svg.contains("<script>alert") && !svg.contains('\u{1}'), "{svg}");
        assert!(svg.contains("&lt;script&gt;alert(1)") && svg.contains("5 samples"));
        assert!(svg.contains("a &lt;b&gt;"));
    }

    #[test]
    fn what_is_no_stack_is_refused() {
        assert!(drawn("a;b\n").unwrap_err().to_string().contains("line 1"));
        assert!(drawn("").unwrap_err().to_string().contains("no stacks"));
    }

    #[test]
    fn pauses_are_summed_up() {
        let pause = |ms| Pause { thread: Duration::from_millis(ms / 2), process: Duration::from_millis(ms) };
        let pauses = Pauses::of(&[pause(30), pause(10), pause(20)], None);
        assert_eq!(
            (pauses.count, pauses.median_ms, pauses.max_ms, pauses.thread_max_ms),
            (3, 20.0, 30.0, 15.0)
        );
        assert_eq!(Pauses::of(&[], None).count, 0);
    }
}
