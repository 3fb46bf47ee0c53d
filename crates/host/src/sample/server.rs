//! The server's samplers run in their own thread with one connection: a stalled server causes gaps only in its own
//! samples.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::rest::Rest;
use super::sampler::{Kind, Missed, Source};
use super::session::{ServerSample, Session, Trouble};
use super::ticker::{Ticker, elapsed_ns, now_ns};
use super::values::{Values, write_failure};
use crate::server::patience::Patience;
use crate::server::query::{is_the_last, open_session};
use base::output::Output;
use base::stop::StopSignal;
use mysql::{CONNECT_TIMEOUT, Error, Options};

pub const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// Pauses between attempts to connect: 1, 2, 4 ... seconds, up to this.
const LONGEST_REST: Duration = Duration::from_secs(30);
/// After a stop signal, how long to wait for a server that does not answer.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// The sampling thread.
pub struct ServerLoop {
    result: Receiver<anyhow::Result<()>>,
    stop: StopSignal,
}

/// How the server is asked.
pub struct Asking {
    /// How often samplers are left out.
    pub rest: fn(Duration) -> Rest,
    pub is_thorough: bool,
    pub missed: Missed,
    pub interval: Duration,
    /// What its lines are written with.
    pub values: fn() -> Values,
}

/// Starts to sample the server; lines go to `output` as they come.
pub fn spawn(
    options: Options,
    kinds: &[&'static Kind],
    asking: Asking,
    ticker: Ticker,
    stop: StopSignal,
    output: Arc<Output>,
) -> anyhow::Result<ServerLoop> {
    let mut server = Server {
        options,
        patience: Patience::of(asking.interval, stop.clone()),
        is_thorough: asking.is_thorough,
        missed: asking.missed,
        samplers: kinds
            .iter()
            .filter_map(|kind| match kind.source {
                Source::Server(sample) => {
                    Some(Sampler { name: kind.name, sample, rest: (asking.rest)(kind.every) })
                }
                Source::Host(_) => None,
            })
            .collect(),
        session: None,
        gives_back: false,
        rest: Duration::ZERO,
        rests_until: None,
    };
    let (sender, result) = channel();
    std::thread::Builder::new()
        .name("server".to_owned())
        .spawn(move || {
            // The receiver is gone if the end did not wait for this thread.
            let _ = sender.send(server.run((asking.values)(), ticker, &output));
        })
        .context("cannot start the thread for the server")?;
    Ok(ServerLoop { result, stop })
}

impl ServerLoop {
    /// Waits for the last tick. A server that does not answer is given up after its time limit, or soon after a
    /// stop signal.
    pub fn finish(self) -> anyhow::Result<()> {
        let mut end = Instant::now() + CONNECT_TIMEOUT + READ_TIMEOUT;
        let mut is_stopping = false;
        loop {
            match self.result.recv_timeout(Duration::from_millis(50)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => bail!("the thread for the server ended unexpectedly"),
                Err(RecvTimeoutError::Timeout) if Instant::now() >= end => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if !is_stopping && self.stop.is_set() {
                is_stopping = true;
                end = end.min(Instant::now() + STOP_WAIT);
            }
        }
    }
}

struct Sampler {
    name: &'static str,
    sample: ServerSample,
    rest: Rest,
}

struct Server {
    options: Options,
    patience: Patience,
    is_thorough: bool,
    missed: Missed,
    samplers: Vec<Sampler>,
    session: Option<Session>,
    /// The session is the last connection that the server has: it is closed after each tick.
    gives_back: bool,
    rest: Duration,
    rests_until: Option<Instant>,
}

impl Server {
    /// Samples until the last tick. Fails only if the output does.
    fn run(&mut self, mut values: Values, mut ticker: Ticker, output: &Output) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        loop {
            lines.clear();
            self.tick(&mut values, &mut lines, ticker.is_last());
            output.write(&lines)?;
            if !ticker.wait()? {
                return Ok(());
            }
        }
    }

    /// Appends a line for each sampler; none during the pause after a failed attempt to connect.
    fn tick(&mut self, values: &mut Values, lines: &mut Vec<u8>, is_last: bool) {
        let start = Instant::now();
        if self.rests_until.is_some_and(|end| start < end) {
            return;
        }
        let time_ns = now_ns();
        if self.session.is_none() {
            let opened = self.patience.open(|| open_session(&self.options)).and_then(|mut connection| {
                let gives_back = is_the_last(&mut connection)?;
                Ok((connection, gives_back))
            });
            match opened {
                Ok((connection, gives_back)) => {
                    self.gives_back = gives_back;
                    self.session = Some(Session::new(connection, self.is_thorough));
                    // A new server may have sources that the old one lacked.
                    self.samplers.iter_mut().for_each(|sampler| sampler.rest.end());
                    (self.rest, self.rests_until) = (Duration::ZERO, None);
                }
                Err(error) => {
                    self.rest = (2 * self.rest).clamp(Duration::from_secs(1), LONGEST_REST);
                    self.rests_until = Some(Instant::now() + self.rest);
                    let message = format!("{error}; tried again in {} s", self.rest.as_secs());
                    self.fail_all(lines, time_ns, elapsed_ns(start), &message);
                    return;
                }
            }
        }
        self.sample_all(values, lines, is_last);
        if self.gives_back {
            self.session = None;
        }
    }

    fn sample_all(&mut self, values: &mut Values, lines: &mut Vec<u8>, is_last: bool) {
        let mut broken = None;
        for sampler in &mut self.samplers {
            let name = sampler.name;
            let start = Instant::now();
            if sampler.rest.is_on(start, is_last) {
                if sampler.rest.is_spared(start) {
                    self.missed.spare(name);
                }
                continue;
            }
            let time_ns = now_ns();
            let Some(session) = &mut self.session else {
                write_failure(lines, name, time_ns, 0, broken.as_deref().unwrap_or_default());
                continue;
            };
            let result = (sampler.sample)(session, values);
            let cost_ns = elapsed_ns(start);
            sampler.rest.after_sample(start, cost_ns);
            match result {
                Ok(()) => values.write_line(lines, name, time_ns, cost_ns),
                Err(Trouble::Absent(message)) => {
                    values.clear();
                    let message = sampler.rest.after_absence(start, &message);
                    write_failure(lines, name, time_ns, cost_ns, &message);
                }
                Err(Trouble::Server(error)) => {
                    values.clear();
                    write_failure(lines, name, time_ns, cost_ns, &error.to_string());
                    // What the server itself refuses leaves the connection whole; after anything else the
                    // next tick reconnects.
                    if !matches!(error, Error::Server { .. }) {
                        broken = Some(error.to_string());
                        self.session = None;
                    }
                }
            }
        }
    }

    fn fail_all(&self, lines: &mut Vec<u8>, time_ns: u64, cost_ns: u64, message: &str) {
        for sampler in &self.samplers {
            write_failure(lines, sampler.name, time_ns, cost_ns, message);
        }
    }
}
