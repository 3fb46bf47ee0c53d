//! When a trial begins, is measured and ends.

/// The instants of a trial, in ns of the driver's clock.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub start_ns: u64,
    pub window_start_ns: u64,
    /// No operation starts from here on.
    pub end_ns: u64,
}
