//! The threads of a replay: one reads, the others play, and the one that began it writes what they found.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use anyhow::{anyhow, bail};
use mysql_common::constants::CapabilityFlags;

use super::accounts::Accounts;
use super::answers::{AnswerWriter, RecordedAnswers};
use super::classes::{Class, OPERATIONS};
use super::dispatch::{Channel, Counts, Dispatch, Events, Plan};
use super::order::Order;
use super::queue::{Budget, Delivery, Inbox, Item, Opening, Progress, Request};
use super::rate::{Probe, request_cost_ns};
use super::refusals::Halt;
use super::results::{Results, Verdict};
use super::session::{Session, Shared};
use super::stats::ReplayStats;
use super::timeline::Speed;
use crate::numbers::Numbers;
use base::clock::{epoch_offset_ns, now_ns};
use base::error::AgentError;
use base::output::Output;
use base::stop::StopSignal;
use engine::arrivals::Think;
use engine::lines::{Lines, RECORDED, ThreadEnd, Title};
use engine::needs::{Needs, cores, is_here};
use engine::net::Address;
use engine::recorder::Second;
use engine::stopping::{StopsAtEnd, watch};
use engine::usage::Usage;
use engine::{Engine, EngineConfig, Schedule, WorkSource};

/// From the moment enough was read to the start: sessions that were open before the recording connect meanwhile.
const START_DELAY_NS: u64 = 200_000_000;
/// So much recorded time is read before the start, if there is room for it.
const READ_AHEAD_NS: u64 = 2_000_000_000;
const READ_CHECK: Duration = Duration::from_millis(1);
/// How often a thread looks for events where the reader has none ahead of it, and how long before it would run dry.
const HUNGRY_NS: u64 = 200_000;
const MARGIN_NS: u64 = 1_000_000;
/// An end far enough that nothing is beyond it.
const NO_END_NS: u64 = u64::MAX / 4;

/// A replay that is to be done.
pub struct Replay<'a> {
    pub plan: Plan,
    pub accounts: &'a Accounts,
    pub address: Address,
    pub threads: usize,
    pub warmup_ns: u64,
    /// After the warm-up; None: to the recording's end.
    pub duration_ns: Option<u64>,
    pub timeout_ns: u64,
    pub queue_bytes: usize,
    pub is_checked: bool,
    /// What answers are compared with, in place of the recorded ones.
    pub answers: Option<&'a RecordedAnswers>,
    pub answer_writer: Option<&'a AnswerWriter>,
    pub capabilities: CapabilityFlags,
    /// Of the server.
    pub max_allowed_packet: usize,
    /// What the server may refuse.
    pub doubts: Vec<String>,
    /// How long the replay is expected to take.
    pub planned_ns: u64,
    /// Events a second in the busiest second, and on average, where there is a schedule.
    pub rate: Option<(f64, f64)>,
    pub verdict: Verdict,
    pub shows_progress: bool,
}

enum Message {
    Second(Second),
    Ended(Box<ThreadEnd>, Box<ReplayStats>),
    Failed(anyhow::Error),
}

