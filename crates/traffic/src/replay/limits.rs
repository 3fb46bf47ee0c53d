//! What a recording asks of the server and of this process, before thousands of sessions find out.

use mysql::Connection;
use rustix::process::{Resource, getrlimit};

use crate::recording::Info;

/// Open files of this process beside its connections, generously.
const OWN_FILES: u64 = 64;

/// What the recorders of a recording counted; None where one of them was killed, or did not count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// At once, at most.
    pub connections: Option<u64>,
    pub longest_bytes: Option<u64>,
}

impl Asked {
    /// `copies` of each session.
    pub fn of(infos: &[Info], copies: u32) -> Self {
        let totals = || infos.iter().map(|info| info.totals.as_ref());
        let connections: Option<u64> = totals().map(|totals| totals?.most_sessions).sum();
        Self {
            connections: connections.map(|connections| connections.saturating_mul(copies.into())),
            longest_bytes: totals().map(|totals| totals?.longest_bytes).max().flatten(),
        }
    }
}

/// What there is.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Of the server, in bytes.
    pub max_allowed_packet: u64,
    max_connections: u64,
    /// Of the account; 0 for no limit.
    max_user_connections: u64,
    /// Without the one that asks.
    connected: u64,
    open_files: u64,
}

impl Limits {
    pub fn ask(connection: &mut Connection) -> Result<Self, mysql::Error> {
        let mut limits = Self {
            max_allowed_packet: u64::MAX,
            max_connections: u64::MAX,
            max_user_connections: 0,
            connected: 0,
            open_files: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        };
        let number = |text: Option<&[u8]>| std::str::from_utf8(text?).ok()?.parse::<u64>().ok();
        let variables =
            "SELECT @@global.max_allowed_packet, @@global.max_connections, @@session.max_user_connections";
        connection.query(variables, |_, row| {
            limits.max_allowed_packet = number(row.get(0)).unwrap_or(u64::MAX);
            limits.max_connections = number(row.get(1)).unwrap_or(u64::MAX);
            limits.max_user_connections = number(row.get(2)).unwrap_or(0);
        })?;
        connection.query("SHOW GLOBAL STATUS LIKE 'Threads_connected'", |_, row| {
            limits.connected = number(row.get(1)).unwrap_or(0).saturating_sub(1);
        })?;
        Ok(limits)
    }

    /// What will not fit, and what raises the limit.
    pub fn doubts(&self, asked: Asked) -> Vec<String> {
        let mut doubts = Vec::new();
        let wanted = asked.connections.unwrap_or(0);
        let free = self.max_connections.saturating_sub(self.connected);
        let so_many = format!("the recording may need {wanted} connections at once, and");
        if wanted > free {
            doubts.push(format!(
                "{so_many} this server has {free} left (max_connections = {}): statements of sessions that cannot \
                 connect for 10 s fail. SET GLOBAL max_connections = {}",
                self.max_connections,
                wanted + self.connected + 1,
            ));
        }
        if self.max_user_connections > 0 && wanted > self.max_user_connections {
            doubts.push(format!(
                "{so_many} this account may have {} (max_user_connections)",
                self.max_user_connections
            ));
        }
        if wanted.saturating_add(OWN_FILES) > self.open_files {
            doubts.push(format!(
                "{so_many} this process may open {} files: ulimit -n {}",
                self.open_files,
                wanted + OWN_FILES
            ));
        }
        let longest = asked.longest_bytes.unwrap_or(0);
        if longest >= self.max_allowed_packet {
            doubts.push(format!(
                "statements of the recording have up to {longest} bytes, and this server takes {} \
                 (max_allowed_packet): longer ones are not sent. SET GLOBAL max_allowed_packet = {}",
                self.max_allowed_packet,
                // Servers round it down to whole KiB.
                (longest + 1).next_multiple_of(1024),
            ));
        }
        doubts
    }
}

#[cfg(test)]
mod tests {
    use super::{Asked, Limits};
    use crate::recording::{Info, Totals};

    const LIMITS: Limits = Limits {
        max_allowed_packet: 16 << 20,
        max_connections: 151,
        max_user_connections: 0,
        connected: 3,
        open_files: 1024,
    };

    #[test]
    fn what_does_not_fit_is_said_before_the_start() {
        let doubts =
            |connections, longest_bytes, limits: Limits| limits.doubts(Asked { connections, longest_bytes });
        assert!(doubts(Some(148), Some((16 << 20) - 1), LIMITS).is_empty());
        assert!(doubts(None, None, LIMITS).is_empty());
        for (found, words) in [
            (doubts(Some(149), None, LIMITS), "max_connections = 153"),
            (doubts(Some(11), None, Limits { max_user_connections: 10, ..LIMITS }), "may have 10"),
            (doubts(Some(100), None, Limits { open_files: 163, ..LIMITS }), "ulimit -n 164"),
            (doubts(None, Some(16 << 20), LIMITS), "max_allowed_packet = 16778240"),
        ] {
            assert!(found.len() == 1 && found[0].contains(words), "{found:?}");
        }
    }

    #[test]
    fn segments_add_up_and_one_that_says_nothing_leaves_it_unknown() {
        let info = |most_sessions, longest_bytes| Info {
            totals: Some(Totals { most_sessions, longest_bytes, ..Totals::default() }),
            ..Info::default()
        };
        let infos = [info(Some(3), Some(10)), info(Some(4), Some(7))];
        assert_eq!(Asked::of(&infos, 2), Asked { connections: Some(14), longest_bytes: Some(10) });
        let unknown = [info(Some(3), Some(10)), Info::default()];
        assert_eq!(Asked::of(&unknown, 1).connections, None);
    }
}
