//! What every crate uses: errors, output, stop signals, clocks, durations, histograms.

pub mod clock;
pub mod duration;
pub mod error;
pub mod histogram;
pub mod output;
pub mod stop;
