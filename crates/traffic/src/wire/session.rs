//! One connection: where it stands, what was asked and not answered yet, and the events that come of it.

use std::collections::VecDeque;

use mysql_common::constants::CapabilityFlags as Flags;

use super::Shared;
use super::answer::{Answer, Dialect, Stage};
use super::client::ClientSide;
use super::inflate::Inflate;
use super::login::parse_change_user;
use super::resync;
use super::server::ServerSide;
use super::statements::{Bound, Statements, text_start};
use crate::commands::by_byte;
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure;
use crate::stream::{Opened, Side};

/// Requests that may wait for their answers. No client sends so many ahead.
const MOST_PENDING: usize = 65_536;
pub const SEND_LONG_DATA: u8 = 0x18;
pub const BULK_EXECUTE: u8 = 0xFA;

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

/// What a client asked for, until it is answered.
#[derive(Debug)]
pub struct Request {
    pub command: Command,
    /// The payload with its first byte; for a login the login itself.
    pub body: Vec<u8>,
    /// Not all of the payload is in `body`.
    pub is_cut: bool,
    pub start_ns: u64,
    pub wire_bytes: u64,
    /// The number that the answer's first packet must have.
    pub sequence: u8,
    text_at: usize,
    statement: Option<u32>,
    bound: Option<Bound>,
    parameters: Vec<u8>,
    parameter_count: u16,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            command: Command::Connect,
            body: Vec::new(),
            is_cut: false,
            start_ns: 0,
            wire_bytes: 0,
            sequence: 0,
            text_at: 1,
            statement: None,
            bound: None,
            parameters: Vec::new(),
            parameter_count: 0,
        }
    }
}

impl Request {
    pub fn at(start_ns: u64) -> Self {
        Request { start_ns, ..Request::default() }
    }

    /// A request of which nothing is known, with the buffers of this one.
    pub fn reused(mut self) -> Self {
        let (mut body, mut parameters) =
            (std::mem::take(&mut self.body), std::mem::take(&mut self.parameters));
        for buffer in [&mut body, &mut parameters] {
            buffer.clear();
            buffer.shrink_to(super::KEPT_BUFFER);
        }
        Request { body, parameters, ..Request::default() }
    }

    fn text(&self) -> &[u8] {
        self.body.get(self.text_at..).unwrap_or(b"")
    }

    fn parameters(&self) -> &[u8] {
        match self.bound {
            Some(Bound::AsSent(start)) => self.body.get(start..).unwrap_or(b""),
            Some(Bound::Rewritten) => &self.parameters,
            None => b"",
        }
    }
}

#[derive(Default)]
pub struct Compression {
    pub client: Inflate,
    pub server: Inflate,
}

pub struct Session {
    pub id: u64,
    pub phase: Phase,
    /// An answer fitted its request since bytes were missed last.
    is_verified: bool,
    is_logged_in: bool,
    was_lost: bool,
    last_side: Option<Side>,
    pub server_flags: Flags,
    pub dialect: Dialect,
    pub user: Vec<u8>,
    host: Vec<u8>,
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
            phase: Phase::Start,
            is_verified: false,
            is_logged_in: false,
            was_lost: false,
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

    pub fn bytes(
        &mut self,
        time_ns: u64,
        from: Side,
        bytes: &[u8],
        inflated: &mut Vec<u8>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let follows_quiet = self.last_side.replace(from) != Some(Side::Client);
        if self.phase == Phase::Start && !self.begins(from, bytes) {
            shared.coverage.midstream_sessions += 1;
            self.phase = Phase::Lost;
        }
        if self.phase == Phase::Lost && resync::is_tls(bytes) {
            shared.coverage.tls_sessions += 1;
            self.phase = Phase::Ignored;
        }
        if self.phase == Phase::Lost && from == Side::Client && follows_quiet {
            self.resume(bytes, inflated);
        }
        if matches!(self.phase, Phase::Lost | Phase::Ignored) {
            shared.coverage.skipped_bytes += bytes.len() as u64;
            return Ok(());
        }
        if self.compression.is_some() {
            return self.compressed(time_ns, from, bytes, inflated, shared);
        }
        self.plain(time_ns, time_ns, from, bytes, shared)
    }

    fn plain(
        &mut self,
        first_ns: u64,
        now_ns: u64,
        from: Side,
        bytes: &[u8],
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        match from {
            Side::Client => self.client_bytes(first_ns, now_ns, bytes, shared),
            Side::Server => self.server_bytes(first_ns, now_ns, bytes, shared),
        }
    }

