//! One session of a recording, played on a connection of its own: what comes next is never sent before the answer to
//! what came before is whole.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use mysql_common::constants::CapabilityFlags;

use super::answers::AnswerWriter;
use super::kills::{Aim, SessionState, Shot, is_interrupted};
use super::order::{Order, Step};
use super::queue::{Budget, Item, Request, UNIT_RESULTS};
use super::refusals::{Halt, Refusal};
use super::stats::{Got, ReplayStats};
use base::clock::now_ns;
use engine::client::{Assignment, Choice, Client, Failure, Progress, Random, Turn};
use mysql::answers::Answers;
use mysql::handshake::{Handshake, HandshakeState, UNEXPECTED_PACKET};

use crate::event::Outcome;
use mysql::request::{write_command, write_parts};
use mysql::{BULK_EXECUTE, Error, Options};

const QUIT: u8 = 0x01;
const INIT_DB: u8 = 0x02;
const QUERY: u8 = 0x03;
const PING: u8 = 0x0E;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const CLOSE: u8 = 0x19;
const RESET_STATEMENT: u8 = 0x1A;
const RESET_CONNECTION: u8 = 0x1F;
/// An execution without a cursor, once.
const NO_CURSOR_ONCE: [u8; 5] = [0, 1, 0, 0, 0];

/// What the sessions of a thread share.
pub struct Shared<'a> {
    pub start_ns: u64,
    /// Nothing is begun from here on.
    pub end_ns: u64,
    /// In the closed loop of `max` an event is due when the one before is answered.
    pub is_closed_loop: bool,
    pub is_checked: bool,
    pub answer_writer: Option<&'a AnswerWriter>,
    pub capabilities: CapabilityFlags,
    /// The server's limit of a request, in bytes.
    pub max_allowed_packet: usize,
    pub budget: &'a Budget,
    pub writes: &'a Order,
    pub closes: &'a Order,
    pub halt: &'a Halt<'a>,
    pub stats: RefCell<ReplayStats>,
}

pub struct Session<'a> {
    shared: Rc<Shared<'a>>,
    account: &'a Options,
    database: Option<String>,
    state: Arc<SessionState>,
    queue: VecDeque<Box<Item>>,
    at_work: Option<Box<Item>>,
    begun_ns: u64,
    /// KILLs that had been sent to this session when it began what is at work.
    hits_before: u32,
    /// The connection that a KILL ends, which is sent next.
    aimed_at: u32,
    statements: HashMap<u32, Prepared>,
    /// A request without an answer goes out with the next one.
    unsent: Vec<u8>,
    answers: Answers,
    phase: Phase<'a>,
    was_connected: bool,
    /// A KILL ended its connection, as recorded: nothing should come after that.
    was_killed: bool,
}

struct Prepared {
    id: u32,
    text: Arc<[u8]>,
}

enum Phase<'a> {
    Down,
    LoggingIn(Box<Handshake<'a>>),
    Idle,
    /// What is at work has to be prepared first.
    Preparing,
    Working,
}

impl<'a> Session<'a> {
    pub fn new(
        shared: Rc<Shared<'a>>,
        account: &'a Options,
        database: Option<String>,
        state: Arc<SessionState>,
    ) -> Self {
        Self {
            shared,
            account,
            database,
            state,
            queue: VecDeque::new(),
            at_work: None,
            begun_ns: 0,
            hits_before: 0,
            aimed_at: 0,
            statements: HashMap::new(),
            unsent: Vec::new(),
            answers: Answers::default(),
            phase: Phase::Down,
            was_connected: false,
            was_killed: false,
        }
    }

    /// Another event; true where the session had none.
    pub fn push(&mut self, item: Box<Item>) -> bool {
        self.queue.push_back(item);
        self.queue.len() == 1
    }

    /// The first in the queue, which is over with that unless it is begun.
    fn pop(&mut self) -> Option<Box<Item>> {
        let item = self.take_first()?;
        self.shared.budget.give_back(&item);
        Some(item)
    }

    fn take_first(&mut self) -> Option<Box<Item>> {
        let item = self.queue.pop_front()?;
        self.shared.budget.begun(&item);
        self.state.take();
        Some(item)
    }

    fn due_ns(&self, item: &Item, since_ns: u64) -> u64 {
        if self.shared.is_closed_loop { since_ns } else { self.shared.start_ns + item.at_ns }
    }

