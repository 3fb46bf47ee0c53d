//! The MySQL client of one connection: login, preparation, and a script's operations.

use std::sync::Arc;

use rustls::ClientConnection;

use crate::drive::answers::Answers;
use crate::drive::client::{
    CANNOT_CONNECT, CONNECTION_LOST, Choice, Client, Failure, MALFORMED, NO_ANSWER, Progress, Random,
    UNEXPECTED_REPLY,
};
use crate::drive::reply::Reply;
use crate::drive::request::{Requests, is_execution, write_command, write_query};
use crate::drive::script::{Script, Step, Workload};
use crate::mysql::auth::{Channel, Login};
use crate::mysql::frames::{Frames, encode};
use crate::mysql::protocol::{LoginStep, capabilities, login, parse_greeting, parse_login_step, ssl_request};
use crate::mysql::{Endpoint, Error, Options, tls};

const COMMAND_PREPARE: u8 = 0x16;
/// Deadlock, lock wait timeout, changed row: what sysbench begins anew, too.
const LOST_RACES: [u16; 3] = [1213, 1205, 1020];
const UNASKED: Error = Error::Malformed("a packet that nobody asked for");

pub struct MysqlClient<'a> {
    options: &'a Options,
    workload: Arc<dyn Workload>,
    script: Box<dyn Script>,
    answers: Answers,
    statement_ids: Vec<u32>,
    phase: Phase<'a>,
    /// Of the operation at work.
    rows: u64,
    bytes: u64,
}

enum Phase<'a> {
    Down,
    /// Boxed: it is needed for some milliseconds only, and takes 16 KiB.
    LoggingIn(Box<Entry<'a>>),
    Preparing,
    Idle,
    Working,
    /// The operation has failed; its transaction is being rolled back.
    RollingBack(Failure),
}

/// What a login needs until it is done.
#[derive(Default)]
struct Entry<'a> {
    frames: Frames,
    login: Option<Login<'a>>,
    /// What the answer to the greeting will be, once the connection is encrypted.
    after_tls: Option<Vec<u8>>,
    is_greeted: bool,
}

impl<'a> MysqlClient<'a> {
    pub fn new(options: &'a Options, workload: Arc<dyn Workload>, client: usize, clients: usize) -> Self {
        let script = workload.script(client, clients);
        Self {
            options,
            workload,
            script,
            answers: Answers::default(),
            statement_ids: Vec::new(),
            phase: Phase::Down,
            rows: 0,
            bytes: 0,
        }
    }

    /// Reads what the login needs; true when it is done.
    fn log_in(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<Progress, Error> {
        let Phase::LoggingIn(entry) = &mut self.phase else { unreachable!("called while logging in") };
        while !input.is_empty() {
            let space = entry.frames.space();
            let count = space.len().min(input.len());
            space[..count].copy_from_slice(&input[..count]);
            entry.frames.advance(count);
            input = &input[count..];
        }
        while entry.frames.has_payload()? {
            if !entry.is_greeted {
                entry.is_greeted = true;
                if let Some(session) = greet(entry, self.options, out)? {
                    return Ok(Progress::Encrypt(session));
                }
                continue;
            }
            let payload = entry.frames.payload();
            let answer = match parse_login_step(payload)? {
                LoginStep::Done if entry.frames.has_rest() => return Err(UNASKED),
                LoginStep::Done => {
                    self.statement_ids.clear();
                    return Ok(self.prepare_next(out));
                }
                LoginStep::Switch { plugin, challenge } => {
                    let channel = channel(self.options, entry.after_tls.is_some());
                    let login = Login::start(plugin, challenge, &self.options.password, channel)?;
                    Some(entry.login.insert(login).first_answer()?)
                }
                LoginStep::Challenge(challenge) => match &mut entry.login {
                    Some(login) => login.answer(challenge)?,
                    None => return Err(Error::Malformed("a challenge without a plugin")),
                },
            };
            if let Some(answer) = answer {
                encode(&answer, &mut entry.frames.sequence, out);
            }
        }
        Ok(Progress::Waiting)
    }

    fn prepare_next(&mut self, out: &mut Vec<u8>) -> Progress {
        let statements = self.workload.statements();
        match statements.get(self.statement_ids.len()) {
            Some(statement) if self.workload.is_prepared() => {
                self.phase = Phase::Preparing;
                self.answers.expect_prepared();
                write_command(COMMAND_PREPARE, statement.sql().as_bytes(), out);
                Progress::Waiting
            }
            _ => {
                self.phase = Phase::Idle;
                Progress::Ready
            }
        }
    }

    /// Lets the script go on.
    fn step(&mut self, is_first: bool, out: &mut Vec<u8>, random: &mut Random) -> Progress {
        let start = out.len();
        let mut keeps_rows = false;
        let mut requests =
            Requests::new(out, self.workload.statements(), &self.statement_ids, &mut keeps_rows);
        let reply = Reply::new(self.answers.affected_rows, self.answers.row_count, &self.answers.rows);
        match self.script.step((!is_first).then_some(&reply), &mut requests, random) {
            Step::Wait => {
                let is_binary = is_execution(&out[start..]);
                self.answers.expect(keeps_rows, is_binary);
                self.phase = Phase::Working;
                Progress::Waiting
            }
            Step::Done => {
                self.phase = Phase::Idle;
                Progress::Ended { rows: self.rows, bytes: self.bytes }
            }
            Step::Failed(what) => self.fail(Failure::new(UNEXPECTED_REPLY, what), out),
        }
    }

    /// The operation has failed. No transaction of it may stay open: the next one would go on in it.
    fn fail(&mut self, failure: Failure, out: &mut Vec<u8>) -> Progress {
        // A lost race leaves us in the dark: a deadlock has ended the transaction, a lock wait has not.
        if self.answers.in_transaction() {
            self.answers.expect(false, false);
            write_query("ROLLBACK", out);
            self.phase = Phase::RollingBack(failure);
            return Progress::Waiting;
        }
        self.phase = Phase::Idle;
        Progress::Failed(failure)
    }

    /// A reply is whole.
    fn take_reply(&mut self, out: &mut Vec<u8>, random: &mut Random) -> Progress {
        let error = self.answers.take_error();
        self.rows += self.answers.row_count;
        self.bytes += self.answers.bytes;
        match (std::mem::replace(&mut self.phase, Phase::Idle), error) {
            (Phase::Working, None) => self.step(false, out, random),
            (Phase::Working, Some(error)) => self.fail(failure(&error), out),
            (Phase::RollingBack(failure), None) => Progress::Failed(failure),
            (Phase::Preparing, None) => {
                self.statement_ids.push(self.answers.statement_id);
                self.prepare_next(out)
            }
            // A statement that cannot be prepared or rolled back leaves nothing to work with.
            (phase, Some(error)) => {
                self.phase = phase;
                self.lose(&error)
            }
            (_, None) => self.lose(&UNASKED),
        }
    }

    fn lose(&mut self, error: &Error) -> Progress {
        let failure = self.first_failure().unwrap_or_else(|| failure(error));
        self.phase = Phase::Down;
        Progress::Broken(failure)
    }
}

impl Client for MysqlClient<'_> {
    fn connected(&mut self, _out: &mut Vec<u8>) -> Progress {
        self.phase = Phase::LoggingIn(Box::default());
        self.answers = Answers::default();
        Progress::Waiting
    }

