//! The blocking client on one socket.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::misc::raw::RawInt;
use mysql_common::misc::raw::int::{LeU16, LeU32, LenEnc};

use super::auth::{Channel, Login};
use super::error::Error;
use super::options::{Endpoint, Options};
use super::protocol::{
    Answer, Cells, Greeting, LoginStep, Row, capabilities, is_end, login, parse_answer, parse_column_name,
    parse_greeting, parse_login_step, parse_row, query, ssl_request,
};
use super::tls;
use super::wire::{Socket, Wire};

/// The first byte of a statement's payload (COM_QUERY).
pub const QUERY: u8 = 0x03;
/// The first byte of a prepared statement's payload that executes it for many rows (COM_STMT_BULK_EXECUTE).
pub const BULK_EXECUTE: u8 = 0xFA;
const QUIT: u8 = 0x01;
const PREPARE: u8 = 0x16;
const CLOSE_STATEMENT: u8 = 0x19;
/// The first byte with which the server asks for a file.
const LOCAL_FILE: u8 = 0xFB;

/// The goodbye never takes longer.
const GOODBYE: Duration = Duration::from_millis(200);

/// What keeping a row, and each cell of it, costs beside its bytes. A row may have none.
const ROW_COST: usize = 64;
const CELL_COST: usize = 48;

/// A connection that is logged in. After any error except `Error::Server` it is unusable.
pub struct Connection {
    wire: Wire,
    id: u32,
    version: String,
    can_bulk: bool,
    read_timeout: Duration,
    cells: Cells,
    /// Between a request and the end of its answer, and forever if that did not come.
    is_busy: bool,
}

/// Without a goodbye the server counts an aborted client, and most write a warning into their log.
impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_busy && self.wire.socket().limit_writes(GOODBYE).is_ok() {
            self.wire.begin(GOODBYE);
            // The server may be gone, which is fine.
            let _ = self.wire.send(&[QUIT]);
        }
    }
}

/// What a statement did, as the server reports it.
#[derive(Debug, PartialEq, Eq)]
pub struct Done {
    pub affected_rows: u64,
    pub warnings: u16,
}

impl Connection {
    /// Connects and logs in within `connect_timeout` for the socket and again for the login.
    pub fn open(options: &Options) -> Result<Self, Error> {
        Self::open_as(options, false)
    }

    /// As `open`, for bulk data: this connection can `upload`, and `BULK_EXECUTE` if the server also can. Only such a
    /// connection tells the server that it may ask for files.
    pub fn open_for_bulk(options: &Options) -> Result<Self, Error> {
        Self::open_as(options, true)
    }

    fn open_as(options: &Options, is_for_bulk: bool) -> Result<Self, Error> {
        let mut wire = Wire::connect(options)?;
        wire.allow(options.connect_timeout);
        let greeting = parse_greeting(wire.read()?)?;
        let is_socket = matches!(options.endpoint, Endpoint::Socket(_));
        let uses_tls = tls::decide(options.tls, is_socket, &greeting)?;
        let mut capabilities = capabilities(&greeting, uses_tls, options.database.is_some());
        if is_for_bulk {
            capabilities |= greeting.capabilities & CapabilityFlags::CLIENT_LOCAL_FILES;
            capabilities.set(CapabilityFlags::CLIENT_LONG_PASSWORD, !greeting.can_bulk);
        }
        let channel = match (uses_tls, is_socket) {
            (true, _) => Channel::Tls,
            (false, true) => Channel::Socket,
            (false, false) => Channel::Plain,
        };
        if uses_tls {
            wire.send(&ssl_request(capabilities))?;
            wire = wire.encrypt(options)?;
        }
        log_in(&mut wire, options, &greeting, capabilities, channel)?;
        wire.socket().limit(options.read_timeout).map_err(Error::Broken)?;
        Ok(Self {
            wire,
            version: greeting.version,
            id: greeting.connection,
            can_bulk: greeting.can_bulk,
            read_timeout: options.read_timeout,
            cells: Cells::default(),
            is_busy: false,
        })
    }

