//! What every crate uses: errors, output, stop signals, leases, clocks, durations, histograms.

pub mod clock;
pub mod door;
pub mod duration;
pub mod error;
pub mod histogram;
pub mod lease;
pub mod output;
pub mod stop;