    fn encrypted(&mut self, out: &mut Vec<u8>) {
        if let Phase::LoggingIn(entry) = &mut self.phase
            && let Some(answer) = &entry.after_tls
        {
            encode(answer, &mut entry.frames.sequence, out);
        }
    }

    fn receive(&mut self, input: &[u8], out: &mut Vec<u8>, random: &mut Random) -> Progress {
        if matches!(self.phase, Phase::LoggingIn(_)) {
            return self.log_in(input, out).unwrap_or_else(|error| self.lose(&error));
        }
        match self.answers.feed(input) {
            Ok(true) => self.take_reply(out, random),
            Ok(false) => Progress::Waiting,
            Err(error) => self.lose(&error),
        }
    }

    fn first_failure(&mut self) -> Option<Failure> {
        match std::mem::replace(&mut self.phase, Phase::Down) {
            Phase::RollingBack(failure) => Some(failure),
            _ => None,
        }
    }

    fn choose(&mut self, random: &mut Random) -> Choice {
        self.script.choose(random)
    }

    fn begin(&mut self, out: &mut Vec<u8>, random: &mut Random) -> Progress {
        self.rows = 0;
        self.bytes = 0;
        self.step(true, out, random)
    }
}

/// Answers the greeting; with TLS only the wish for it goes out yet, and the session is returned.
fn greet<'a>(
    entry: &mut Entry<'a>,
    options: &'a Options,
    out: &mut Vec<u8>,
) -> Result<Option<Box<ClientConnection>>, Error> {
    let greeting = parse_greeting(entry.frames.payload())?;
    let is_socket = matches!(options.endpoint, Endpoint::Socket(_));
    let uses_tls = tls::decide(options.tls, is_socket, &greeting)?;
    let capabilities = capabilities(&greeting, uses_tls, options.database.is_some());
    let channel = channel(options, uses_tls);
    // As in the blocking client: the user's plugin may be one we speak even if the server's default is not.
    entry.login = Login::start(&greeting.plugin, &greeting.nonce, &options.password, channel).ok();
    let (plugin, answer) = match &mut entry.login {
        Some(login) => (&greeting.plugin[..], login.first_answer()?),
        None => (&b"mysql_native_password"[..], Vec::new()),
    };
    let answer = login(capabilities, &options.user, options.database.as_deref(), plugin, &answer);
    if !uses_tls {
        encode(&answer, &mut entry.frames.sequence, out);
        return Ok(None);
    }
    if entry.frames.has_rest() {
        return Err(Error::Malformed("there are bytes between the greeting and TLS"));
    }
    encode(&ssl_request(capabilities), &mut entry.frames.sequence, out);
    entry.after_tls = Some(answer);
    tls::session(options).map(|session| Some(Box::new(session)))
}

fn channel(options: &Options, uses_tls: bool) -> Channel {
    match (&options.endpoint, uses_tls) {
        (_, true) => Channel::Tls,
        (Endpoint::Socket(_), false) => Channel::Socket,
        (Endpoint::Tcp { .. }, false) => Channel::Plain,
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Server { code, message, .. } => {
            Failure { code: *code, message: message.clone().into(), is_lost_race: LOST_RACES.contains(code) }
        }
        Error::Closed | Error::Broken(_) => Failure::new(CONNECTION_LOST, error.to_string()),
        Error::Connect { .. } | Error::Login(_) | Error::Tls(_) => {
            Failure::new(CANNOT_CONNECT, error.to_string())
        }
        Error::Timeout(_) => Failure::new(NO_ANSWER, error.to_string()),
        Error::Malformed(_) => Failure::new(MALFORMED, error.to_string()),
    }
}
