//! One connection: where it stands, what was asked and not answered yet, and the events that come of it.

use std::collections::VecDeque;

use mysql_common::constants::CapabilityFlags as Flags;

use super::answer::Answer;
use super::inflate::Inflate;
use super::login::parse_change_user;
use super::origin::Origin;
use super::request::Request;
use super::shared::{SPARE_REQUESTS, Shared};
use super::sides::{ClientSide, ServerSide};
use super::statements::{Statements, text_start};
use crate::commands::{PROCESS_KILL, by_byte};
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure;
use crate::stream::{Opened, Side};
use mysql::reply::{Dialect, Stage};

/// Requests without an answer that may wait for a proof that they are some.
const MOST_UNPROVED: usize = 64;
/// Requests that may wait for their answers. No client sends so many ahead.
const MOST_PENDING: usize = 65_536;
pub const SEND_LONG_DATA: u8 = 0x18;
/// A flag of COM_STMT_EXECUTE, which only clients set that also send attributes.
const COUNTS_PARAMETERS: u8 = 0x08;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing was seen yet.
    Start,
    Greeted,
    LoggingIn,
    Commands,
    /// What comes is not understood until a request begins.
    Lost,
    /// Encrypted, a replica's, or over: nothing here is looked at any more.
    Ignored,
}

#[derive(Default)]
pub struct Compression {
    pub client: Inflate,
    pub server: Inflate,
}

pub struct Session {
    pub id: u64,
    /// The connection's number on the server, where its greeting was seen.
    pub connection: Option<u64>,
    pub phase: Phase,
    /// An answer fitted its request since bytes were missed last.
    pub is_verified: bool,
    pub is_logged_in: bool,
    was_lost: bool,
    /// The server said before the capture who it is.
    pub is_known: bool,
    /// How it began, until an answer fits a request for the first time.
    pub origin: Option<Box<Origin>>,
    /// Requests that nobody answers, from before that.
    unproved: Vec<Request>,
    pub last_side: Option<Side>,
    pub server_flags: Flags,
    pub dialect: Dialect,
    pub user: Vec<u8>,
    pub host: Vec<u8>,
    pub database: Vec<u8>,
    pub requests: VecDeque<Request>,
    pending_bytes: usize,
    pub statements: Statements,
    pub answer: Answer,
    pub client: ClientSide,
    pub server: ServerSide,
    pub compression: Option<Box<Compression>>,
}

impl Session {
    pub fn new(opened: &Opened) -> Self {
        Session {
            id: opened.session,
            connection: None,
            phase: Phase::Start,
            is_verified: false,
            is_logged_in: false,
            was_lost: false,
            is_known: false,
            origin: Some(Box::new(Origin::new(opened.is_midstream))),
            unproved: Vec::new(),
            last_side: None,
            server_flags: Flags::empty(),
            dialect: Dialect::default(),
            user: Vec::new(),
            host: opened.client.ip().to_string().into_bytes(),
            database: Vec::new(),
            requests: VecDeque::new(),
            pending_bytes: 0,
            statements: Statements::default(),
            answer: Answer::default(),
            client: ClientSide::default(),
            server: ServerSide::default(),
            compression: None,
        }
    }

    /// No sense can be made of what comes, or bytes are missing (`reason` is None then): everything open ends.
    pub fn lose(&mut self, reason: Option<&str>, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        // Where nothing was ever understood, a guess went wrong and not the traffic.
        let is_guess = self.origin.as_ref().is_some_and(|origin| origin.is_missed);
        if let Some(reason) = reason.filter(|_| !is_guess) {
            shared.damage(self.id, reason);
        }
        self.end_open(shared)?;
        self.phase = Phase::Lost;
        self.was_lost = true;
        self.client = ClientSide::default();
        self.server = ServerSide::default();
        if let Some(compression) = &mut self.compression {
            **compression = Compression::default();
        }
        Ok(())
    }

    /// Ends what waits for its answer.
    pub fn end_open(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if self.answer.reply.stage == Stage::MaybeEnd {
            self.finish(self.answer.last_byte_ns, shared)?;
        }
        let unfinished = self.client.unfinished_bytes() + self.server.held_bytes();
        shared.coverage.skipped_bytes += unfinished;
        while let Some(request) = self.requests.pop_front() {
            if self.is_verified || self.phase == Phase::LoggingIn {
                shared.coverage.unanswered += 1;
                self.emit(&request, None, shared)?;
            } else {
                // What was taken for a request may have been none.
                shared.coverage.skipped_bytes += request.wire_bytes;
            }
            shared.recycle(request);
        }
        for request in std::mem::take(&mut self.unproved) {
            shared.coverage.skipped_bytes += request.wire_bytes;
        }
        self.pending_bytes = 0;
        self.answer = Answer::default();
        self.is_verified = false;
        Ok(())
    }

