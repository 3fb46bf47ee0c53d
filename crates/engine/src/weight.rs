//! How much of a busy CPU a thread of the driver may have.

use rustix::process::{getpriority_process, setpriority_process};

const HIGHEST: i32 = -10;

/// Raises the calling thread's priority (its nice value), unless it was started with one.
///
/// A thread that acts for many clients competes with as many threads of the server, and the scheduler gives each the same
/// share. The driver then runs too rarely, and the server waits for requests. Needs CAP_SYS_NICE; without it nothing
/// changes.
pub fn take_weight(clients: usize) {
    if getpriority_process(None) == Ok(0) {
        let _ = setpriority_process(None, nice(clients));
    }
}

/// Each step is worth a quarter more. The share grows more slowly than the number of clients: a thread that runs as soon as
/// one reply is there cannot handle several at once.
fn nice(clients: usize) -> i32 {
    (2 - 2 * clients.max(1).ilog2().cast_signed()).clamp(HIGHEST, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_clients_more_weight() {
        let of = |clients| nice(clients);
        assert_eq!([0, 1, 2, 4, 8, 16, 32, 64, 100_000].map(of), [0, 0, 0, -2, -4, -6, -8, -10, -10]);
    }
}
