//! All that the journal's code asks of the machine: files, locks, clocks, pauses, mounts, a session on a server, the
//! start of the watcher.
//!
//! It is the standard library and nothing more. In this crate's own tests a `model` can take its place: then the same
//! code is killed at every call, is refused every call, and sees its machine rebooted in microseconds.

#[cfg(test)]
pub mod model;
mod real;

#[cfg(not(test))]
pub use real::{
    Connection, Held, can_reconfigure, dress, fs, hold_folder, lock, open_to_readers, reconfigure, remount,
    since_boot, since_epoch, sleep, start, succeeds, warn,
};

#[cfg(test)]
pub use model::{
    Connection, Held, can_reconfigure, dress, fs, hold_folder, lock, open_to_readers, reconfigure, remount,
    since_boot, since_epoch, sleep, start, succeeds, warn,
};