    /// Takes a whole request.
    pub fn ask(&mut self, mut request: Request, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if self.answer.reply.stage == Stage::MaybeEnd {
            self.dialect.deprecates_eof = Some(true);
            self.finish(self.answer.last_byte_ns, shared)?;
        }
        request.command = match by_byte(request.body.first().copied().unwrap_or(0)) {
            // Logins have no byte of their own; a client that sends this one gets an error.
            Command::Connect => Command::Other(0x0B),
            command => command,
        };
        if request.command == Command::Query {
            self.find_text(&mut request);
        }
        if request.command == Command::Other(PROCESS_KILL) {
            let named = request.body.get(1..5).and_then(|bytes| bytes.try_into().ok());
            request.statement = named.map(u32::from_le_bytes);
        }
        self.pending_bytes += request.body.len();
        self.requests.push_back(request);
        if self.requests.len() > MOST_PENDING || self.pending_bytes > shared.most_pending_bytes() {
            return self.lose(Some("too many requests wait for their answers"), shared);
        }
        if self.requests.len() == 1 {
            self.next_request(shared)?;
        }
        Ok(())
    }

    fn find_text(&mut self, request: &mut Request) {
        // No statement begins with NUL, but attributes that are none do.
        let has_attributes = match self.dialect.has_attributes {
            Some(has_attributes) => has_attributes,
            None => request.body.get(1..3) == Some(&[0, 1]),
        };
        if has_attributes {
            // What one request of a session shows that began before the capture holds for its others.
            self.dialect.has_attributes = Some(true);
            match text_start(&request.body) {
                Ok(start) => request.text_at = start,
                Err(_) => (request.is_cut, request.text_at) = (true, request.body.len()),
            }
        }
    }

    /// Looks at the request whose turn it is, and at those behind it that get no answer.
    pub fn next_request(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        while let Some(request) = self.requests.front_mut() {
            let stage = match request.command {
                Command::Connect | Command::ChangeUser => Stage::Login,
                Command::Prepare => Stage::Prepared,
                Command::Fetch => Stage::Rows,
                Command::Other(0x04) => Stage::Fields,
                Command::Other(0x09) => Stage::Text,
                // COM_BINLOG_DUMP, COM_TABLE_DUMP, COM_BINLOG_DUMP_GTID, COM_CLONE, COM_SUBSCRIBE_GROUP_REPLICATION_STREAM.
                Command::Other(0x12 | 0x13 | 0x1E | 0x20 | 0x21) => {
                    shared.coverage.replication_sessions += 1;
                    self.requests.clear();
                    self.phase = Phase::Ignored;
                    return Ok(());
                }
                Command::Quit | Command::Close | Command::Other(SEND_LONG_DATA) => Stage::Idle,
                _ => Stage::First,
            };
            let sequence = request.sequence;
            self.prepare_request(shared);
            if stage != Stage::Idle {
                self.answer.expect(stage, sequence);
                return Ok(());
            }
            self.finish_unanswered(shared)?;
        }
        Ok(())
    }

