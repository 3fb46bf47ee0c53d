//! A session with a server, as its samplers use it.

use mysql::{Connection, Error};

use super::values::Values;

/// Reads counters over a session.
pub type ServerSample = fn(&mut Session, &mut Values) -> Result<(), Trouble>;

/// Why a sampler has no values.
pub enum Trouble {
    Server(Error),
    /// This server has no such source, or does not fill it: it is asked again rarely.
    Absent(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        if error.is_denied() {
            return Trouble::Absent(error.to_string());
        }
        Trouble::Server(error)
    }
}

/// A connection and what is known about its server.
pub struct Session {
    pub connection: Connection,
    /// Which form of each statement this server understands.
    pub understood: Understood,
    /// Also asks what may cost the server much.
    pub is_thorough: bool,
}

#[derive(Default)]
pub struct Understood {
    pub innodb: usize,
    pub replication: usize,
    /// The name of MySQL's group of replication, once that is known; empty without one.
    pub group: Option<String>,
    /// Whether performance_schema is on, once that is known.
    pub performance_schema: Option<bool>,
}

impl Session {
    pub fn new(connection: Connection, is_thorough: bool) -> Self {
        Self { connection, understood: Understood::default(), is_thorough }
    }
}
