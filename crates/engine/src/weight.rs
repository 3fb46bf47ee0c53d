//! How much of a busy CPU a thread of the driver may have.

use rustix::process::{getpriority_process, setpriority_process};

const HIGHEST: i32 = -10;

/// A thread that acts for many clients competes with as many threads of the server, and the scheduler gives each the same
/// share. The thread then runs too rarely, and the server waits for requests; a program with a thread for each client
/// would have as many shares as the server. So it asks for more, by its nice value, unless it was given one.
///
/// This needs CAP_SYS_NICE; without it nothing changes.
pub fn take_weight(clients: usize) {
    if getpriority_process(None) == Ok(0) {
        let _ = setpriority_process(None, nice(clients));
    }
}

/// Each step is worth a quarter more. The share grows more slowly than the number of clients: a thread that runs at once for
/// each reply handles one where it could have handled several.
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
