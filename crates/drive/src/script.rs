//! What a MySQL workload is to the driver: statements, operations, and one script a connection.

pub use engine::client::{Choice, Random};

use crate::reply::Reply;
use mysql::request::{Requests, Statement};

/// A workload on a MySQL server, shared by all threads.
pub trait Workload: Send + Sync {
    /// The names of the operations: what is counted and has a latency.
    fn operations(&self) -> &[String];

    /// What every connection prepares before it works; requests name statements by their place here.
    fn statements(&self) -> &[Statement];

    /// Whether the statements are prepared; otherwise all goes as text.
    fn is_prepared(&self) -> bool {
        true
    }

    /// Whether an error of this code is a lost race in this workload, besides those that always are.
    fn may_lose_race(&self, _code: u16) -> bool {
        false
    }

    /// The script of one connection. `client` counts over all connections of all driver processes of the trial,
    /// from 0; `clients` is how many there are.
    fn script(&self, client: usize, clients: usize) -> Box<dyn Script>;
}

/// One connection's part: which operation comes next, and which requests it is made of.
///
/// The driver keeps the time, records, and deals with errors: after one it sends ROLLBACK where a transaction
/// is open, and begins the same operation anew when the error is a lost race (deadlock, lock wait, changed row).
pub trait Script: Send {
    /// Chooses the next operation.
    fn choose(&mut self, random: &mut Random) -> Choice;

    /// Writes the next request of the chosen operation. `reply` is that to the last one, None at the beginning,
    /// also when the operation is begun anew.
    fn step(&mut self, reply: Option<&Reply<'_>>, requests: &mut Requests<'_>, random: &mut Random) -> Step;
}

/// What `Script::step` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A request was written; the next call brings its reply.
    Wait,
    /// The operation has ended well; nothing was written.
    Done,
    /// The reply makes no sense to the script (a row that must exist is missing): the operation has failed.
    Failed(&'static str),
}
