//! The reader's side: events of a recording become what sessions send, and go to the threads that play them.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use sql::Ending;
use xxhash_rust::xxh3::xxh3_64;

use super::accounts::Accounts;
use super::answers::{NO_NUMBER, RecordedAnswers};
use super::classes::{Class, Classifier, Known, NONE, PREPARE, SESSION};
use super::kills::{self, Aim, Connections, Kills, LeftOut, SessionState};
use super::order::{Order, Planner, Step};
use super::queue::{Budget, Delivery, Expected, Inbox, Item, Opening, Progress, Request, Seat};
use super::timeline::{Speed, Timeline};
use crate::commands::PROCESS_KILL;
use crate::event::{Command, Event, Outcome};
use crate::numbers::Numbers;
use crate::recording::Reader;
use base::clock::thread_cpu_ns;

/// So many events go to the threads at once.
const BATCH: usize = 128;
/// How often the reader looks whether there is room again.
const ROOM_CHECK: Duration = Duration::from_micros(200);
/// A session whose login was not recorded connects so long before its first event.
pub const LEAD_NS: u64 = 100_000_000;
/// Texts of prepared statements that are kept once for all who use them.
const MAX_TEXTS: usize = 1 << 14;
const MAX_TEXT_BYTES: usize = 8 << 20;

/// Where events come from, in the order of their starts.
pub trait Events {
    fn next(&mut self) -> anyhow::Result<Option<Event<'_>>>;

    /// Places that could not be read, and events that came out of order.
    fn troubles(&self) -> (u64, u64) {
        (0, 0)
    }
}

impl Events for Reader {
    fn next(&mut self) -> anyhow::Result<Option<Event<'_>>> {
        Reader::next(self)
    }

    fn troubles(&self) -> (u64, u64) {
        (self.damage().damaged, self.unordered())
    }
}

/// What is played, and how.
pub struct Plan {
    pub speed: Speed,
    pub longest_idle_ns: Option<u64>,
    /// How often each session is played at once.
    pub copies: u32,
    pub is_read_only: bool,
    pub keeps_commit_order: bool,
    /// The server takes rows in bulk.
    pub can_bulk: bool,
    /// In ns since 1970.
    pub since_ns: u64,
    pub until_ns: u64,
    /// Recorded name of a database -> its name here.
    pub databases: HashMap<Vec<u8>, Vec<u8>>,
}

/// What reader and threads share.
pub struct Channel<'a> {
    pub budget: &'a Budget,
    pub inboxes: &'a [Inbox],
    pub progress: &'a Progress,
    pub writes: &'a Order,
    pub closes: &'a Order,
    pub stop: &'a AtomicBool,
}

/// What the reader counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub events: u64,
    /// With all copies.
    pub sent: u64,
    pub sessions: u64,
    pub state_events: u64,
    pub filtered_writes: u64,
    pub without_text: u64,
    /// The password in them was not recorded.
    pub redacted: u64,
    pub unsupported: u64,
    pub refused_logins: u64,
    /// They name a database that is mapped.
    pub qualified: u64,
    /// Sessions that began before the recording, and of which it does not know the database.
    pub without_database: u64,
    /// What it found of statements that end other sessions, or the server.
    pub kills: Kills,
    pub first_ns: Option<u64>,
    pub last_ns: u64,
    /// Of the recording: what could not be read, and what came out of order.
    pub damaged: u64,
    pub unordered: u64,
    /// Recorded time in which nothing was at work, and that was left out.
    pub cut_ns: u64,
    /// Statements that ended (without a time to the answer: began) at a whole second to the microsecond, and others:
    /// not those at the same time as their session's last, which a recording may have moved there.
    pub at_whole_seconds: u64,
    pub between_seconds: u64,
}

impl Counts {
    /// Whether the recording's source wrote whole seconds: by chance one time in a million is.
    pub fn has_whole_seconds(&self) -> bool {
        self.at_whole_seconds > self.between_seconds
    }

