//! A server without a free connection is asked again for a while: another reader that looks in step with us may have
//! the last one whenever we come.

use std::time::Duration;

use base::stop::StopSignal;
use mysql::Error;

/// ER_CON_COUNT_ERROR, ER_TOO_MANY_USER_CONNECTIONS. Not a limit per hour, which each attempt counts against.
const NO_ROOM: [u16; 2] = [1040, 1203];
/// Longer than a reading that gives its connection back. Each pause is twice the one before it.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

const LONGEST: Duration = Duration::from_secs(1);

pub struct Patience {
    most: Duration,
    stop: StopSignal,
    /// What the last `open` spent without asking the server anything.
    pub waited: Duration,
}

impl Patience {
    /// Of one that looks every `interval`: half of that at most, so that the next look is on time.
    pub fn of(interval: Duration, stop: StopSignal) -> Self {
        Self { most: LONGEST.min(interval / 2), stop, waited: Duration::ZERO }
    }

    pub fn open<T>(&mut self, mut open: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        self.waited = Duration::ZERO;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match open() {
                Err(error) if error.code().is_some_and(|code| NO_ROOM.contains(&code)) => error,
                result => return result,
            };
            if self.waited + pause > self.most || self.stop.is_set_within(pause) {
                return Err(error);
            }
            self.waited += pause;
            pause *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Patience;
    use base::stop::StopSignal;
    use mysql::Error;
    use std::io::Write;
    use std::time::{Duration, Instant};

    fn refusal(code: u16) -> Error {
        Error::Server { code, state: String::new(), message: String::new() }
    }

    #[test]
    fn a_connection_that_is_free_a_moment_later_is_had_in_the_same_look() {
        let (stop, _writer) = StopSignal::pair();
        let mut patience = Patience::of(Duration::from_secs(2), stop);
        let mut tries = 0;
        let opened = patience.open(|| {
            tries += 1;
            if tries < 3 { Err(refusal(1040)) } else { Ok(tries) }
        });
        assert_eq!(opened.unwrap(), 3);
        assert_eq!(patience.waited, Duration::from_millis(20 + 40));
        assert_eq!(patience.open(|| Ok(1)).unwrap(), 1);
        assert_eq!(patience.waited, Duration::ZERO);
    }

    #[test]
    fn it_ends_within_half_the_interval_and_asks_seldom() {
        let (stop, _writer) = StopSignal::pair();
        let mut patience = Patience::of(Duration::from_millis(400), stop);
        let mut tries = 0;
        let opened = patience.open(|| {
            tries += 1;
            Err::<(), _>(refusal(1203))
        });
        assert_eq!(opened.unwrap_err().code(), Some(1203));
        assert_eq!((tries, patience.waited), (4, Duration::from_millis(20 + 40 + 80)));
    }

    #[test]
    fn another_refusal_is_told_at_once() {
        let (stop, _writer) = StopSignal::pair();
        for code in [1045, 1226] {
            let mut tries = 0;
            let opened = Patience::of(Duration::from_secs(60), stop.clone()).open(|| {
                tries += 1;
                Err::<(), _>(refusal(code))
            });
            assert_eq!((opened.unwrap_err().code(), tries), (Some(code), 1));
        }
    }

    #[test]
    fn a_stop_ends_it() {
        let (stop, mut writer) = StopSignal::pair();
        writer.write_all(b"x").unwrap();
        let start = Instant::now();
        let opened = Patience::of(Duration::from_secs(3600), stop).open(|| Err::<(), _>(refusal(1040)));
        assert!(opened.is_err());
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