    /// Finds statement and parameters of the first request.
    fn prepare_request(&mut self, shared: &mut Shared<'_>) {
        let Some(request) = self.requests.front_mut() else { return };
        let is_bulk = request.command == Command::BulkExecute;
        let is_execute = request.command == Command::Execute || is_bulk;
        let has_statement = is_execute
            || matches!(
                request.command,
                Command::Fetch | Command::Close | Command::ResetStatement | Command::Other(SEND_LONG_DATA)
            );
        let Some(&[_, a, b, c, d]) = request.body.get(..5).filter(|_| has_statement) else { return };
        let id = self.statements.resolve(u32::from_le_bytes([a, b, c, d]));
        request.statement = Some(id);
        let Some((statement, others_bytes)) = self.statements.get_mut(id) else {
            shared.coverage.unknown_statements += u64::from(is_execute);
            return;
        };
        match request.command {
            Command::ResetStatement => statement.forget_long(),
            Command::Other(SEND_LONG_DATA) => {
                statement.ahead_bytes += request.wire_bytes;
                if let Some(&[low, high]) = request.body.get(5..7) {
                    let piece = if request.is_cut { b"" } else { &request.body[7..] };
                    let most = shared.options.max_text_bytes.saturating_sub(others_bytes);
                    let most = if request.is_cut { 0 } else { most };
                    statement.add_long(u16::from_le_bytes([low, high]), piece, most);
                }
            }
            _ if is_execute => {
                request.wire_bytes += statement.ahead_bytes;
                if request.body.get(5).is_some_and(|flags| flags & COUNTS_PARAMETERS != 0) && !is_bulk {
                    self.dialect.has_attributes.get_or_insert(true);
                }
                let attributes = self.dialect.has_attributes == Some(true);
                let bound = match (request.is_cut, is_bulk) {
                    (true, _) => {
                        statement.forget_long();
                        return;
                    }
                    (false, true) => statement.bind_bulk(&request.body, &mut request.parameters),
                    (false, false) => statement.bind(&request.body, attributes, &mut request.parameters),
                };
                match bound {
                    Ok(bound) => {
                        request.parameter_count = statement.parameters;
                        request.bound = Some(bound);
                    }
                    // Types are sent with the first execution, which may have been before.
                    Err(_) if self.is_known => {
                        request.is_cut = true;
                        shared.coverage.unbound_executions += 1;
                    }
                    // Types, or data sent ahead, may lie in a gap.
                    Err(_) if self.was_lost => {
                        request.is_cut = true;
                        shared.coverage.unknown_statements += 1;
                    }
                    Err(error) => {
                        request.is_cut = true;
                        shared.damage(self.id, &of_client(&error));
                    }
                }
            }
            _ => {}
        }
    }

    /// The first request gets no answer.
    fn finish_unanswered(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let Some(request) = self.requests.pop_front() else { return Ok(()) };
        self.pending_bytes = self.pending_bytes.saturating_sub(request.body.len());
        if self.origin.is_some() {
            return self.keep_unproved(request, shared);
        }
        self.end_unanswered(request, shared)
    }

    /// Without an answer nothing shows that it was a request: other protocols have bytes that look like one.
    fn keep_unproved(&mut self, request: Request, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let is_end = request.command == Command::Quit;
        if is_end || self.unproved.len() >= MOST_UNPROVED {
            shared.coverage.skipped_bytes += request.wire_bytes;
            shared.recycle(request);
        } else {
            self.unproved.push(request);
        }
        if is_end { self.lose(None, shared) } else { Ok(()) }
    }

    fn end_unanswered(&mut self, request: Request, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if request.command != Command::Other(SEND_LONG_DATA) {
            let mut event = self.event(request.start_ns, request.command);
            event.statement = request.statement;
            event.measures.set(Measure::RequestBytes, request.wire_bytes);
            event.outcome = Outcome::Ok;
            shared.emit(&event)?;
        }
        match request.command {
            Command::Quit => self.phase = Phase::Ignored,
            Command::Close => self.statements.remove(request.statement.unwrap_or(0)),
            _ => {}
        }
        shared.recycle(request);
        Ok(())
    }

    /// The answer to the first request is whole.
    pub fn finish(&mut self, now_ns: u64, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let Some(request) = self.requests.pop_front() else { return Ok(()) };
        self.pending_bytes = self.pending_bytes.saturating_sub(request.body.len());
        self.settle_origin(shared);
        for unanswered in std::mem::take(&mut self.unproved) {
            self.end_unanswered(unanswered, shared)?;
        }
        self.emit(&request, Some(now_ns), shared)?;
        self.is_verified = true;
        self.client.is_file = false;
        if self.answer.reply.error.is_none() {
            self.apply(&request, shared);
        } else if request.command == Command::Connect {
            self.phase = Phase::Ignored;
        }
        if let Some(schema) = self.answer.reply.schema.take() {
            self.database = schema;
        }
        shared.recycle(request);
        self.answer.reply.stage = Stage::Idle;
        self.next_request(shared)
    }

    /// What a request that went well changes for those behind it.
    fn apply(&mut self, request: &Request, shared: &mut Shared<'_>) {
        self.is_logged_in = true;
        match request.command {
            Command::Connect => {
                self.phase = Phase::Commands;
                let compressed = Flags::CLIENT_COMPRESS | Flags::CLIENT_ZSTD_COMPRESSION_ALGORITHM;
                self.compression = self.dialect.flags.intersects(compressed).then(Box::default);
            }
            Command::Prepare => {
                let Some(prepared) = self.answer.reply.prepared else { return };
                let most = shared.options.max_text_bytes;
                let (id, parameters) = (prepared.statement, prepared.parameters);
                let text = (request.text(), request.is_cut);
                if !self.statements.insert(id, text, parameters, most) {
                    shared.damage(self.id, "a session has more prepared statements than are kept");
                }
            }
            Command::InitDb => self.database = request.text().to_vec(),
            Command::Query if !self.dialect.flags.contains(Flags::CLIENT_SESSION_TRACK) => {
                if let Some(database) = sql::used_database(request.text()) {
                    self.database = database;
                }
            }
            Command::ChangeUser => {
                if let Ok((user, database)) = parse_change_user(request.text(), self.dialect.flags) {
                    (self.user, self.database) = (user.to_vec(), database.to_vec());
                }
                self.statements.clear();
            }
            Command::ResetConnection => self.statements.clear(),
            _ => {}
        }
    }

