//! KILL in a replay: a recorded number of a connection becomes that of the connection that plays its session here, and
//! a KILL that cannot be mapped is left out. Nothing of it reaches the server as it was recorded: there its number is a
//! stranger's.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use serde_json::{Map, Value, json};
use sql::{Ending, Kill};

use crate::commands::PROCESS_KILL;
use crate::event::{Command, Event, Outcome};
use base::clock::now_ns;

/// Errors of a statement that a KILL ended: ER_QUERY_INTERRUPTED, MariaDB's ER_CONNECTION_KILLED, MySQL's
/// ER_SESSION_WAS_KILLED.
const INTERRUPTED: [u16; 3] = [1317, 1927, 3169];
/// A KILL's own error where its connection is gone: ER_NO_SUCH_THREAD.
pub const NO_SUCH_THREAD: u16 = 1094;

/// Whether an error is that of a statement that a KILL ended.
pub fn is_interrupted(code: u16) -> bool {
    INTERRUPTED.contains(&code)
}

/// Why a KILL is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftOut {
    /// KILL USER.
    User,
    /// KILL QUERY ID.
    QueryId,
    /// Its number is computed, or not recorded.
    Expression,
    /// It is part of something larger, or is prepared.
    Among,
    /// It may be in a text that is run from a variable.
    Variable,
    /// No session of the recording is known to have this connection at that moment.
    NotOpen,
    /// It failed when it was recorded.
    Failed,
    /// The session has no connection here at that moment.
    NotConnected,
    /// The statement that it was meant for had ended here.
    Over,
}

const REASONS: [&str; 9] =
    ["user", "query_id", "expression", "among", "variable", "not_open", "failed", "not_connected", "over"];

/// What a replay that was to be like the recording lacks.
const UNMAPPED: [(LeftOut, &str); 6] = [
    (LeftOut::NotOpen, "for connections that no session of the recording is known to have then"),
    (LeftOut::Among, "within other statements or prepared"),
    (LeftOut::Expression, "whose number is an expression or not recorded"),
    (LeftOut::Variable, "possibly in a variable that is run"),
    (LeftOut::User, "of a user"),
    (LeftOut::QueryId, "of a query's number"),
];

/// KILLs by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kills {
    pub sent: u64,
    left_out: [u64; REASONS.len()],
    /// SHUTDOWN and RESTART.
    pub servers: u64,
}

impl Kills {
    pub fn leave_out(&mut self, reason: LeftOut) {
        self.left_out[reason as usize] += 1;
    }

    pub fn left_out(&self) -> u64 {
        self.left_out.iter().sum()
    }

    /// What could not be mapped, for people; None without any.
    pub fn warning(&self) -> Option<String> {
        let reasons = UNMAPPED.iter().filter_map(|(reason, words)| {
            let count = self.left_out[*reason as usize];
            (count > 0).then(|| format!("{count} {words}"))
        });
        let reasons: Vec<String> = reasons.collect();
        let total: u64 = UNMAPPED.iter().map(|(reason, _)| self.left_out[*reason as usize]).sum();
        (total > 0).then(|| {
            format!("{total} KILL statements could not be mapped and were not sent: {}", reasons.join(", "))
        })
    }

    pub fn add(&mut self, other: &Kills) {
        self.sent += other.sent;
        self.servers += other.servers;
        for (sum, count) in self.left_out.iter_mut().zip(other.left_out) {
            *sum += count;
        }
    }

    pub fn to_json(self) -> Value {
        let reasons =
            REASONS.iter().zip(self.left_out).map(|(name, count)| ((*name).to_owned(), count.into()));
        json!({
            "sent": self.sent,
            "left_out": self.left_out(),
            "reasons": reasons.collect::<Map<_, _>>(),
            "servers": self.servers,
        })
    }
}

/// The sessions that have a connection now, by its recorded number.
#[derive(Default)]
pub struct Connections(HashMap<u64, u64>);

impl Connections {
    pub fn opened(&mut self, connection: Option<u64>, session: u64) {
        if let Some(connection) = connection {
            self.0.insert(connection, session);
        }
    }

    pub fn closed(&mut self, connection: Option<u64>, session: u64) {
        if let Some(connection) = connection
            && self.0.get(&connection) == Some(&session)
        {
            self.0.remove(&connection);
        }
    }

