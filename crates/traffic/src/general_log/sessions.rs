//! Who is behind a thread's number, as far as the log told.

use std::collections::{HashMap, HashSet};

use memchr::memmem;
use memchr::memrchr;

use crate::event::Command;

/// How many are remembered at least; twice as many at most.
const KEPT: usize = 1 << 16;
/// Names are not longer; what is, no server wrote.
const NAME_BYTES: usize = 1024;

/// How a line begins that refuses a login, or a database.
pub(super) const DENIED: &[u8] = b"Access denied for user '";

/// Sessions by thread. The ones not heard of for longest are forgotten first: whole generations at a time.
#[derive(Default)]
pub(super) struct Sessions {
    young: HashMap<u64, Session>,
    old: HashMap<u64, Session>,
}

/// Threads whose last statement was SQL's own PREPARE or EXECUTE. Servers log it as a query, and what it prepares or
/// runs in lines of its own behind it, as if the client had sent that, too.
#[derive(Default)]
pub(super) struct Dynamic {
    threads: HashSet<u64>,
}

impl Dynamic {
    /// Whether the line repeats what the thread's statement before it is.
    pub(super) fn repeats(&mut self, thread: u64, command: Command, argument: &[u8]) -> bool {
        match command {
            Command::Prepare | Command::Execute => self.threads.contains(&thread),
            Command::Query if sql::is_dynamic(argument) => {
                if self.threads.len() >= KEPT {
                    self.threads.clear();
                }
                self.threads.insert(thread);
                false
            }
            _ => {
                // Hardly any traffic has them.
                if !self.threads.is_empty() {
                    self.threads.remove(&thread);
                }
                false
            }
        }
    }
}

/// `user@host`, and the database.
#[derive(Clone, Default)]
pub(super) struct Session {
    names: Vec<u8>,
    user_bytes: usize,
    database: Vec<u8>,
    last: Last,
}

/// What a line that refuses a database may belong to.
#[derive(Clone, Default)]
pub(super) enum Last {
    /// Nothing before it: it is a command of the protocol.
    #[default]
    Other,
    Login,
    /// USE, with the database before it.
    Use(Vec<u8>),
}

impl Session {
    pub(super) fn user(&self) -> &[u8] {
        &self.names[..self.user_bytes]
    }

    pub(super) fn host(&self) -> &[u8] {
        &self.names[self.user_bytes..]
    }

    pub(super) fn database(&self) -> &[u8] {
        &self.database
    }

    fn login(argument: &[u8]) -> Option<Self> {
        let (user, host, database) =
            if argument.starts_with(b"Access denied") { denied(argument)? } else { login(argument)? };
        let names = [user, host].concat();
        (names.len() <= NAME_BYTES && database.len() <= NAME_BYTES).then(|| Self {
            names,
            user_bytes: user.len(),
            database: database.to_vec(),
            last: Last::Login,
        })
    }
}

impl Sessions {
    /// The session as it is for this command.
    pub(super) fn update(&mut self, thread: u64, command: Command, argument: &[u8]) -> Option<&Session> {
        match command {
            Command::Connect | Command::ChangeUser => {
                if let Some(session) = Session::login(argument) {
                    self.insert(thread, session);
                }
            }
            Command::InitDb if !argument.starts_with(DENIED) => self.set_database(thread, argument),
            _ => {
                if let Some(session) = self.young.get_mut(&thread) {
                    session.last = Last::Other;
                }
            }
        }
        if !self.young.contains_key(&thread)
            && let Some(session) = self.old.remove(&thread)
        {
            self.insert(thread, session);
        }
        self.young.get(&thread)
    }

    /// A database was refused: what refused it, which changed nothing.
    pub(super) fn refused(&mut self, thread: u64) -> Last {
        let Some(session) = self.young.get_mut(&thread) else { return Last::Other };
        let last = std::mem::take(&mut session.last);
        if let Last::Use(database) = &last {
            session.database.clone_from(database);
        }
        last
    }

    /// What the command changes for those after it.
    pub(super) fn after(&mut self, thread: u64, command: Command, argument: &[u8]) {
        match command {
            Command::Quit => {
                self.young.remove(&thread);
                self.old.remove(&thread);
            }
            Command::Query => {
                if let Some(database) = sql::used_database(argument) {
                    let before = self.young.get(&thread).map(|session| session.database.clone());
                    self.set_database(thread, &database);
                    if let Some(session) = self.young.get_mut(&thread) {
                        session.last = Last::Use(before.unwrap_or_default());
                    }
                }
            }
            _ => {}
        }
    }

    fn set_database(&mut self, thread: u64, database: &[u8]) {
        if database.len() > NAME_BYTES {
            return;
        }
        let mut session = self.young.remove(&thread).or_else(|| self.old.remove(&thread)).unwrap_or_default();
        session.database.clear();
        session.database.extend_from_slice(database);
        self.insert(thread, session);
    }

    fn insert(&mut self, thread: u64, session: Session) {
        if self.young.len() >= KEPT {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(thread, session);
    }
}

/// `user@host [as account] on [database] [using Socket]`: read from the right, because names may hold anything.
fn login(argument: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let argument = memmem::rfind(argument, b" using ").map_or(argument, |at| &argument[..at]);
    let (names, database) = match memmem::rfind(argument, b" on ") {
        Some(at) => (&argument[..at], &argument[at + 4..]),
        None => (argument.strip_suffix(b" on").unwrap_or(argument), &b""[..]),
    };
    let at = memrchr(b'@', names)?;
    let host = &names[at + 1..];
    let host = memmem::find(host, b" as ").map_or(host, |end| &host[..end]);
    Some((&names[..at], host.trim_ascii(), database.trim_ascii()))
}

/// `Access denied for user 'name'@'host' (using password: YES)`.
fn denied(argument: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let user = memmem::find(argument, b"user '")? + 6;
    let between = memmem::rfind(argument, b"'@'")?;
    let host = argument.get(between + 3..)?;
    let host = &host[..memchr::memchr(b'\'', host)?];
    Some((argument.get(user..between)?, host, b""))
}

/// The name in `Access denied for user ... to database 'name'`.
pub(super) fn denied_database(argument: &[u8]) -> Option<&[u8]> {
    let before = b"to database '";
    let name = &argument[memmem::rfind(argument, before)? + before.len()..];
    name.strip_suffix(b"'")
}
