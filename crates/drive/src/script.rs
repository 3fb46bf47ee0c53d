//! A MySQL workload as the driver sees it: statements, operations, and one script per connection.

pub use engine::client::{Choice, Random};

use crate::reply::Reply;
use mysql::request::{Requests, Statement};

/// A workload on a MySQL server, shared by all threads.
pub trait Workload: Send + Sync {
    /// The names of the operations: what is counted and has a latency.
    fn operations(&self) -> &[String];

    /// What every connection prepares first; requests refer to statements by their index here.
    fn statements(&self) -> &[Statement];

    /// Whether the statements are prepared; otherwise everything is sent as text.
    fn is_prepared(&self) -> bool {
        true
    }

    /// Requests of an operation, on average over the mix.
    fn requests(&self) -> f64;

    /// Whether an error of this code is a lost race in this workload, in addition to those that always are.
    fn may_lose_race(&self, _code: u16) -> bool {
        false
    }

    /// The script of one connection. `client` counts over all connections of all driver processes of the trial,
    /// from 0; `clients` is how many there are.
    fn script(&self, client: usize, clients: usize) -> Box<dyn Script>;
}

/// One connection's part: the next operation, and its requests.
///
/// The driver keeps the time, records, and handles errors: after an error it sends ROLLBACK if a transaction
/// is open, and restarts the same operation if the error is a lost race (deadlock, lock wait, changed row).
pub trait Script: Send {
    /// Chooses the next operation.
    fn choose(&mut self, random: &mut Random) -> Choice;

    /// Writes the next request of the chosen operation. `reply` answers the last one; None at the start and
    /// after a restart.
    fn step(&mut self, reply: Option<&Reply<'_>>, requests: &mut Requests<'_>, random: &mut Random) -> Step;
}

/// The result of `Script::step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request was written; the next call gets its reply.
    Wait,
    /// The operation succeeded; nothing was written.
    Done,
    /// The script did not expect this reply (a row that must exist is missing): the operation failed.
    Failed(&'static str),
}