    /// Writes the request of the item at work, or first the preparation of its statement where the server lacks it.
    /// Every item that comes here can be sent (`can_be_sent`).
    fn write(&mut self, item: &Item, out: &mut Vec<u8>) {
        out.append(&mut self.unsent);
        self.phase = Phase::Working;
        let answer_number = match &item.request {
            Request::Prepare { text, .. } => return self.prepare(text, out),
            Request::Execute { is_bulk, statement, text, parameters } => {
                let prepared = statement.and_then(|recorded| self.statements.get(&recorded));
                match prepared.filter(|prepared| text.is_empty() || prepared.text == *text) {
                    Some(prepared) => write_execution(prepared.id, *is_bulk, parameters, out),
                    None => {
                        self.shared.stats.borrow_mut().prepared_late += 1;
                        self.phase = Phase::Preparing;
                        return self.prepare(text, out);
                    }
                }
            }
            Request::Query(text) => write_command(QUERY, text, out),
            Request::Kill(aim) => {
                aim.fire(self.aimed_at);
                self.shared.stats.borrow_mut().kills.sent += 1;
                write_command(QUERY, aim.kill.to_sql(self.aimed_at.into()).as_bytes(), out)
            }
            Request::InitDb(name) => write_command(INIT_DB, name, out),
            Request::ResetConnection => write_command(RESET_CONNECTION, b"", out),
            Request::Ping => write_command(PING, b"", out),
            Request::ResetStatement(recorded) => {
                let id = self.statements.get(recorded).map_or(u32::MAX, |prepared| prepared.id);
                write_command(RESET_STATEMENT, &id.to_le_bytes(), out)
            }
            Request::Close(_) | Request::Quit => unreachable!("they are no turns"),
        };
        self.expect(item, answer_number);
    }

    fn prepare(&mut self, text: &[u8], out: &mut Vec<u8>) {
        self.answers.expect_prepared();
        self.answers.begin_at(write_command(PREPARE, text, out));
    }

    fn expect(&mut self, item: &Item, answer_number: u8) {
        self.answers.expect_checked(self.wants_checksum(item));
        self.answers.begin_at(answer_number);
    }

    fn wants_checksum(&self, item: &Item) -> bool {
        self.shared.answer_writer.is_some() || (self.shared.is_checked && item.expected.checksum.is_some())
    }

    /// Whether the first in the queue can be sent at all; what cannot is dropped and counted.
    fn can_be_sent(&self, item: &Item) -> bool {
        match &item.request {
            Request::Execute { statement: Some(recorded), text, .. } => {
                !text.is_empty() || self.statements.contains_key(recorded)
            }
            Request::Execute { statement: None, text, .. } => !text.is_empty(),
            _ => true,
        }
    }

    fn take_answer(&mut self, out: &mut Vec<u8>) -> Progress {
        let error = self.answers.take_error();
        let Some(item) = self.at_work.take() else { return self.lose(&UNEXPECTED_PACKET) };
        if matches!(self.phase, Phase::Preparing) && error.is_none() {
            if let Request::Execute { statement, text, .. } = &item.request {
                // A number that no recording has, for what came without one.
                self.remember(statement.unwrap_or(u32::MAX), text.clone());
                let id = self.answers.statement_id();
                if let Request::Execute { is_bulk, parameters, .. } = &item.request {
                    let answer_number = write_execution(id, *is_bulk, parameters, out);
                    self.expect(&item, answer_number);
                }
                self.phase = Phase::Working;
            }
            self.at_work = Some(item);
            return Progress::Waiting;
        }
        self.phase = Phase::Idle;
        if error.is_none() {
            self.follow_state(&item);
        }
        let code = error.as_ref().and_then(Error::code);
        let got = Got::of(&self.answers, code);
        let service_ns = now_ns() - self.begun_ns;
        let was_hit = self.state.hits() != self.hits_before;
        self.state.works(false);
        // Whoever ended itself is told so.
        if let (Request::Kill(aim), Some(code)) = (&item.request, code)
            && !is_interrupted(code)
        {
            aim.missed(self.aimed_at);
        }
        self.shared.stats.borrow_mut().answered(&item, service_ns, &got, was_hit, self.shared.is_checked);
        if let Some(answer_writer) = self.shared.answer_writer {
            answer_writer.keep(item.number, &got, service_ns);
        }
        self.shared.writes.over(item.step);
        self.shared.budget.give_back(&item);
        match error {
            // What failed when it was recorded has to fail now, and a KILL may come sooner than when it was recorded.
            Some(error)
                if item.expected.outcome != Outcome::Error(code.unwrap_or(0))
                    && !(was_hit && code.is_some_and(is_interrupted)) =>
            {
                self.shared.stats.borrow_mut().unlike_recorded(&item, &error);
                if let Some(refusal) = Refusal::of_answer(&error, &item.request, &self.account.user) {
                    self.shared.halt.refused(refusal);
                }
                Progress::Failed(Failure { is_lost_race: false, ..Failure::from(&error) })
            }
            _ => Progress::Ended { rows: got.rows, bytes: self.answers.bytes },
        }
    }

