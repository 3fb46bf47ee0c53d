//! Threads with a connection each that share jobs and end together: when all jobs are done, when one fails, or when
//! the process is asked to stop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;

use base::stop::StopSignal;
use mysql::{Closer, Connection, Options};

const TICK: Duration = Duration::from_millis(100);
/// How long a running statement may still take at the end; then the server is told to kill it.
const GRACE: Duration = Duration::from_secs(2);

/// How the work of a pool ended, when no job failed.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    Whole,
    /// The process was asked to stop.
    Stopped,
}

pub struct WorkerPool<'a> {
    options: &'a Options,
    size: usize,
    stop: &'a StopSignal,
    is_over: AtomicBool,
    workers: Mutex<Vec<(u64, Closer)>>,
}

impl<'a> WorkerPool<'a> {
    pub fn new(options: &'a Options, size: usize, stop: &'a StopSignal) -> Self {
        Self { options, size, stop, is_over: AtomicBool::new(false), workers: Mutex::default() }
    }

    /// Whether a long job should end where it is.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Does the jobs 0..`count` in this order, each on one of the connections; `on_tick` is called ten times per
    /// second. Returns the error of the first job that failed; the others then end early.
    pub fn work(
        &self,
        count: usize,
        job: &(dyn Fn(&mut Connection, usize) -> anyhow::Result<()> + Sync),
        mut on_tick: impl FnMut(),
    ) -> anyhow::Result<Ended> {
        let next = AtomicUsize::new(0);
        let mut failure = None;
        let mut is_stopped = false;
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.size.min(count) {
                let (sender, next) = (sender.clone(), &next);
                scope.spawn(move || {
                    let result = self.worker(count, next, job);
                    // The receiver lives until all senders are gone.
                    let _ = sender.send(result);
                });
            }
            drop(sender);
            let mut over_since = None;
            loop {
                match receiver.recv_timeout(TICK) {
                    Ok(Err(error)) if !is_stopped => _ = failure.get_or_insert(error),
                    Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                on_tick();
                is_stopped |= failure.is_none() && self.stop.is_set();
                if is_stopped || failure.is_some() {
                    self.is_over.store(true, Relaxed);
                    if over_since.get_or_insert_with(Instant::now).elapsed() > GRACE {
                        self.cancel();
                    }
                }
            }
        });
        match failure {
            Some(error) => Err(error),
            None if is_stopped => Ok(Ended::Stopped),
            None => Ok(Ended::Whole),
        }
    }

    fn worker(
        &self,
        count: usize,
        next: &AtomicUsize,
        job: &(dyn Fn(&mut Connection, usize) -> anyhow::Result<()> + Sync),
    ) -> anyhow::Result<()> {
        let mut connection = Connection::open_for_bulk(self.options)?;
        self.enrol(&mut connection)?;
        while !self.is_over() {
            let number = next.fetch_add(1, Relaxed);
            if number >= count {
                break;
            }
            job(&mut connection, number)?;
        }
        Ok(())
    }

    /// Notes how to cancel this connection's work.
    fn enrol(&self, connection: &mut Connection) -> anyhow::Result<()> {
        let mut id = None;
        connection.query("SELECT CONNECTION_ID()", |_, row| {
            id = row.get(0).and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
        })?;
        let id = id.context("the server gave its connection no number")?;
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push((id, connection.closer()?));
        Ok(())
    }

    /// A server notices a closed connection only when the statement ends, so the statement is killed first. A server
    /// that accepts no connection must not block us.
    fn cancel(&self) {
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        if workers.is_empty() {
            return;
        }
        if let Ok(mut connection) = Connection::open(self.options) {
            for (id, _) in &workers {
                // The number of a finished connection no longer exists.
                let _ = connection.execute(&format!("KILL {id}"));
            }
        }
        for (_, closer) in &workers {
            closer.close();
        }
    }
}