    /// The connection's number on the server, as its process list has it.
    pub fn id(&self) -> u32 {
        self.id
    }

    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }

    /// Whether the server takes `BULK_EXECUTE` from connections that are opened for it.
    pub fn can_bulk(&self) -> bool {
        self.can_bulk
    }

    /// Runs a statement and calls `on_row` with the names of the columns and each row as it arrives.
    /// An answer of more than 64 MiB, as it is kept, is an error.
    pub fn query(&mut self, sql: &str, on_row: impl FnMut(&[String], &Row<'_>)) -> Result<(), Error> {
        let done = self.rows(sql, on_row);
        self.answered(done)
    }

    fn rows(&mut self, sql: &str, mut on_row: impl FnMut(&[String], &Row<'_>)) -> Result<(), Error> {
        self.ask(&query(sql))?;
        let Answer::Columns(count) = parse_answer(self.wire.read()?)? else { return Ok(()) };
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            columns.push(parse_column_name(self.wire.read()?)?);
        }
        if !is_end(self.wire.read()?) {
            return Err(Error::Malformed("the columns do not end"));
        }
        loop {
            self.wire.charge(ROW_COST + count * CELL_COST)?;
            let length = self.wire.read()?.len();
            // A byte that is no text becomes three as such.
            self.wire.charge(2 * length)?;
            let payload = self.wire.payload();
            if is_end(payload) {
                return Ok(());
            }
            on_row(&columns, &parse_row(payload, count, &mut self.cells)?);
        }
    }

    /// From now on the limit of an answer is that of all together: for who keeps them all.
    pub fn limit_in_total(&mut self) {
        self.wire.limit_in_total();
    }

    /// Runs a statement that has no rows.
    pub fn execute(&mut self, sql: &str) -> Result<Done, Error> {
        self.command(&query(sql))
    }

    /// Sends a whole payload, which starts with `QUERY` or `BULK_EXECUTE` and returns no rows.
    pub fn command(&mut self, payload: &[u8]) -> Result<Done, Error> {
        let done = self.ask(payload).and_then(|()| parse_done(self.wire.read()?));
        self.answered(done)
    }

    /// Prepares a statement without rows; its number.
    pub fn prepare(&mut self, sql: &str) -> Result<u32, Error> {
        let done = self.prepared(sql);
        self.answered(done)
    }

    fn prepared(&mut self, sql: &str) -> Result<u32, Error> {
        let mut payload = query(sql);
        payload[0] = PREPARE;
        self.ask(&payload)?;
        let (statement, parameters) = parse_prepared(self.wire.read()?)?;
        for _ in 0..parameters {
            self.wire.read()?;
        }
        if parameters > 0 && !is_end(self.wire.read()?) {
            return Err(Error::Malformed("the parameters do not end"));
        }
        Ok(statement)
    }

    /// Ends a prepared statement. The server does not answer.
    pub fn close_statement(&mut self, statement: u32) -> Result<(), Error> {
        let mut payload = vec![CLOSE_STATEMENT];
        payload.extend_from_slice(&statement.to_le_bytes());
        let done = self.ask(&payload);
        self.answered(done)
    }

    /// Starts `LOAD DATA LOCAL INFILE 'name' ...`; the server then asks for the content of that file, which `send`
    /// provides. No file is ever read, and a server that asks for another name gets nothing.
    pub fn upload(&mut self, sql: &str, name: &str) -> Result<Upload<'_>, Error> {
        self.ask(&query(sql))?;
        match self.wire.read()? {
            [LOCAL_FILE, asked @ ..] if asked == name.as_bytes() => Ok(Upload(self)),
            [LOCAL_FILE, ..] => Err(Error::Malformed("a request for a file that was never offered")),
            payload => {
                parse_answer(payload)?;
                Err(Error::Malformed("no request for the rows of LOAD DATA"))
            }
        }
    }

    /// A handle that closes this connection from another thread, even while it waits for the server.
    pub fn closer(&self) -> io::Result<Closer> {
        Ok(Closer(match self.wire.socket() {
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
        }))
    }

    /// The process at the other end of a Unix socket, by its number on this host.
    pub fn peer_pid(&self) -> Option<u32> {
        let Socket::Unix(stream) = self.wire.socket() else { return None };
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    /// Our end of a TCP connection and the other, as this host's kernel knows them.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let Socket::Tcp(stream) = self.wire.socket() else { return None };
        Some((stream.local_addr().ok()?, stream.peer_addr().ok()?))
    }

    /// An error that the server reports ends an answer as well as its last packet does.
    fn answered<T>(&mut self, done: Result<T, Error>) -> Result<T, Error> {
        self.is_busy = !matches!(done, Ok(_) | Err(Error::Server { .. }));
        done
    }

    fn ask(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.is_busy = true;
        self.wire.begin(self.read_timeout);
        self.wire.send(payload)
    }
}