    /// An event of this session of which nothing else is known.
    pub fn event(&self, start_ns: u64, command: Command) -> Event<'_> {
        let mut event = Event::new(start_ns, self.id, command);
        event.connection = self.connection;
        (event.user, event.host, event.database) = (&self.user, &self.host, &self.database);
        event
    }

    /// Gives the event of a request to the sink: answered at `end_ns`, or never.
    fn emit(
        &mut self,
        request: &Request,
        end_ns: Option<u64>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        let has_hole = std::mem::take(&mut self.server.has_hole);
        let mut event = self.event(request.start_ns, request.command);
        event.statement = request.statement;
        event.measures.set(Measure::RequestBytes, request.wire_bytes);
        event.outcome = Outcome::Unanswered;
        event.is_cut = request.is_cut;
        match request.command {
            Command::Query => event.text = request.text(),
            Command::Prepare => {
                event.text = request.text();
                let prepared = self.answer.reply.prepared.filter(|_| end_ns.is_some());
                event.statement = prepared.map(|prepared| prepared.statement);
                event.parameter_count = prepared.map_or(0, |prepared| prepared.parameters);
            }
            Command::InitDb => event.database = request.text(),
            Command::ChangeUser => {
                if let Ok((user, database)) = parse_change_user(request.text(), self.dialect.flags) {
                    (event.user, event.database) = (user, database);
                }
            }
            Command::Execute | Command::Fetch | Command::BulkExecute => {
                if let Some(statement) = request.statement.and_then(|id| self.statements.get(id)) {
                    event.text = &statement.text;
                    event.is_cut |= statement.is_cut;
                }
                event.parameters = request.parameters();
                event.parameter_count = request.parameter_count;
            }
            _ => {}
        }
        if let Some(end_ns) = end_ns {
            let answer = &self.answer;
            event.outcome = answer.outcome();
            event.response_ns = Some(end_ns.saturating_sub(request.start_ns));
            event.first_byte_ns = answer.first_byte_ns.map(|first| first.saturating_sub(request.start_ns));
            // The rows of a cursor come with its fetches: how many there are, the execution does not say.
            let opens_cursor = request.command == Command::Execute && answer.reply.has_cursor();
            event.measures.set(Measure::RowsSent, (!opens_cursor).then_some(answer.reply.rows));
            event.measures.set(Measure::RowsAffected, answer.reply.affected);
            event.measures.set(Measure::ResponseBytes, answer.bytes);
            let warnings = answer.reply.error.is_none().then_some(u64::from(answer.reply.warnings));
            event.measures.set(Measure::Warnings, warnings);
            let is_whole = answer.reply.error.is_none() && !has_hole && !opens_cursor;
            let is_summed = shared.options.checksum && is_whole;
            event.checksum = is_summed.then(|| answer.checksum.value());
        }
        shared.emit(&event)
    }
}

/// What is wrong with a client's packet: where it is malformed, the error names the server.
pub(super) fn of_client(error: &mysql::Error) -> String {
    match error {
        mysql::Error::Malformed(what) => format!("the client sent a malformed packet: {what}"),
        error => error.to_string(),
    }
}

impl Shared<'_> {
    pub(super) fn emit(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.coverage.events += u64::from(event.is_asked());
        if !self.options.has_times {
            let untimed = Event { start_ns: 0, response_ns: None, first_byte_ns: None, ..event.clone() };
            return self.sink.event(&untimed);
        }
        self.sink.event(event)
    }

    pub(super) fn damage(&mut self, session: u64, reason: &str) {
        self.coverage.damage(
            &self.options.name,
            self.offset,
            session,
            format!("session {session}: {reason}"),
        );
    }

    pub(super) fn recycle(&mut self, request: Request) {
        if self.spare.len() < SPARE_REQUESTS {
            self.spare.push(request.reused());
        }
    }

    fn most_pending_bytes(&self) -> usize {
        self.options.max_text_bytes.saturating_mul(2)
    }
}