    /// Whom a recorded KILL is for: a session of the recording, and what is to be done to it.
    pub fn victim(&self, event: &Event<'_>, ending: Ending) -> Result<(u64, Kill), LeftOut> {
        let kill = match ending {
            Ending::Connection(kill) if is_plain(event) => kill,
            Ending::Connection(_) | Ending::Among | Ending::Server => return Err(LeftOut::Among),
            Ending::User => return Err(LeftOut::User),
            Ending::QueryId => return Err(LeftOut::QueryId),
            Ending::Expression => return Err(LeftOut::Expression),
        };
        let session = *self.0.get(&kill.connection).ok_or(LeftOut::NotOpen)?;
        match event.outcome {
            // Whoever ends itself is told so.
            Outcome::Error(code) if session != event.session || !is_interrupted(code) => Err(LeftOut::Failed),
            _ => Ok((session, kill)),
        }
    }
}

/// A statement as text, and all of it.
pub fn is_plain(event: &Event<'_>) -> bool {
    let is_text = match event.command {
        Command::Query | Command::Other(PROCESS_KILL) => true,
        // As logs have it.
        Command::Execute => event.statement.is_none() && event.parameter_count == 0,
        _ => false,
    };
    is_text && !event.is_cut
}

/// What COM_PROCESS_KILL ends.
pub fn of_command(event: &Event<'_>) -> Ending {
    let connection = event.statement.map(u64::from);
    connection.map_or(Ending::Expression, |connection| {
        Ending::Connection(Kill { connection, is_query: false, manner: sql::Manner::default() })
    })
}

/// A request that was begun is on its way for less than this.
const LEAST_DELAY_NS: u64 = 1_000_000;
/// Without a connection, not yet; and no more, or not at the moment.
const NOT_YET: u32 = 0;
const GONE: u32 = u32::MAX;

/// What the reader, a session and those who end it share of the session.
#[derive(Debug, Default)]
pub struct SessionState {
    /// Events that it has been given and has not begun.
    pub waiting: AtomicUsize,
    /// Events that it has been given in all; the reader's.
    given: AtomicU64,
    /// Events that it has begun or given up, times two; plus one while the last is at work. The session's.
    reached: AtomicU64,
    /// When the last was begun, in ns of the driver's clock.
    begun_ns: AtomicU64,
    /// Its connection's number on this server.
    connection: AtomicU32,
    /// The connection that a KILL was sent to end; and how many KILLs were sent to it.
    ended: AtomicU32,
    hits: AtomicU32,
}

impl SessionState {
    pub fn give(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.given.fetch_add(1, Ordering::Relaxed);
    }

    /// The next event is begun, or given up.
    pub fn take(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.reached.store((self.reached.load(Ordering::Relaxed) | 1) + 1, Ordering::Release);
    }

    pub fn works(&self, is_at_work: bool) {
        if is_at_work {
            self.begun_ns.store(now_ns(), Ordering::Relaxed);
        }
        let reached = self.reached.load(Ordering::Relaxed);
        self.reached.store(reached & !1 | u64::from(is_at_work), Ordering::Release);
    }

    pub fn connected(&self, connection: u32) {
        self.connection.store(connection, Ordering::Release);
    }

    /// There is no connection; whether a KILL of this replay ended it.
    pub fn disconnected(&self) -> bool {
        let connection = self.connection.swap(GONE, Ordering::AcqRel);
        !matches!(connection, NOT_YET | GONE) && self.ended.load(Ordering::Acquire) == connection
    }

    /// KILLs that were sent to it so far.
    pub fn hits(&self) -> u32 {
        self.hits.load(Ordering::Acquire)
    }
}

/// A KILL that has its victim.
#[derive(Clone, Debug)]
pub struct Aim {
    victim: Arc<SessionState>,
    /// What the victim had been given by then: it must have begun that.
    after: u64,
    /// And that must be so long ago: what is begun is not yet with the server.
    delay_ns: u64,
    is_own: bool,
    pub kill: Kill,
}

/// What a KILL is to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shot {
    /// The victim is not as far as it was when this was recorded.
    Wait,
    /// This connection's number.
    Send(u32),
    Leave(LeftOut),
}

impl Aim {
    /// `delay_ns` is how long after the start of its target it was recorded.
    pub fn new(victim: &Arc<SessionState>, kill: Kill, is_own: bool, delay_ns: u64) -> Self {
        let delay_ns = delay_ns.max(LEAST_DELAY_NS);
        let after = victim.given.load(Ordering::Relaxed);
        Self { victim: Arc::clone(victim), after, delay_ns, is_own, kill }
    }

    #[cfg(test)]
    pub fn is_for(&self, state: &Arc<SessionState>) -> bool {
        Arc::ptr_eq(&self.victim, state)
    }