    /// What the session's state is after this.
    fn follow_state(&mut self, item: &Item) {
        match &item.request {
            Request::Prepare { statement, text } => self.remember(*statement, text.clone()),
            Request::InitDb(name) => self.database = Some(String::from_utf8_lossy(name).into_owned()),
            Request::ResetConnection => self.statements.clear(),
            Request::Query(text) => {
                if let Some(name) = sql::used_database(text) {
                    self.database = Some(String::from_utf8_lossy(&name).into_owned());
                }
            }
            _ => {}
        }
    }

    /// What was just prepared is what the recording calls `recorded`.
    fn remember(&mut self, recorded: u32, text: Arc<[u8]>) {
        let prepared = Prepared { id: self.answers.statement_id(), text };
        if let Some(old) = self.statements.insert(recorded, prepared) {
            write_command(CLOSE, &old.id.to_le_bytes(), &mut self.unsent);
        }
    }

    fn lose(&mut self, error: &Error) -> Progress {
        self.phase = Phase::Down;
        Progress::Broken(Failure::from(error))
    }

    /// Gives up what is left: it is beyond the replay's end.
    fn drop_rest(&mut self) {
        while let Some(item) = self.pop() {
            let order =
                if matches!(item.request, Request::Quit) { self.shared.closes } else { self.shared.writes };
            order.over(item.step);
        }
    }

    /// Gives up what is at work: the connection is gone.
    fn drop_work(&mut self) {
        if let Some(item) = self.at_work.take() {
            self.state.works(false);
            self.shared.budget.give_back(&item);
            self.lose_item(&item);
        }
    }

    fn lose_item(&self, item: &Item) {
        self.shared.writes.over(item.step);
        self.shared.stats.borrow_mut().lost(item, self.shared.is_checked);
    }

    /// What a KILL ended is over, and answered with that.
    fn end_killed(&mut self) {
        if let Some(item) = self.at_work.take() {
            self.state.works(false);
            self.shared.budget.give_back(&item);
            self.shared.writes.over(item.step);
            self.shared.stats.borrow_mut().killed(&item, self.shared.is_checked);
        }
    }

    /// What becomes of a KILL that is due; None where it is left out.
    fn aim(&mut self, aim: &Aim, assignment: Assignment) -> Option<Turn> {
        match aim.shot() {
            Shot::Send(connection) => {
                self.aimed_at = connection;
                Some(Turn::Begin(assignment))
            }
            Shot::Wait if now_ns() < self.shared.end_ns => Some(Turn::Held),
            Shot::Wait => None,
            Shot::Leave(reason) => {
                self.shared.stats.borrow_mut().kills.leave_out(reason);
                None
            }
        }
    }

    /// Whether the server would refuse it for its length, and close the connection with that.
    fn is_too_long(&self, item: &Item) -> bool {
        item.request.payload_bytes() >= self.shared.max_allowed_packet
    }
}