/// Plays and writes the lines to `output`, or to standard output.
pub fn run(
    replay: &Replay<'_>,
    events: &mut (impl Events + Send),
    output: Option<&Path>,
) -> anyhow::Result<()> {
    let stop_signal = StopSignal::install()?;
    let stop = AtomicBool::new(false);
    let output = Output::open(output)?;
    let budget = Budget::new(replay.queue_bytes);
    let inboxes: Vec<Inbox> = (0..replay.threads).map(|_| Inbox::default()).collect();
    let (progress, writes, closes) = (Progress::default(), Order::default(), Order::default());
    let halt = Halt::new(&stop);
    let stage = Stage {
        replay,
        budget: &budget,
        inboxes: &inboxes,
        progress: &progress,
        writes: &writes,
        closes: &closes,
        halt: &halt,
        stop: &stop,
    };
    std::thread::scope(|scope| {
        let stopping = StopsAtEnd(&stop);
        let watched = scope.spawn(|| watch(&stop_signal, &stop));
        let reader = scope.spawn(|| {
            let _ending = SaysItIsOver(stage.progress);
            Dispatch::new(&replay.plan, replay.accounts, stage.channel()).against(replay.answers).run(events)
        });
        let (sender, messages) = channel();
        let mut starts = Vec::new();
        for index in 0..replay.threads {
            let (start, on_start) = channel();
            starts.push(start);
            let (sender, stage) = (sender.clone(), &stage);
            scope.spawn(move || {
                let _panicking = StopsOnPanic(stage.stop);
                let ended = stage.play(index, &sender, &on_start);
                let _ = sender.send(ended.unwrap_or_else(Message::Failed));
            });
        }
        drop(sender);
        let read = || {
            let result =
                reader.join().map_err(|_| anyhow!("the thread that reads the recording panicked"))?;
            result as anyhow::Result<(Counts, Vec<Class>)>
        };
        let result = stage.conduct(&messages, starts, &output, read);
        drop(stopping);
        watched.join().map_err(|_| anyhow!("the thread that waits for signals panicked"))?;
        result
    })?;
    output.finish()?;
    // All lines are written: whoever reads them knows as much as whoever looks at the exit code.
    halt.refusal().map_or(Ok(()), |refusal| Err(AgentError::Unreachable(refusal.sentence()).into()))
}

/// Nobody may wait for a reader that is gone, also when it panicked.
struct SaysItIsOver<'a>(&'a Progress);

impl Drop for SaysItIsOver<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
    }
}

/// The reader and the other threads would wait for what a thread holds that panicked.
struct StopsOnPanic<'a>(&'a AtomicBool);

impl Drop for StopsOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// What all threads of a replay can see.
struct Stage<'a> {
    replay: &'a Replay<'a>,
    budget: &'a Budget,
    inboxes: &'a [Inbox],
    progress: &'a Progress,
    writes: &'a Order,
    closes: &'a Order,
    halt: &'a Halt<'a>,
    stop: &'a AtomicBool,
}