    fn count_time(&mut self, event: &Event<'_>, last_ns: u64) {
        let end_ns = event.start_ns.saturating_add(event.response_ns.unwrap_or(0));
        if end_ns.saturating_add(1_000) % 1_000_000_000 <= 2_000 {
            self.at_whole_seconds += 1;
        } else if event.start_ns != last_ns {
            self.between_seconds += 1;
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "events": self.events,
            "sent": self.sent,
            "sessions": self.sessions,
            "state_events": self.state_events,
            "without_database": self.without_database,
            "skipped": {
                "writes": self.filtered_writes,
                "without_text": self.without_text,
                "redacted": self.redacted,
                "unsupported": self.unsupported,
                "refused_logins": self.refused_logins,
                "qualified": self.qualified,
            },
            "damaged": self.damaged,
            "unordered": self.unordered,
            "skipped_idle_ns": self.cut_ns,
            "recorded_ns": self.first_ns.map_or(0, |first_ns| self.last_ns - first_ns),
        })
    }
}

/// A session of the recording: where its copies are.
struct Player {
    seats: Rc<[Seat]>,
    database: Vec<u8>,
    /// It may just have changed its database by a statement.
    may_change_database: bool,
    /// The number of its connection, when it was recorded.
    connection: Option<u64>,
    /// When its last event was recorded to start.
    last_ns: u64,
    /// A variable of it may have the text of a KILL.
    may_hold_kill: bool,
}

pub struct Dispatch<'a> {
    plan: &'a Plan,
    accounts: &'a Accounts,
    channel: Channel<'a>,
    /// What answers are compared with, in place of the recorded ones.
    answers: Option<&'a RecordedAnswers>,
    timeline: Timeline,
    classifier: Classifier,
    texts: Numbers<u64, Arc<[u8]>>,
    text_bytes: usize,
    /// Bytes of a text that the next event is the first to have.
    new_text: usize,
    writes: Planner,
    closes: Planner,
    players: Numbers<u64, Player>,
    connections: Connections,
    next_key: u32,
    batches: Vec<Vec<Delivery>>,
    batched: usize,
    at_ns: u64,
    counts: Counts,
}

impl<'a> Dispatch<'a> {
    pub fn new(plan: &'a Plan, accounts: &'a Accounts, channel: Channel<'a>) -> Self {
        Self {
            timeline: Timeline::new(plan.speed, plan.longest_idle_ns),
            classifier: Classifier::new(plan.databases.keys().cloned().collect()),
            texts: Numbers::default(),
            text_bytes: 0,
            new_text: 0,
            writes: Planner::default(),
            closes: Planner::default(),
            players: Numbers::default(),
            connections: Connections::default(),
            next_key: 0,
            batches: channel.inboxes.iter().map(|_| Vec::new()).collect(),
            batched: 0,
            at_ns: 0,
            counts: Counts::default(),
            plan,
            accounts,
            channel,
            answers: None,
        }
    }

    /// The same with what another server answered.
    #[must_use]
    pub fn against(self, answers: Option<&'a RecordedAnswers>) -> Self {
        Self { answers, ..self }
    }

    /// Hands out all events; ends early when the replay is stopped.
    pub fn run(mut self, events: &mut impl Events) -> anyhow::Result<(Counts, Vec<Class>)> {
        let result = self.hand_out(events);
        let players = std::mem::take(&mut self.players);
        let mut last: Vec<_> = players.values().flat_map(|player| player.seats.iter().cloned()).collect();
        last.sort_by_key(|seat| seat.key);
        for seat in &last {
            self.push(seat, self.quit(Step::default()));
        }
        self.flush();
        // Also after an error: the players must finish.
        self.channel.progress.is_over.store(true, Ordering::Release);
        result?;
        self.counts.cut_ns = self.timeline.cut_ns();
        (self.counts.damaged, self.counts.unordered) = events.troubles();
        Ok((self.counts, self.classifier.into_classes()))
    }