impl Client for Session<'_> {
    fn connected(&mut self, _out: &mut Vec<u8>) -> Progress {
        self.drop_work();
        if self.was_connected {
            self.was_connected = false;
            self.shared.stats.borrow_mut().sessions_broken += 1;
        }
        self.statements.clear();
        self.unsent.clear();
        self.answers = Answers::default();
        let handshake =
            Handshake::new(self.account).with(self.database.clone(), self.shared.capabilities).for_bulk();
        self.phase = Phase::LoggingIn(Box::new(handshake));
        Progress::Waiting
    }

    fn encrypted(&mut self, out: &mut Vec<u8>) {
        if let Phase::LoggingIn(handshake) = &mut self.phase {
            handshake.encrypted(out);
        }
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, _random: &mut Random) -> Progress {
        if let Phase::LoggingIn(handshake) = &mut self.phase {
            return match handshake.receive(input, out) {
                Ok(HandshakeState::Waiting) => Progress::Waiting,
                Ok(HandshakeState::Encrypt(session)) => Progress::Encrypt(session),
                Ok(HandshakeState::Done) => {
                    self.was_connected = true;
                    self.state.connected(handshake.connection());
                    self.phase = Phase::Idle;
                    Progress::Ready
                }
                Err(error) => {
                    let database = self.database.as_deref();
                    if let Some(refusal) = Refusal::of_login(&error, &self.account.user, database) {
                        self.shared.halt.refused(refusal);
                    }
                    self.lose(&error)
                }
            };
        }
        match self.answers.feed(input) {
            Ok(true) => self.take_answer(out),
            Ok(false) => Progress::Waiting,
            Err(error) => self.lose(&error),
        }
    }

    fn choose(&mut self, _random: &mut Random) -> Choice {
        Choice { operation: usize::from(super::classes::OTHER), pause_ns: None }
    }

    fn begin(&mut self, out: &mut Vec<u8>, _random: &mut Random) -> Progress {
        let mut item = self.take_first().expect("its turn was asked for");
        if std::mem::take(&mut self.was_killed) {
            self.shared.stats.borrow_mut().sessions_broken += 1;
        }
        self.hits_before = self.state.hits();
        self.state.works(true);
        self.begun_ns = now_ns();
        self.write(&item, out);
        if matches!(self.phase, Phase::Working) {
            item.request.forget_long();
        }
        self.at_work = Some(item);
        Progress::Waiting
    }

    fn turn(&mut self, since_ns: u64) -> Turn {
        // Connections that break between two events leave nothing at work behind.
        self.drop_work();
        loop {
            let Some(item) = self.queue.front() else { return Turn::Nothing };
            match item.request {
                Request::Close(recorded) => {
                    if let Some(prepared) = self.statements.remove(&recorded) {
                        write_command(CLOSE, &prepared.id.to_le_bytes(), &mut self.unsent);
                    }
                    self.pop();
                }
                Request::Quit => {
                    let at_ns = self.due_ns(item, since_ns);
                    if at_ns <= now_ns() || self.was_killed {
                        self.state.disconnected();
                        let step: Step = item.step;
                        self.pop();
                        self.shared.closes.over(step);
                        return Turn::Over;
                    }
                    return Turn::Rest(at_ns);
                }
                // What is prepared here only when it is executed has nothing to reset before that.
                Request::ResetStatement(recorded) if !self.statements.contains_key(&recorded) => {
                    self.pop();
                }
                _ if self.is_too_long(item) => {
                    if let Some(item) = self.pop() {
                        self.shared.writes.over(item.step);
                        self.shared.stats.borrow_mut().refused(&item, self.shared.is_checked);
                    }
                }
                _ if !self.can_be_sent(item) => {
                    self.shared.stats.borrow_mut().unknown_statements += 1;
                    let item = self.pop();
                    self.shared.writes.over(item.map_or(Step::default(), |item| item.step));
                }
                _ => {
                    let intended_ns = self.due_ns(item, since_ns);
                    let end_ns = self.shared.end_ns;
                    if intended_ns >= end_ns {
                        // Its place must stay its own while events may still come for it.
                        if now_ns() < end_ns {
                            return Turn::Rest(end_ns);
                        }
                        self.drop_rest();
                        self.state.disconnected();
                        return Turn::Over;
                    }
                    if !self.shared.writes.allows(item.step) {
                        return Turn::Held;
                    }
                    let assignment = Assignment { operation: usize::from(item.operation), intended_ns };
                    let aim = match &item.request {
                        Request::Kill(aim) if intended_ns <= now_ns() => aim.clone(),
                        _ => return Turn::Begin(assignment),
                    };
                    if let Some(turn) = self.aim(&aim, assignment) {
                        return turn;
                    }
                    self.pop();
                }
            }
        }
    }

    fn lost(&mut self) -> bool {
        let is_killed = self.state.disconnected();
        if is_killed {
            self.end_killed();
            self.shared.stats.borrow_mut().sessions_killed += 1;
            (self.was_connected, self.was_killed) = (false, true);
        }
        is_killed
    }

    fn give_up(&mut self, now: u64) -> Option<Assignment> {
        self.drop_work();
        self.state.disconnected();
        let item = self.queue.front()?;
        let intended_ns = self.due_ns(item, now);
        if intended_ns > now || matches!(item.request, Request::Quit) {
            return None;
        }
        let item = self.pop()?;
        self.lose_item(&item);
        Some(Assignment { operation: usize::from(item.operation), intended_ns })
    }

    fn farewell(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.unsent);
        write_command(QUIT, b"", out);
    }
}

fn write_execution(id: u32, is_bulk: bool, parameters: &[u8], out: &mut Vec<u8>) -> u8 {
    match parameters {
        [flags, rest @ ..] if is_bulk => {
            write_parts(BULK_EXECUTE, &[&id.to_le_bytes(), &[flags & !UNIT_RESULTS], rest], out)
        }
        _ => write_parts(EXECUTE, &[&id.to_le_bytes(), &NO_CURSOR_ONCE, parameters], out),
    }
}
