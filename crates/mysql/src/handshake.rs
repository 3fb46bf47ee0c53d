//! The login on a new MySQL connection, from the greeting to the first statement.

use mysql_common::constants::CapabilityFlags;
use rustls::ClientConnection;

use crate::auth::{Channel, Login};
use crate::frames::{Frames, encode};
use crate::protocol::{LoginStep, capabilities, login, parse_greeting, parse_login_step, ssl_request};
use crate::{Endpoint, Error, Options, tls};

pub const UNEXPECTED_PACKET: Error = Error::Malformed("an unexpected packet");

/// A login in progress.
pub struct Handshake<'a> {
    options: &'a Options,
    database: Option<String>,
    /// Capabilities beyond those that all our clients have.
    wanted: CapabilityFlags,
    is_for_bulk: bool,
    frames: Frames,
    login: Option<Login<'a>>,
    /// The answer to the greeting, to be sent once the connection is encrypted.
    after_tls: Option<Vec<u8>>,
    is_greeted: bool,
    connection: u32,
}

/// The progress of a login.
pub enum HandshakeState {
    Waiting,
    /// From now on the connection is encrypted: continue with `encrypted`.
    Encrypt(Box<ClientConnection>),
    Done,
}

impl<'a> Handshake<'a> {
    pub fn new(options: &'a Options) -> Self {
        Self {
            options,
            database: options.database.clone(),
            wanted: CapabilityFlags::empty(),
            is_for_bulk: false,
            frames: Frames::default(),
            login: None,
            after_tls: None,
            is_greeted: false,
            connection: 0,
        }
    }

    /// Starts in another database than that of the options, and with more capabilities.
    pub fn with(mut self, database: Option<String>, wanted: CapabilityFlags) -> Self {
        self.database = database;
        self.wanted = wanted;
        self
    }

    /// The connection can `BULK_EXECUTE`, if the server can.
    pub fn for_bulk(self) -> Self {
        Self { is_for_bulk: true, ..self }
    }

    /// The connection's number on the server; 0 before the greeting.
    pub fn connection(&self) -> u32 {
        self.connection
    }

    /// Takes received bytes; the answer goes to `out`.
    pub fn receive(&mut self, mut input: &[u8], out: &mut Vec<u8>) -> Result<HandshakeState, Error> {
        while !input.is_empty() {
            let space = self.frames.space();
            let count = space.len().min(input.len());
            space[..count].copy_from_slice(&input[..count]);
            self.frames.advance(count);
            input = &input[count..];
        }
        while self.frames.has_payload()? {
            if !self.is_greeted {
                self.is_greeted = true;
                if let Some(session) = self.greet(out)? {
                    return Ok(HandshakeState::Encrypt(session));
                }
                continue;
            }
            let payload = self.frames.payload();
            let answer = match parse_login_step(payload)? {
                LoginStep::Done if self.frames.has_rest() => return Err(UNEXPECTED_PACKET),
                LoginStep::Done => return Ok(HandshakeState::Done),
                LoginStep::Switch { plugin, challenge } => {
                    let channel = channel(self.options, self.after_tls.is_some());
                    let login = Login::start(plugin, challenge, &self.options.password, channel)?;
                    Some(self.login.insert(login).first_answer()?)
                }
                LoginStep::Challenge(challenge) => match &mut self.login {
                    Some(login) => login.answer(challenge)?,
                    None => return Err(Error::Malformed("a challenge without a plugin")),
                },
            };
            if let Some(answer) = answer {
                encode(&answer, &mut self.frames.sequence, out);
            }
        }
        Ok(HandshakeState::Waiting)
    }

    /// The connection is encrypted: sends the login itself.
    pub fn encrypted(&mut self, out: &mut Vec<u8>) {
        if let Some(answer) = &self.after_tls {
            encode(answer, &mut self.frames.sequence, out);
        }
    }

    /// Answers the greeting; with TLS only sends the request for it, and returns the session.
    fn greet(&mut self, out: &mut Vec<u8>) -> Result<Option<Box<ClientConnection>>, Error> {
        let options = self.options;
        let greeting = parse_greeting(self.frames.payload())?;
        self.connection = greeting.connection;
        let is_socket = matches!(options.endpoint, Endpoint::Socket(_));
        let uses_tls = tls::decide(options.tls, is_socket, &greeting)?;
        let mut capabilities = capabilities(&greeting, uses_tls, self.database.is_some())
            | (self.wanted & greeting.capabilities);
        if self.is_for_bulk && greeting.can_bulk {
            capabilities.remove(CapabilityFlags::CLIENT_LONG_PASSWORD);
        }
        let channel = channel(options, uses_tls);
        // As in the blocking client: the user's plugin may be known to us even if the server's default is not.
        self.login = Login::start(&greeting.plugin, &greeting.nonce, &options.password, channel).ok();
        let (plugin, answer) = match &mut self.login {
            Some(login) => (&greeting.plugin[..], login.first_answer()?),
            None => (&b"mysql_native_password"[..], Vec::new()),
        };
        let answer = login(capabilities, &options.user, self.database.as_deref(), plugin, &answer);
        if !uses_tls {
            encode(&answer, &mut self.frames.sequence, out);
            return Ok(None);
        }
        if self.frames.has_rest() {
            return Err(Error::Malformed("there are bytes between the greeting and TLS"));
        }
        encode(&ssl_request(capabilities), &mut self.frames.sequence, out);
        self.after_tls = Some(answer);
        tls::session(options).map(|session| Some(Box::new(session)))
    }
}

fn channel(options: &Options, uses_tls: bool) -> Channel {
    match (&options.endpoint, uses_tls) {
        (_, true) => Channel::Tls,
        (Endpoint::Socket(_), false) => Channel::Socket,
        (Endpoint::Tcp { .. }, false) => Channel::Plain,
    }
}