impl Stage<'_> {
    fn channel(&self) -> Channel<'_> {
        Channel {
            budget: self.budget,
            inboxes: self.inboxes,
            progress: self.progress,
            writes: self.writes,
            closes: self.closes,
            stop: self.stop,
        }
    }

    /// One thread's life: it waits for the start and plays its sessions.
    fn play(
        &self,
        index: usize,
        sender: &Sender<Message>,
        on_start: &Receiver<Schedule>,
    ) -> anyhow::Result<Message> {
        let replay = self.replay;
        let config = EngineConfig {
            address: replay.address.clone(),
            arrivals: None,
            is_assigned: true,
            think_ns: 0,
            think: Think::Constant,
            timeout_ns: replay.timeout_ns,
            retries: 0,
            operations: OPERATIONS.len(),
            seed: index as u64,
        };
        let engine: Engine<'_, Session<'_>> = Engine::new(config, std::iter::empty(), self.stop)?;
        let Ok(schedule) = on_start.recv() else { bail!("stopped before the start") };
        let shared = Rc::new(Shared {
            start_ns: schedule.start_ns,
            end_ns: replay.duration_ns.map_or(NO_END_NS, |length_ns| schedule.window_start_ns + length_ns),
            is_closed_loop: replay.plan.speed == Speed::Max,
            is_checked: replay.is_checked,
            answer_writer: replay.answer_writer,
            capabilities: replay.capabilities,
            max_allowed_packet: replay.max_allowed_packet,
            budget: self.budget,
            writes: self.writes,
            closes: self.closes,
            halt: self.halt,
            stats: RefCell::new(ReplayStats::default()),
        });
        let mut feeder = SessionFeeder {
            stage: self,
            inbox: &self.inboxes[index],
            shared: Rc::clone(&shared),
            seats: Numbers::default(),
            outside: Vec::new(),
            mail: Vec::new(),
        };
        let mut usage = Usage::begin();
        let outcome = engine.drive(schedule, &mut feeder, |second| {
            if second.number == -1 {
                usage = Usage::begin();
            }
            let _ = sender.send(Message::Second(second));
        });
        let stats = shared.stats.take();
        Ok(Message::Ended(Box::new(ThreadEnd::new(outcome, usage.end())), Box::new(stats)))
    }

    /// Waits until enough was read, agrees on the start, writes what the threads send.
    fn conduct(
        &self,
        messages: &Receiver<Message>,
        starts: Vec<Sender<Schedule>>,
        output: &Output,
        read: impl FnOnce() -> anyhow::Result<(Counts, Vec<Class>)>,
    ) -> anyhow::Result<()> {
        self.read_ahead();
        let replay = self.replay;
        let needs = replay.rate.map(|rate| self.needs(rate));
        let offset_ns = epoch_offset_ns();
        let start_ns = now_ns() + START_DELAY_NS;
        let window_start_ns = start_ns + replay.warmup_ns;
        let planned = Schedule { start_ns, window_start_ns, end_ns: start_ns + replay.planned_ns };
        let operations: Vec<String> = OPERATIONS.iter().map(|&name| name.to_owned()).collect();
        let title = Title {
            operations: &operations,
            threads: replay.threads,
            schedule: planned,
            offset_ns,
            connections: 0,
            pacing: RECORDED,
            has_faster_warmup: false,
            has_peak_before: false,
            needs,
            doubts: &replay.doubts,
        };
        let mut lines = Lines::begin(output, &title, replay.shows_progress)?;
        for start in starts {
            let _ = start.send(Schedule { end_ns: NO_END_NS, ..planned });
        }
        let mut results = Results::default();
        let mut running = replay.threads;
        while running > 0 {
            match messages.recv() {
                Ok(Message::Second(second)) => lines.add(second)?,
                Ok(Message::Ended(end, stats)) => {
                    results.add(&end, *stats);
                    lines.end_thread(*end);
                    running -= 1;
                }
                Ok(Message::Failed(error)) => return Err(error),
                Err(_) => bail!("a thread of the replay panicked"),
            }
        }
        let refusal = self.halt.refusal();
        let was_stopped = self.stop.load(Ordering::Relaxed) && refusal.is_none();
        // It may wait for room that is never made.
        self.stop.store(true, Ordering::Relaxed);
        let (counts, classes) = read()?;
        let (also, class_lines) = results.finish(&counts, &classes, self.budget, &replay.verdict, refusal);
        lines.finish(was_stopped, also)?;
        for line in class_lines {
            output.write(format!("{line}\n").as_bytes())?;
        }
        Ok(())
    }

    /// What the schedule needs of the cores: pings timed now, and what was read so far.
    fn needs(&self, (busiest_ops_s, mean_ops_s): (f64, f64)) -> Needs {
        let replay = self.replay;
        let probe = Probe {
            address: &replay.address,
            account: &replay.accounts.options[0],
            capabilities: replay.capabilities,
            max_allowed_packet: replay.max_allowed_packet,
        };
        let (events, cpu_ns) =
            (self.progress.events.load(Ordering::Relaxed), self.progress.cpu_ns.load(Ordering::Relaxed));
        Needs {
            busiest_ops_s,
            mean_ops_s,
            send_ns: request_cost_ns(&probe, self.stop),
            read_ns: cpu_ns as f64 / events.max(1) as f64,
            threads: replay.threads,
            cores: cores(),
            shares_with_server: is_here(&replay.address),
        }
    }

    fn read_ahead(&self) {
        while !self.progress.is_over.load(Ordering::Acquire)
            && !self.budget.is_half_full()
            && self.progress.read_until_ns.load(Ordering::Acquire) < READ_AHEAD_NS
            && !self.stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(READ_CHECK);
        }
    }
}

/// Brings a thread's sessions and their events from its inbox to its engine.
struct SessionFeeder<'a> {
    stage: &'a Stage<'a>,
    inbox: &'a Inbox,
    shared: Rc<Shared<'a>>,
    seats: Numbers<u32, Seat>,
    /// Those that may not come in yet.
    outside: Vec<u32>,
    mail: Vec<Delivery>,
}

