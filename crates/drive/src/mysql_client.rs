//! The MySQL client of one connection: login, preparation, and a script's operations.

use std::sync::Arc;

use crate::reply::Reply;
use crate::script::{Script, Step, Workload};
use engine::client::{Choice, Client, Failure, Progress, Random, UNEXPECTED_REPLY};
use mysql::answers::Answers;
use mysql::handshake::{Handshake, HandshakeState, UNEXPECTED_PACKET};
use mysql::request::{Requests, is_execution, write_command, write_query};
use mysql::{Error, Options};

const COMMAND_PREPARE: u8 = 0x16;

pub struct MysqlClient<'a> {
    options: &'a Options,
    workload: Arc<dyn Workload>,
    script: Box<dyn Script>,
    answers: Answers,
    statement_ids: Vec<u32>,
    phase: Phase<'a>,
    /// The current operation.
    rows: u64,
    bytes: u64,
}

enum Phase<'a> {
    Down,
    /// Boxed: it is needed for some milliseconds only, and takes 16 KiB.
    LoggingIn(Box<Handshake<'a>>),
    Preparing,
    Idle,
    Working,
    /// The operation has failed; its transaction is being rolled back.
    RollingBack(Failure),
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

    fn log_in(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Progress, Error> {
        let Phase::LoggingIn(handshake) = &mut self.phase else { unreachable!("called while logging in") };
        Ok(match handshake.receive(input, out)? {
            HandshakeState::Waiting => Progress::Waiting,
            HandshakeState::Encrypt(session) => Progress::Encrypt(session),
            HandshakeState::Done => {
                self.statement_ids.clear();
                self.prepare_next(out)
            }
        })
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

    /// Continues the script.
    fn step(&mut self, is_first: bool, out: &mut Vec<u8>, random: &mut Random) -> Progress {
        let start = out.len();
        let mut keeps_rows = false;
        let mut requests =
            Requests::new(out, self.workload.statements(), &self.statement_ids, &mut keeps_rows);
        let reply = Reply::new(self.answers.affected_rows(), self.answers.row_count(), &self.answers.rows);
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

    /// The operation has failed. Its transaction must not stay open, or the next operation would continue in it.
    fn fail(&mut self, failure: Failure, out: &mut Vec<u8>) -> Progress {
        // After a lost race the state is unknown: a deadlock ends the transaction, a lock wait does not.
        if self.answers.in_transaction() {
            self.answers.expect(false, false);
            write_query("ROLLBACK", out);
            self.phase = Phase::RollingBack(failure);
            return Progress::Waiting;
        }
        self.phase = Phase::Idle;
        Progress::Failed(failure)
    }

    /// A reply is complete.
    fn take_reply(&mut self, out: &mut Vec<u8>, random: &mut Random) -> Progress {
        let error = self.answers.take_error();
        self.rows += self.answers.row_count();
        self.bytes += self.answers.bytes;
        match (std::mem::replace(&mut self.phase, Phase::Idle), error) {
            (Phase::Working, None) => self.step(false, out, random),
            (Phase::Working, Some(error)) => {
                let mut failure = Failure::from(&error);
                failure.is_lost_race |= self.workload.may_lose_race(failure.code);
                self.fail(failure, out)
            }
            (Phase::RollingBack(failure), None) => Progress::Failed(failure),
            (Phase::Preparing, None) => {
                self.statement_ids.push(self.answers.statement_id());
                self.prepare_next(out)
            }
            // Without its prepared statements, or if ROLLBACK fails, the connection is unusable.
            (phase, Some(error)) => {
                self.phase = phase;
                self.lose(&error)
            }
            (_, None) => self.lose(&UNEXPECTED_PACKET),
        }
    }

    fn lose(&mut self, error: &Error) -> Progress {
        let failure = self.first_failure().unwrap_or_else(|| Failure::from(error));
        self.phase = Phase::Down;
        Progress::Broken(failure)
    }
}

impl Client for MysqlClient<'_> {
    fn connected(&mut self, _out: &mut Vec<u8>) -> Progress {
        self.phase = Phase::LoggingIn(Box::new(Handshake::new(self.options)));
        self.answers = Answers::default();
        Progress::Waiting
    }

    fn encrypted(&mut self, out: &mut Vec<u8>) {
        if let Phase::LoggingIn(handshake) = &mut self.phase {
            handshake.encrypted(out);
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