/// A LOAD DATA in progress. If it is dropped before its end, the connection is unusable.
#[must_use]
pub struct Upload<'a>(&'a mut Connection);

impl Upload<'_> {
    /// Sends a piece of the content. An empty one would end the upload, so it is not sent.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() { Ok(()) } else { self.0.wire.send(bytes) }
    }

    /// Ends the content; returns the result.
    pub fn finish(self) -> Result<Done, Error> {
        self.0.wire.send(&[])?;
        self.0.wire.allow(self.0.read_timeout);
        let done = self.0.wire.read().and_then(parse_done);
        self.0.answered(done)
    }
}

/// Closes a connection of another thread.
pub struct Closer(Socket);

impl Closer {
    pub fn close(&self) {
        // It may already be closed, which is fine.
        let _ = match &self.0 {
            Socket::Unix(stream) => stream.shutdown(Shutdown::Both),
            Socket::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// The answer to a statement without rows: affected rows, last id, status, warnings.
fn parse_done(payload: &[u8]) -> Result<Done, Error> {
    if parse_answer(payload)? != Answer::Done {
        return Err(Error::Malformed("rows where none were asked for"));
    }
    let mut rest = ParseBuf(&payload[1..]);
    let mut parse = || -> io::Result<Done> {
        let affected_rows: RawInt<LenEnc> = rest.parse(())?;
        rest.parse::<RawInt<LenEnc>>(())?;
        rest.parse::<RawInt<LeU16>>(())?;
        let warnings: RawInt<LeU16> = rest.parse(())?;
        Ok(Done { affected_rows: affected_rows.0, warnings: *warnings })
    };
    parse().map_err(|_| Error::Malformed("the end of a statement"))
}

/// The answer to a prepare: the statement's number and how many parameters it has.
fn parse_prepared(payload: &[u8]) -> Result<(u32, u16), Error> {
    if parse_answer(payload)? != Answer::Done {
        return Err(Error::Malformed("rows where none were asked for"));
    }
    let mut rest = ParseBuf(&payload[1..]);
    let mut parse = || -> io::Result<(u32, u16)> {
        let statement: RawInt<LeU32> = rest.parse(())?;
        rest.parse::<RawInt<LeU16>>(())?;
        let parameters: RawInt<LeU16> = rest.parse(())?;
        Ok((*statement, *parameters))
    };
    parse().map_err(|_| Error::Malformed("the end of a prepare"))
}

fn log_in(
    wire: &mut Wire,
    options: &Options,
    greeting: &Greeting,
    capabilities: CapabilityFlags,
    channel: Channel,
) -> Result<(), Error> {
    // The server's default plugin may be unknown to us, while the user's is not: start with an empty answer to a
    // known one, and the server asks again.
    let mut progress = Login::start(&greeting.plugin, &greeting.nonce, &options.password, channel).ok();
    let (plugin, answer) = match &mut progress {
        Some(progress) => (&greeting.plugin[..], progress.first_answer()?),
        None => (&b"mysql_native_password"[..], Vec::new()),
    };
    wire.send(&login(capabilities, &options.user, options.database.as_deref(), plugin, &answer))?;
    loop {
        let answer = match parse_login_step(wire.read()?)? {
            LoginStep::Done => return Ok(()),
            LoginStep::Switch { plugin, challenge } => {
                let progress = progress.insert(Login::start(plugin, challenge, &options.password, channel)?);
                Some(progress.first_answer()?)
            }
            LoginStep::Challenge(challenge) => match &mut progress {
                Some(progress) => progress.answer(challenge)?,
                None => return Err(Error::Malformed("a challenge without a plugin")),
            },
        };
        if let Some(answer) = answer {
            wire.send(&answer)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CELL_COST, Connection, Error, ROW_COST};
    use crate::frames::{Frames, encode};
    use crate::options::{Endpoint, Options, Password, TlsMode};
    use crate::wire::LARGEST_ANSWER;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::Duration;

    const GREETING: &[u8] = b"\x0a8.0.31\0\x01\0\0\0abcdefgh\0\xff\xf7\x2d\x02\0\xff\xdf\x15\0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0";
    const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
    const END: &[u8] = &[0xFE, 0, 0, 2, 0];
    const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x2d\0\0\x01\0\0\xfd\0\0\0\0\0";

    /// Plays a server: what `play` does on the connection of one client.
    fn with_server<T>(
        play: impl FnOnce(UnixStream) + Send + 'static,
        client: impl FnOnce(&mut Options) -> T,
    ) -> T {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let thread = std::thread::spawn(move || play(listener.accept().unwrap().0));
        let mut options = Options {
            endpoint: Endpoint::Socket(path),
            user: "u".to_owned(),
            password: Password::new("p"),
            database: None,
            tls: TlsMode::Preferred,
            tls_ca: None,
            connect_timeout: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
        };
        let result = client(&mut options);
        thread.join().unwrap();
        result
    }

    fn send(stream: &mut UnixStream, sequence: u8, payloads: &[&[u8]]) {
        let mut wire = Vec::new();
        let mut sequence = sequence;
        for payload in payloads {
            encode(payload, &mut sequence, &mut wire);
        }
        // The client may already have closed.
        let _ = stream.write_all(&wire);
    }

    /// Reads one payload of the client.
    fn receive(stream: &mut UnixStream, sequence: u8) -> Vec<u8> {
        let mut frames = Frames::default();
        frames.sequence = sequence;
        while !frames.has_payload().unwrap() {
            let count = stream.read(frames.space()).unwrap();
            frames.advance(count);
        }
        frames.payload().to_vec()
    }

    fn accept_login(stream: &mut UnixStream) {
        send(stream, 0, &[GREETING]);
        let login = receive(stream, 1);
        assert!(login[32..].starts_with(b"u\0\x14"));
        send(stream, 2, &[OK]);
    }

    #[test]
    fn rows_of_more_than_16_mib() {
        let size = 17 << 20;
        let play = move |mut stream: UnixStream| {
            accept_login(&mut stream);
            assert_eq!(receive(&mut stream, 0), b"\x03SELECT a");
            // A length of eight bytes begins with 0xFE, as does the packet that ends the rows.
            let mut row = vec![0xFE];
            row.extend_from_slice(&u64::try_from(size).unwrap().to_le_bytes());
            row.resize(9 + size, b'x');
            send(&mut stream, 1, &[&[1], COLUMN, END, &row, b"\x01y", &[0xFB], END]);
        };
        let rows = with_server(play, |options| {
            let mut connection = Connection::open(options).unwrap();
            let mut rows = Vec::new();
            connection.query("SELECT a", |columns, row| {
                assert_eq!(columns, ["a"]);
                rows.push(row.get(0).map(<[u8]>::len));
            })?;
            Ok::<_, Error>(rows)
        });
        assert_eq!(rows.unwrap(), [Some(size), Some(1), None]);
    }

    #[test]
    fn an_answer_without_end_is_not_read_to_its_end() {
        let play = |mut stream: UnixStream| {
            accept_login(&mut stream);
            receive(&mut stream, 0);
            send(&mut stream, 1, &[&[1], COLUMN, END]);
            let mut rows = Vec::new();
            let mut sequence = 4;
            for _ in 0..256 {
                encode(b"\x01y", &mut sequence, &mut rows);
            }
            // Packet numbers wrap around.
            while stream.write_all(&rows).is_ok() {}
        };
        let (rows, error) = with_server(play, |options| {
            let mut connection = Connection::open(options).unwrap();
            let mut rows = 0;
            let error = connection.query("SELECT a", |_, _| rows += 1).unwrap_err();
            (rows, error)
        });
        assert!(matches!(error, Error::TooLong(_)), "{error}");
        let start = 4 + 1 + 4 + COLUMN.len() + 4 + END.len();
        assert_eq!(rows, (LARGEST_ANSWER - start) / (6 + 2 * 2 + ROW_COST + CELL_COST));
    }

    #[test]
    fn answers_that_are_kept_have_one_limit() {
        let size = 8 << 20;
        let mut row = vec![0xFD];
        row.extend_from_slice(&u32::try_from(size).unwrap().to_le_bytes()[..3]);
        row.resize(4 + size, b'x');
        let play = move |mut stream: UnixStream| {
            accept_login(&mut stream);
            for _ in 0..3 {
                receive(&mut stream, 0);
                send(&mut stream, 1, &[&[1], COLUMN, END, &row, END]);
            }
        };
        with_server(play, |options| {
            let mut connection = Connection::open(options).unwrap();
            connection.limit_in_total();
            let mut ask = || connection.query("SELECT a", |_, _| ());
            assert!(ask().is_ok());
            assert!(ask().is_ok());
            assert!(matches!(ask(), Err(Error::TooLong(LARGEST_ANSWER))));
        });
    }

    #[test]
    fn an_error_among_the_rows_leaves_the_connection_whole() {
        let play = |mut stream: UnixStream| {
            accept_login(&mut stream);
            receive(&mut stream, 0);
            send(&mut stream, 1, &[&[1], COLUMN, END, b"\x01y", b"\xff\x25\x05#70100interrupted"]);
            receive(&mut stream, 0);
            send(&mut stream, 1, &[OK]);
        };
        with_server(play, |options| {
            let mut connection = Connection::open(options).unwrap();
            let mut rows = 0;
            let error = connection.query("SELECT a", |_, _| rows += 1).unwrap_err();
            assert_eq!((rows, error.code()), (1, Some(1317)));
            connection.query("SET @a = 1", |_, _| unreachable!()).unwrap();
        });
    }

    #[test]
    fn a_connection_says_goodbye_unless_an_answer_is_on_its_way() {
        for is_whole in [true, false] {
            let play = move |mut stream: UnixStream| {
                accept_login(&mut stream);
                receive(&mut stream, 0);
                let rows: [&[u8]; 4] = [&[1], COLUMN, END, END];
                send(&mut stream, 1, &rows[..if is_whole { 4 } else { 3 }]);
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).unwrap();
                assert_eq!(rest, if is_whole { &[1, 0, 0, 0, 1][..] } else { &[] });
            };
            with_server(play, |options| {
                options.read_timeout = Duration::from_millis(300);
                let mut connection = Connection::open(options).unwrap();
                assert_eq!(connection.query("SELECT a", |_, _| {}).is_ok(), is_whole);
            });
        }
    }

    /// As one that was stopped does: the kernel takes the connection.
    #[test]
    fn a_server_that_says_nothing_is_waited_for_as_long_as_for_a_login() {
        let (told, ended) = std::sync::mpsc::channel();
        let play = move |_stream: UnixStream| ended.recv_timeout(Duration::from_secs(10)).unwrap();
        with_server(play, |options| {
            options.connect_timeout = Duration::from_millis(300);
            let error = Connection::open(options).err().unwrap();
            assert!(matches!(error, Error::Timeout(_)), "{error}");
            told.send(()).unwrap();
        });
    }

    #[test]
    fn a_statement_may_take_longer_than_a_login() {
        let play = |mut stream: UnixStream| {
            accept_login(&mut stream);
            receive(&mut stream, 0);
            std::thread::sleep(Duration::from_millis(600));
            send(&mut stream, 1, &[&[1], COLUMN, END, END]);
        };
        with_server(play, |options| {
            options.connect_timeout = Duration::from_millis(300);
            let mut connection = Connection::open(options).unwrap();
            connection.query("SELECT a", |_, _| {}).unwrap();
        });
    }

    #[test]
    fn a_server_that_drips_bytes_is_as_bad_as_a_silent_one() {
        let play = |mut stream: UnixStream| {
            accept_login(&mut stream);
            receive(&mut stream, 0);
            // A packet of 100 bytes, one byte at a time.
            for byte in [100, 0, 0, 1].into_iter().chain([0; 100]) {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            panic!("the client waited for all of it");
        };
        with_server(play, |options| {
            options.read_timeout = Duration::from_millis(300);
            let mut connection = Connection::open(options).unwrap();
            let error = connection.query("SELECT a", |_, _| {}).unwrap_err();
            assert!(matches!(error, Error::Timeout(_)), "{error}");
        });
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Random bytes in place of each answer, with valid numbers so that they get as far as possible.
        #[test]
        fn no_server_can_break_the_client(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 1..6),
            place in 0..3_usize,
            start in proptest::sample::select(vec![&b""[..], b"\x00", b"\x01", b"\xfe", b"\xff", b"\x0a8\0"]),
        ) {
            let play = move |mut stream: UnixStream| {
                let noise: Vec<Vec<u8>> = payloads.iter().map(|payload| [start, payload].concat()).collect();
                let noise: Vec<&[u8]> = noise.iter().map(Vec::as_slice).collect();
                match place {
                    0 => send(&mut stream, 0, &noise),
                    1 => {
                        send(&mut stream, 0, &[GREETING]);
                        receive(&mut stream, 1);
                        send(&mut stream, 2, &noise);
                    }
                    _ => {
                        accept_login(&mut stream);
                        receive(&mut stream, 0);
                        send(&mut stream, 1, &noise);
                    }
                }
            };
            with_server(play, |options| {
                if let Ok(mut connection) = Connection::open(options) {
                    let _ = connection.query("SELECT a", |_, row| { let _ = row.get(0); });
                }
            });
        }
    }
}