    fn hand_out(&mut self, events: &mut impl Events) -> anyhow::Result<()> {
        while let Some(event) = events.next()? {
            if event.start_ns >= self.plan.until_ns || self.is_stopped() {
                break;
            }
            if event.start_ns >= self.plan.since_ns || event.is_state {
                self.take(&event)?;
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        if event.is_state {
            self.counts.state_events += 1;
        } else {
            self.at_ns = self.timeline.instant(event.start_ns, event.response_ns).max(self.at_ns);
            self.counts.first_ns.get_or_insert(event.start_ns);
            self.counts.last_ns = event.start_ns;
        }
        self.counts.events += 1;
        match event.command {
            Command::Connect if matches!(event.outcome, Outcome::Error(_)) => self.counts.refused_logins += 1,
            Command::Connect => {
                self.close(event.session, event.start_ns);
                self.open(event, false);
            }
            Command::Quit => self.close(event.session, event.start_ns),
            Command::Other(byte) if byte != PROCESS_KILL => self.counts.unsupported += 1,
            Command::Fetch => self.counts.unsupported += 1,
            _ => {
                if !self.players.contains_key(&event.session) {
                    self.open(event, true);
                }
                self.take_request(event)?;
            }
        }
        Ok(())
    }

    fn take_request(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        let known = match event.command {
            Command::Query | Command::Prepare | Command::Execute | Command::BulkExecute
                if !event.text.is_empty() =>
            {
                Some(self.classifier.know(event.text))
            }
            _ => None,
        };
        let ending = match event.command {
            Command::Other(_) => Some(kills::of_command(event)),
            _ => known.and_then(|known| known.ending),
        };
        if let Some(ending) = ending {
            return self.take_kill(event, known, ending);
        }
        if self.plan.is_read_only && known.is_some_and(|known| !known.is_read_only) {
            self.counts.filtered_writes += 1;
            return Ok(());
        }
        // Logs have rows in bulk without their values.
        if event.outcome == Outcome::Unknown
            && known.is_some_and(|known| known.has_placeholders)
            && kills::is_plain(event)
        {
            self.counts.without_text += 1;
            return Ok(());
        }
        if known.is_some_and(|known| self.may_run_kill(event, known)) {
            self.counts.kills.leave_out(LeftOut::Variable);
            return Ok(());
        }
        if known.is_some_and(|known| known.names_mapped) {
            self.counts.qualified += 1;
            return Ok(());
        }
        self.follow_database(event);
        let Some(request) = self.request(event) else { return Ok(()) };
        let mut request = Some(request);
        self.hand_to_copies(event, known, |_, is_last| match is_last {
            true => request.take(),
            false => request.as_ref().map(Request::copy),
        })
    }

    /// A statement that ends a session of the recording ends what plays it here; any other is left out.
    fn take_kill(&mut self, event: &Event<'_>, known: Option<Known>, ending: Ending) -> anyhow::Result<()> {
        if ending == Ending::Server {
            self.counts.kills.servers += 1;
            return Ok(());
        }
        let found = self.connections.victim(event, ending).and_then(|(session, kill)| {
            let player = self.players.get(&session).ok_or(LeftOut::NotOpen)?;
            let since_ns = event.start_ns.saturating_sub(player.last_ns);
            let delay_ns = match self.plan.speed {
                Speed::Max => 0,
                Speed::Factor(factor) => (since_ns as f64 / factor) as u64,
            };
            Ok((Rc::clone(&player.seats), session == event.session, kill, delay_ns))
        });
        match found {
            Ok((victims, is_own, kill, delay_ns)) => {
                self.follow_database(event);
                self.hand_to_copies(event, known, |place, _| {
                    let victim = victims.get(place)?;
                    Some(Request::Kill(Box::new(Aim::new(&victim.state, kill, is_own, delay_ns))))
                })
            }
            Err(reason) => {
                self.counts.kills.leave_out(reason);
                Ok(())
            }
        }
    }

    /// Whether it runs a text that the session may have made a KILL of.
    fn may_run_kill(&mut self, event: &Event<'_>, known: Known) -> bool {
        let Some(player) = self.players.get_mut(&event.session) else { return false };
        player.may_hold_kill |= known.mentions_kill || known.has_variables && sql::has_kill(event.parameters);
        player.may_hold_kill && known.runs_other_text
    }

    /// Gives an event to all that play its session: to each what `request` makes for its place.
    fn hand_to_copies(
        &mut self,
        event: &Event<'_>,
        known: Option<Known>,
        mut request: impl FnMut(usize, bool) -> Option<Request>,
    ) -> anyhow::Result<()> {
        let answered = self.answers.map(|kept| kept.answer(self.counts.events)).transpose()?;
        let Some(player) = self.players.get_mut(&event.session) else { return Ok(()) };
        player.may_change_database =
            event.command == Command::Query && sql::used_database(event.text).is_some();
        self.counts.count_time(event, player.last_ns);
        player.last_ns = event.start_ns;
        let seats = Rc::clone(&player.seats);
        let is_ordered = self.plan.keeps_commit_order && known.is_some_and(|known| known.is_ordered);
        let end_ns = event.start_ns.saturating_add(event.response_ns.unwrap_or(0));
        for (place, seat) in seats.iter().enumerate() {
            let Some(own) = request(place, place + 1 == seats.len()) else { break };
            let step = match is_ordered {
                true => self.writes.step(event.start_ns, end_ns, self.channel.writes),
                false => Step::default(),
            };
            let mut item = self.item(event, own, known, step);
            item.expected = answered.unwrap_or(item.expected);
            // Of a session's copies the first one's answers are kept.
            item.number = if place == 0 { self.counts.events } else { NO_NUMBER };
            self.push(seat, item);
            self.counts.sent += 1;
        }
        Ok(())
    }

    fn item(&self, event: &Event<'_>, request: Request, known: Option<Known>, step: Step) -> Item {
        Item {
            at_ns: if event.is_state { 0 } else { self.at_ns },
            recorded_ns: event.start_ns,
            number: NO_NUMBER,
            operation: match (event.command, known) {
                (Command::Prepare, _) => PREPARE,
                (_, Some(known)) if !event.is_state => known.operation,
                _ => SESSION,
            },
            class: known.filter(|_| !event.is_state).map_or(NONE, |known| known.class),
            expected: Expected::of(event),
            request,
            step,
            size: 0,
        }
    }

    /// What is to be sent for an event; None for what cannot be, which is counted.
    fn request(&mut self, event: &Event<'_>) -> Option<Request> {
        match event.command {
            Command::Query | Command::Prepare if event.text.is_empty() => {
                self.counts.without_text += 1;
                None
            }
            // Half a statement may mean something else.
            Command::Query | Command::Prepare | Command::Execute | Command::BulkExecute if event.is_cut => {
                self.counts.without_text += 1;
                None
            }
            Command::Query | Command::Prepare | Command::Execute | Command::BulkExecute
                if sql::is_redacted(event.text) =>
            {
                self.counts.redacted += 1;
                None
            }
            Command::BulkExecute if !self.plan.can_bulk => {
                self.counts.unsupported += 1;
                None
            }
            Command::Query => Some(self.query(event.text)),
            // Without a number nothing can refer to it.
            Command::Prepare => {
                event.statement.map(|statement| Request::Prepare { statement, text: self.shared(event.text) })
            }
            // A log writes the values into the text: then it is a statement like any other.
            Command::Execute if event.statement.is_none() && event.parameter_count == 0 => {
                if event.text.is_empty() {
                    self.counts.without_text += 1;
                    return None;
                }
                Some(self.query(event.text))
            }
            Command::Execute | Command::BulkExecute => Some(Request::Execute {
                is_bulk: event.command == Command::BulkExecute,
                statement: event.statement,
                text: self.shared(event.text),
                parameters: event.parameters.into(),
            }),
            Command::Close => event.statement.map(Request::Close),
            Command::ResetStatement => event.statement.map(Request::ResetStatement),
            Command::InitDb => Some(Request::InitDb(self.mapped(event.database).into())),
            // Passwords are not recorded: the session stays who it is, and forgets its state.
            Command::ChangeUser | Command::ResetConnection => Some(Request::ResetConnection),
            Command::Ping => Some(Request::Ping),
            Command::Connect | Command::Quit | Command::Fetch | Command::Rows | Command::Other(_) => None,
        }
    }

    /// Logs tell a change of the database by the database of the next statement alone.
    fn follow_database(&mut self, event: &Event<'_>) {
        let Some(player) = self.players.get_mut(&event.session) else { return };
        if event.database.is_empty() || event.database == player.database {
            return;
        }
        player.database.clear();
        player.database.extend_from_slice(event.database);
        let is_known = player.may_change_database && self.plan.databases.is_empty();
        if is_known || matches!(event.command, Command::InitDb) {
            return;
        }
        let seats = Rc::clone(&player.seats);
        for seat in seats.iter() {
            let expected = Expected { outcome: Outcome::Ok, ..Expected::NOTHING };
            let request = Request::InitDb(self.mapped(event.database).into());
            let item = Item { expected, ..self.item(event, request, None, Step::default()) };
            self.push(seat, item);
        }
    }

    fn open(&mut self, event: &Event<'_>, is_first_event: bool) {
        self.counts.sessions += 1;
        self.connections.opened(event.connection, event.session);
        let has_database = !event.database.is_empty() || event.command == Command::InitDb;
        self.counts.without_database += u64::from(is_first_event && !has_database);
        let step = match self.plan.speed {
            // As fast as possible, but not on more connections than there were.
            Speed::Max => self.closes.wait(event.start_ns, self.channel.closes),
            Speed::Factor(_) => Step::default(),
        };
        let mut seats = Vec::new();
        for _ in 0..self.plan.copies {
            let key = self.next_key;
            self.next_key += 1;
            let seat = Seat {
                key,
                thread: key as usize % self.channel.inboxes.len(),
                state: Arc::new(SessionState::default()),
            };
            let database = (!event.database.is_empty())
                .then(|| String::from_utf8_lossy(self.mapped(event.database)).into_owned());
            let opening = Opening {
                at_ns: self.at_ns,
                // Not all in one instant where a recording began in the middle of thousands.
                lead_ns: if is_first_event { LEAD_NS + u64::from(key % 64) * 1_000_000 } else { 0 },
                account: self.accounts.number_of(event.user),
                database,
                state: Arc::clone(&seat.state),
                step,
            };
            self.put(seat.thread, Delivery::Open(key, Box::new(opening)));
            seats.push(seat);
        }
        let player = Player {
            seats: seats.into(),
            database: event.database.to_vec(),
            may_change_database: false,
            connection: event.connection,
            last_ns: event.start_ns,
            may_hold_kill: false,
        };
        self.players.insert(event.session, player);
    }

    fn close(&mut self, session: u64, at_ns: u64) {
        let Some(player) = self.players.remove(&session) else { return };
        self.connections.closed(player.connection, session);
        for seat in player.seats.iter() {
            let step = match self.plan.speed {
                Speed::Max => self.closes.step(at_ns, at_ns, self.channel.closes),
                Speed::Factor(_) => Step::default(),
            };
            self.push(seat, self.quit(step));
        }
    }

    fn quit(&self, step: Step) -> Item {
        Item {
            at_ns: self.at_ns,
            recorded_ns: self.counts.last_ns,
            request: Request::Quit,
            number: NO_NUMBER,
            operation: SESSION,
            class: NONE,
            expected: Expected::NOTHING,
            step,
            size: 0,
        }
    }

    fn mapped<'b>(&'b self, database: &'b [u8]) -> &'b [u8] {
        self.plan.databases.get(database).map_or(database, Vec::as_slice)
    }

    /// A statement with the names behind USE as they are here.
    fn query(&self, text: &[u8]) -> Request {
        let databases = &self.plan.databases;
        let renamed = match databases.is_empty() {
            true => None,
            false => sql::rename_used(text, |name| databases.get(name).map(Vec::as_slice)),
        };
        Request::Query(renamed.map_or_else(|| text.into(), Vec::into_boxed_slice))
    }

    /// One copy of a text for all who have it.
    fn shared(&mut self, text: &[u8]) -> Arc<[u8]> {
        let hash = xxh3_64(text);
        if let Some(shared) = self.texts.get(&hash)
            && **shared == *text
        {
            return Arc::clone(shared);
        }
        if self.texts.len() == MAX_TEXTS || self.text_bytes > MAX_TEXT_BYTES {
            self.text_bytes = 0;
            self.texts.clear();
        }
        // Whoever came first pays for all.
        self.new_text = text.len();
        let shared: Arc<[u8]> = text.into();
        self.text_bytes += text.len();
        self.texts.insert(hash, Arc::clone(&shared));
        shared
    }

    /// Gives a session its next event, when there is room for it.
    fn push(&mut self, seat: &Seat, mut item: Item) {
        item.size = item.own_size() + std::mem::take(&mut self.new_text);
        let size = item.size;
        let waiting = || seat.state.waiting.load(Ordering::Relaxed);
        if !self.channel.budget.admits(size, waiting()) {
            // What makes room must be on its way first.
            self.flush();
            while !self.channel.budget.admits_many(size, waiting()) && !self.is_stopped() {
                std::thread::sleep(ROOM_CHECK);
            }
        }
        self.channel.budget.take(&item);
        seat.state.give();
        self.put(seat.thread, Delivery::Event(seat.key, Box::new(item)));
    }

    fn is_stopped(&self) -> bool {
        self.channel.stop.load(Ordering::Relaxed) || self.channel.progress.is_enough.load(Ordering::Relaxed)
    }

    fn put(&mut self, thread: usize, delivery: Delivery) {
        self.batches[thread].push(delivery);
        self.batched += 1;
        if self.batched >= BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for (inbox, batch) in self.channel.inboxes.iter().zip(&mut self.batches) {
            inbox.put(batch);
        }
        self.batched = 0;
        self.channel.progress.events.store(self.counts.events, Ordering::Relaxed);
        self.channel.progress.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        self.channel.progress.read_until_ns.store(self.at_ns, Ordering::Release);
    }
}
