//! Many connections on one thread, for any protocol: when operations start, how they end, what was measured.

pub mod arrivals;
pub mod client;
mod engine;
pub mod keys;
pub mod lines;
pub mod needs;
pub mod net;
pub mod recorder;
mod schedule;
pub mod stopping;
pub mod usage;
mod weight;

pub use engine::dynamic::WorkSource;
pub use engine::{Engine, EngineConfig, Outcome};
pub use schedule::Schedule;
