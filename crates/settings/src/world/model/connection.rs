//! A session on one of the servers, and how it breaks.

use std::io;
use std::path::Path;

use mysql::{Error, Options};

use super::machine::{Call, call, on};

/// A session, as `mysql::Connection` is one.
pub struct Connection {
    server: usize,
    start: u32,
    is_broken: bool,
}

pub struct Row(Vec<Option<Vec<u8>>>);

impl Row {
    pub fn get(&self, column: usize) -> Option<&[u8]> {
        self.0.get(column)?.as_deref()
    }
}

impl Connection {
    pub fn open(_: &Options) -> Result<Connection, Error> {
        let refused = |cause| Error::Connect { place: "the model".to_owned(), cause };
        call(Call::Ask, Path::new("connect")).map_err(refused)?;
        let opened = on(|machine| {
            let (server, is_down) = (machine.servers.answering, machine.servers.is_down);
            (!is_down).then(|| Connection {
                server,
                start: machine.servers.all[server].starts,
                is_broken: false,
            })
        });
        opened.flatten().ok_or_else(|| refused(io::ErrorKind::ConnectionRefused.into()))
    }

    /// What a statement gives: the cells of its only row.
    fn send(&mut self, sql: &str) -> Result<Vec<Option<String>>, Error> {
        let failed = call(Call::Ask, Path::new(sql)).err();
        let arrives = failed.is_none() || on(|machine| machine.chance.one_in(2)) == Some(true);
        let answered = on(|machine| {
            let is_there = !machine.servers.is_down && machine.servers.all[self.server].starts == self.start;
            (is_there && arrives && !self.is_broken).then(|| {
                let now = machine.now();
                machine.servers.all[self.server].run(now, sql)
            })
        });
        match (failed, answered.flatten()) {
            (None, Some(answer)) => answer,
            // The statement may have been run all the same.
            (failed, _) => {
                self.is_broken = true;
                Err(Error::Broken(failed.unwrap_or_else(|| io::ErrorKind::ConnectionReset.into())))
            }
        }
    }

    pub fn execute(&mut self, sql: &str) -> Result<(), Error> {
        self.send(sql).map(drop)
    }

    pub fn query(&mut self, sql: &str, mut on_row: impl FnMut(&[String], &Row)) -> Result<(), Error> {
        let cells = self.send(sql)?;
        on_row(&[], &Row(cells.into_iter().map(|cell| cell.map(String::into_bytes)).collect()));
        Ok(())
    }
}