    pub fn shot(&self) -> Shot {
        let reached = self.victim.reached.load(Ordering::Acquire);
        match self.victim.connection.load(Ordering::Acquire) {
            NOT_YET => Shot::Wait,
            GONE if reached / 2 >= self.after => Shot::Leave(LeftOut::NotConnected),
            _ if self.is_own => Shot::Send(self.victim.connection.load(Ordering::Acquire)),
            _ if reached / 2 < self.after => Shot::Wait,
            // A statement that came later must not be hit by what was meant for the one before.
            _ if self.kill.is_query && reached != 2 * self.after + 1 => Shot::Leave(LeftOut::Over),
            _ if reached == 2 * self.after + 1 && now_ns() < self.due_ns() => Shot::Wait,
            connection => Shot::Send(connection),
        }
    }

    fn due_ns(&self) -> u64 {
        self.victim.begun_ns.load(Ordering::Relaxed).saturating_add(self.delay_ns)
    }

    /// The server did not do it: what ends the connection later is something else.
    pub fn missed(&self, connection: u32) {
        let _ = self.victim.ended.compare_exchange(connection, NOT_YET, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The victim's connection will be ended, or its statement.
    pub fn fire(&self, connection: u32) {
        if !self.kill.is_query {
            self.victim.ended.store(connection, Ordering::Release);
        }
        self.victim.hits.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::{Aim, GONE, Kill, Kills, LeftOut, SessionState, Shot};
    use std::sync::Arc;

    fn kill(is_query: bool) -> Kill {
        Kill { connection: 5, is_query, manner: sql::Manner::default() }
    }

    #[test]
    fn a_kill_waits_for_the_statement_that_it_was_meant_for_and_hits_no_other() {
        let victim = Arc::new(SessionState::default());
        victim.give();
        victim.give();
        let (query, connection) =
            (Aim::new(&victim, kill(true), false, 0), Aim::new(&victim, kill(false), false, 0));
        victim.give();
        assert_eq!(query.shot(), Shot::Wait);
        victim.connected(77);
        victim.take();
        victim.works(true);
        assert_eq!((query.shot(), connection.shot()), (Shot::Wait, Shot::Wait));
        victim.works(false);
        victim.take();
        victim.works(true);
        // It is not with the server yet.
        assert_eq!((query.shot(), connection.shot()), (Shot::Wait, Shot::Wait));
        std::thread::sleep(std::time::Duration::from_nanos(2 * super::LEAST_DELAY_NS));
        assert_eq!((query.shot(), connection.shot()), (Shot::Send(77), Shot::Send(77)));
        victim.works(false);
        assert_eq!((query.shot(), connection.shot()), (Shot::Leave(LeftOut::Over), Shot::Send(77)));
        victim.take();
        victim.works(true);
        assert_eq!((query.shot(), connection.shot()), (Shot::Leave(LeftOut::Over), Shot::Send(77)));
        connection.fire(77);
        assert!(victim.disconnected());
        assert_eq!(connection.shot(), Shot::Leave(LeftOut::NotConnected));
        // The next connection's end is another matter, and so is what a KILL that failed did not end.
        victim.connected(78);
        assert!(!victim.disconnected());
        victim.connected(79);
        connection.fire(79);
        connection.missed(79);
        assert!(!victim.disconnected());
        assert_eq!(victim.hits(), 2);
        assert_eq!(victim.connection.load(std::sync::atomic::Ordering::Relaxed), GONE);
    }

    #[test]
    fn what_could_not_be_mapped_is_said_with_its_number() {
        let mut kills = Kills::default();
        kills.leave_out(LeftOut::Over);
        assert_eq!(kills.warning(), None);
        [LeftOut::NotOpen, LeftOut::NotOpen, LeftOut::User]
            .into_iter()
            .for_each(|reason| kills.leave_out(reason));
        let warning = kills.warning().unwrap();
        assert!(
            warning.starts_with("3 KILL statements") && warning.ends_with("then, 1 of a user"),
            "{warning}"
        );
        assert!(warning.contains(": 2 for connections"), "{warning}");
        assert_eq!(kills.to_json()["left_out"], 4);
    }

    #[test]
    fn an_event_that_is_given_up_counts_as_begun() {
        let victim = Arc::new(SessionState::default());
        victim.give();
        let aim = Aim::new(&victim, kill(true), false, 0);
        victim.connected(77);
        victim.take();
        assert_eq!(aim.shot(), Shot::Leave(LeftOut::Over));
        assert!(!victim.disconnected());
    }

    #[test]
    fn who_ends_itself_waits_for_nobody() {
        let own = Arc::new(SessionState::default());
        own.connected(9);
        assert_eq!(Aim::new(&own, kill(true), true, 0).shot(), Shot::Send(9));
    }
}