    fn compressed(
        &mut self,
        time_ns: u64,
        from: Side,
        mut bytes: &[u8],
        inflated: &mut Vec<u8>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        while let (Some(compression), false) = (&mut self.compression, bytes.is_empty()) {
            let inflate = match from {
                Side::Client => &mut compression.client,
                Side::Server => &mut compression.server,
            };
            let frame = match inflate.next(bytes, time_ns, inflated) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(error) => return self.lose(Some(&error.to_string()), shared),
            };
            bytes = &bytes[frame.used..];
            match from {
                Side::Client => self.client.frame_bytes += frame.wire_bytes,
                Side::Server => self.answer.bytes += frame.wire_bytes,
            }
            self.plain(frame.first_ns, time_ns, from, inflated, shared)?;
            if matches!(self.phase, Phase::Lost | Phase::Ignored) {
                shared.coverage.skipped_bytes += bytes.len() as u64;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a connection may begin with these bytes: the server speaks first.
    fn begins(&self, from: Side, bytes: &[u8]) -> bool {
        let has_more = !self.server.is_between_packets();
        from == Side::Server && (has_more || bytes.len() < 5 || resync::is_greeting(bytes))
    }

    /// Goes on where a request begins.
    fn resume(&mut self, bytes: &[u8], inflated: &mut Vec<u8>) {
        let is_plain = self.compression.is_none() && resync::is_request(bytes);
        if !is_plain {
            let may_be = self.compression.is_some() || !self.is_logged_in;
            if !may_be || !resync::is_compressed_request(bytes, inflated) {
                return;
            }
            self.compression = Some(Box::default());
        }
        self.phase = Phase::Commands;
        self.is_verified = false;
    }

    /// No sense can be made of what comes, or bytes are missing (`reason` is None then): everything open ends.
    pub fn lose(&mut self, reason: Option<&str>, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if let Some(reason) = reason {
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
    fn end_open(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if self.answer.stage == Stage::MaybeEnd {
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
        self.pending_bytes = 0;
        self.answer = Answer::default();
        self.is_verified = false;
        Ok(())
    }

    pub fn gap(
        &mut self,
        now_ns: u64,
        from: Side,
        missing: Option<u64>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        match self.phase {
            Phase::Ignored | Phase::Lost => return Ok(()),
            Phase::Start => shared.coverage.midstream_sessions += 1,
            Phase::Greeted | Phase::LoggingIn | Phase::Commands => {}
        }
        let missing = missing.and_then(|missing| usize::try_from(missing).ok());
        self.last_side = Some(from);
        // What nobody would have looked at is not missed; of a request, only its text is.
        if let (Some(missing), None) = (missing, &self.compression) {
            match from {
                Side::Server if self.server.pass_unseen(missing) => return Ok(()),
                Side::Client => match self.client.pass_unseen(missing) {
                    Some(true) => return self.end_frame(now_ns, shared),
                    Some(false) => return Ok(()),
                    None => {}
                },
                Side::Server => {}
            }
        }
        self.lose(None, shared)
    }

    pub fn closed(&mut self, time_ns: u64, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let was_known = self.is_logged_in && self.phase != Phase::Ignored;
        self.end_open(shared)?;
        if was_known {
            let mut event = Event::new(time_ns, self.id, Command::Quit);
            (event.user, event.host, event.database) = (&self.user, &self.host, &self.database);
            shared.emit(&event)?;
        }
        Ok(())
    }

    /// The input ends here, which says nothing about the connection.
    pub fn cut(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        self.end_open(shared)
    }

    /// Takes a whole request.
    pub fn ask(&mut self, mut request: Request, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        if self.answer.stage == Stage::MaybeEnd {
            self.dialect.deprecates_eof = Some(true);
            self.finish(self.answer.last_byte_ns, shared)?;
        }
        request.command = match by_byte(request.body.first().copied().unwrap_or(0)) {
            // Logins have no byte of their own; whoever sends this one is told so.
            Command::Connect => Command::Other(0x0B),
            command => command,
        };
        if request.command == Command::Query {
            self.find_text(&mut request);
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
            match text_start(&request.body) {
                Ok(start) => request.text_at = start,
                Err(_) => (request.is_cut, request.text_at) = (true, request.body.len()),
            }
        }
    }

    /// Looks at the request whose turn it is, and at those behind it that nobody answers.
    pub fn next_request(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        while let Some(request) = self.requests.front_mut() {
            let stage = match request.command {
                Command::Connect | Command::ChangeUser => Stage::Login,
                Command::Prepare => Stage::Prepared,
                Command::Fetch => Stage::Rows,
                Command::Other(0x04) => Stage::Fields,
                Command::Other(0x09) => Stage::Text,
                // COM_BINLOG_DUMP, COM_TABLE_DUMP, COM_BINLOG_DUMP_GTID, COM_CLONE.
                Command::Other(0x12 | 0x13 | 0x1E | 0x20) => {
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
        let is_bulk = request.command == Command::Other(BULK_EXECUTE);
        let is_execute = request.command == Command::Execute || is_bulk;
        let has_statement = is_execute
            || matches!(
                request.command,
                Command::Fetch | Command::Close | Command::ResetStatement | Command::Other(SEND_LONG_DATA)
            );
        let Some(&[_, a, b, c, d]) = request.body.get(..5).filter(|_| has_statement) else { return };
        let id = self.statements.resolve(u32::from_le_bytes([a, b, c, d]));
        request.statement = Some(id);
        let Some(statement) = self.statements.get_mut(id) else {
            shared.coverage.unknown_statements += u64::from(is_execute);
            return;
        };
        match request.command {
            Command::ResetStatement => statement.forget_long(),
            Command::Other(SEND_LONG_DATA) => {
                statement.ahead_bytes += request.wire_bytes;
                if let Some(&[low, high]) = request.body.get(5..7) {
                    let piece = if request.is_cut { b"" } else { &request.body[7..] };
                    let most = if request.is_cut { 0 } else { shared.options.max_text_bytes };
                    statement.add_long(u16::from_le_bytes([low, high]), piece, most);
                }
            }
            _ if is_execute => {
                request.wire_bytes += statement.ahead_bytes;
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
                    // Types, or data sent ahead, may lie in a gap.
                    Err(_) if self.was_lost => {
                        request.is_cut = true;
                        shared.coverage.unknown_statements += 1;
                    }
                    Err(error) => {
                        request.is_cut = true;
                        shared.damage(self.id, &error.to_string());
                    }
                }
            }
            _ => {}
        }
    }

    /// The first request is one that nobody answers.
    fn finish_unanswered(&mut self, shared: &mut Shared<'_>) -> anyhow::Result<()> {
        let Some(request) = self.requests.pop_front() else { return Ok(()) };
        self.pending_bytes = self.pending_bytes.saturating_sub(request.body.len());
        if request.command != Command::Other(SEND_LONG_DATA) {
            let mut event = Event::new(request.start_ns, self.id, request.command);
            (event.user, event.host, event.database) = (&self.user, &self.host, &self.database);
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
        self.emit(&request, Some(now_ns), shared)?;
        self.is_verified = true;
        self.client.is_file = false;
        if self.answer.error.is_none() {
            self.apply(&request, shared);
        } else if request.command == Command::Connect {
            self.phase = Phase::Ignored;
        }
        if let Some(schema) = self.answer.schema.take() {
            self.database = schema;
        }
        shared.recycle(request);
        self.answer.stage = Stage::Idle;
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
                let Some(prepared) = self.answer.prepared else { return };
                let most = shared.options.max_text_bytes;
                let (id, parameters) = (prepared.statement, prepared.parameters);
                let text = (request.text(), request.is_cut);
                if !self.statements.insert(id, text, parameters, most) {
                    shared.damage(self.id, "a session has more prepared statements than are kept");
                }
            }
            Command::InitDb => self.database = request.text().to_vec(),
            Command::Query if !self.dialect.flags.contains(Flags::CLIENT_SESSION_TRACK) => {
                if let Some(database) = resync::used_database(request.text()) {
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

    /// Gives the event of a request to the sink: answered at `end_ns`, or never.
    fn emit(
        &mut self,
        request: &Request,
        end_ns: Option<u64>,
        shared: &mut Shared<'_>,
    ) -> anyhow::Result<()> {
        let mut event = Event::new(request.start_ns, self.id, request.command);
        (event.user, event.host, event.database) = (&self.user, &self.host, &self.database);
        event.statement = request.statement;
        event.measures.set(Measure::RequestBytes, request.wire_bytes);
        event.outcome = Outcome::Unanswered;
        event.is_cut = request.is_cut;
        match request.command {
            Command::Query => event.text = request.text(),
            Command::Prepare => {
                event.text = request.text();
                let prepared = self.answer.prepared.filter(|_| end_ns.is_some());
                event.statement = prepared.map(|prepared| prepared.statement);
                event.parameter_count = prepared.map_or(0, |prepared| prepared.parameters);
            }
            Command::InitDb => event.database = request.text(),
            Command::ChangeUser => {
                if let Ok((user, database)) = parse_change_user(request.text(), self.dialect.flags) {
                    (event.user, event.database) = (user, database);
                }
            }
            Command::Execute | Command::Fetch | Command::Other(BULK_EXECUTE) => {
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
            event.measures.set(Measure::RowsSent, answer.rows);
            event.measures.set(Measure::RowsAffected, answer.affected);
            event.measures.set(Measure::ResponseBytes, answer.bytes);
            let warnings = answer.error.is_none().then_some(u64::from(answer.warnings));
            event.measures.set(Measure::Warnings, warnings);
            let is_summed = shared.options.checksum && answer.error.is_none() && !self.server.has_hole;
            event.checksum = is_summed.then(|| answer.checksum.value());
        }
        self.server.has_hole = false;
        shared.emit(&event)
    }
}

impl Shared<'_> {
    fn emit(&mut self, event: &Event<'_>) -> anyhow::Result<()> {
        self.coverage.events += 1;
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
        if self.spare.len() < super::SPARE_REQUESTS {
            self.spare.push(request.reused());
        }
    }

    fn most_pending_bytes(&self) -> usize {
        self.options.max_text_bytes.saturating_mul(2)
    }
}