enum Seat {
    Inside(usize),
    Outside(Box<Opening>, VecDeque<Box<Item>>),
}

impl<'a> WorkSource<Session<'a>> for SessionFeeder<'a> {
    fn feed(&mut self, engine: &mut Engine<'_, Session<'a>>, now: u64) -> u64 {
        let progress = self.stage.progress;
        let is_over = progress.is_over.load(Ordering::Acquire);
        let is_enough = now >= self.shared.end_ns;
        if is_enough {
            progress.is_enough.store(true, Ordering::Relaxed);
        }
        if self.inbox.take(&mut self.mail) {
            let mut mail = std::mem::take(&mut self.mail);
            for delivery in mail.drain(..) {
                match delivery {
                    // Places are not given away any more: who has left must not get another's events.
                    Delivery::Open(..) if is_enough => {}
                    Delivery::Event(_, item) if is_enough && !matches!(item.request, Request::Quit) => {
                        self.stage.budget.begun(&item);
                        self.stage.budget.give_back(&item);
                    }
                    Delivery::Open(key, opening) => self.open(engine, key, opening),
                    Delivery::Event(key, item) => self.give(engine, key, item, now),
                }
            }
            self.mail = mail;
        }
        if is_enough {
            for key in self.outside.drain(..) {
                self.seats.remove(&key);
            }
        }
        if !self.outside.is_empty() {
            self.let_in(engine, now);
            if !self.outside.is_empty() {
                return now + HUNGRY_NS;
            }
        }
        if is_over {
            if engine.client_count() == 0 {
                engine.end(if is_enough { self.shared.end_ns } else { 0 });
            }
            return u64::MAX;
        }
        if now < self.shared.start_ns {
            return self.shared.start_ns;
        }
        // What is due before the horizon is here already.
        let horizon = self.shared.start_ns + progress.read_until_ns.load(Ordering::Acquire);
        if horizon > now + 2 * MARGIN_NS { horizon - MARGIN_NS } else { now + HUNGRY_NS }
    }
}

impl<'a> SessionFeeder<'a> {
    fn open(&mut self, engine: &mut Engine<'_, Session<'a>>, key: u32, opening: Box<Opening>) {
        if self.stage.closes.allows(opening.step) {
            let place = self.enter(engine, key, *opening);
            self.seats.insert(key, Seat::Inside(place));
        } else {
            self.outside.push(key);
            self.seats.insert(key, Seat::Outside(opening, VecDeque::new()));
        }
    }

    fn enter(&mut self, engine: &mut Engine<'_, Session<'a>>, key: u32, opening: Opening) -> usize {
        let account = &self.stage.replay.accounts.options[opening.account];
        let database = opening.database.or_else(|| account.database.clone());
        let session = Session::new(Rc::clone(&self.shared), account, database, opening.state);
        let due_ns = self.shared.start_ns + opening.at_ns - opening.lead_ns;
        engine.enter(key as usize, session, due_ns)
    }

    fn give(&mut self, engine: &mut Engine<'_, Session<'a>>, key: u32, item: Box<Item>, now: u64) {
        match self.seats.get_mut(&key) {
            Some(Seat::Outside(_, items)) => items.push_back(item),
            Some(Seat::Inside(place)) => {
                let place = *place;
                // Nothing comes after it, and the place will be somebody else's.
                if matches!(item.request, Request::Quit) {
                    self.seats.remove(&key);
                }
                if engine.client(place).push(item) {
                    engine.wake(place, now);
                }
            }
            None => {}
        }
    }

    fn let_in(&mut self, engine: &mut Engine<'_, Session<'a>>, now: u64) {
        for key in std::mem::take(&mut self.outside) {
            match self.seats.remove(&key) {
                Some(Seat::Outside(opening, items)) if self.stage.closes.allows(opening.step) => {
                    let place = self.enter(engine, key, *opening);
                    self.seats.insert(key, Seat::Inside(place));
                    for item in items {
                        self.give(engine, key, item, now);
                    }
                }
                Some(seat) => {
                    self.seats.insert(key, seat);
                    self.outside.push(key);
                }
                None => {}
            }
        }
    }
}
