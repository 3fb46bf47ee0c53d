//! Who is behind a thread's number, as far as the log told.

use std::collections::HashMap;

use memchr::memmem;
use memchr::memrchr;

use crate::event::Command;

/// How many are remembered at least; twice as many at most.
const KEPT: usize = 1 << 16;
/// Names are not longer; what is, no server wrote.
const NAME_BYTES: usize = 1024;

/// Sessions by thread. The ones not heard of for longest are forgotten first: whole generations at a time.
#[derive(Default)]
pub(super) struct Sessions {
    young: HashMap<u64, Session>,
    old: HashMap<u64, Session>,
}

/// `user@host`, and the database.
#[derive(Clone, Default)]
pub(super) struct Session {
    names: Vec<u8>,
    user_bytes: usize,
    database: Vec<u8>,
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
            Command::InitDb => self.set_database(thread, argument),
            _ => {}
        }
        if !self.young.contains_key(&thread)
            && let Some(session) = self.old.remove(&thread)
        {
            self.insert(thread, session);
        }
        self.young.get(&thread)
    }

    /// What the command changes for those after it.
    pub(super) fn after(&mut self, thread: u64, command: Command, argument: &[u8]) {
        match command {
            Command::Quit => {
                self.young.remove(&thread);
                self.old.remove(&thread);
            }
            Command::Query => {
                if let Some(database) = used(argument) {
                    self.set_database(thread, database);
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

/// The database of a plain `use name`.
fn used(statement: &[u8]) -> Option<&[u8]> {
    let statement = statement.trim_ascii();
    let name =
        statement.get(..4).filter(|start| start.eq_ignore_ascii_case(b"use ")).map(|_| &statement[4..])?;
    let name = name.strip_suffix(b";").unwrap_or(name).trim_ascii();
    let name = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`")).unwrap_or(name);
    (!name.is_empty() && !name.contains(&b'`')).then_some(name)
}
