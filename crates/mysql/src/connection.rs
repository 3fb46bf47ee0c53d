//! The blocking client on one socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use mysql_common::constants::CapabilityFlags;
use mysql_common::io::ParseBuf;
use mysql_common::misc::raw::RawInt;
use mysql_common::misc::raw::int::{LeU16, LeU32, LenEnc};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustls::{ClientConnection, StreamOwned};

use super::auth::{Channel, Login};
use super::error::Error;
use super::frames::{Frames, HEADER, encode};
use super::options::{Endpoint, Options};
use super::protocol::{
    Answer, Cells, Greeting, LoginStep, Row, capabilities, is_end, login, parse_answer, parse_column_name,
    parse_greeting, parse_login_step, parse_row, query, ssl_request,
};
use super::tls;

/// The first byte of a statement's payload (COM_QUERY).
pub const QUERY: u8 = 0x03;
/// The first byte of a prepared statement's payload that executes it for many rows (COM_STMT_BULK_EXECUTE).
pub const BULK_EXECUTE: u8 = 0xFA;
const PREPARE: u8 = 0x16;
const CLOSE_STATEMENT: u8 = 0x19;
/// The first byte with which the server asks for a file.
const LOCAL_FILE: u8 = 0xFB;

/// Answers to our own queries are far smaller; a server that sends more would fill our memory.
const LARGEST_ANSWER: usize = 64 << 20;

/// A connection that is logged in. After any error but `Error::Server` it is of no more use.
pub struct Connection {
    wire: Wire,
    version: String,
    can_bulk: bool,
    read_timeout: Duration,
    cells: Cells,
}

/// What the server says that a statement did.
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

    /// As `open`, for much data: this connection can `upload`, and `BULK_EXECUTE` where the server can, too. Others
    /// never tell a server that it may ask for files.
    pub fn open_for_bulk(options: &Options) -> Result<Self, Error> {
        Self::open_as(options, true)
    }

    fn open_as(options: &Options, is_for_bulk: bool) -> Result<Self, Error> {
        let mut wire = Wire::connect(options)?;
        wire.limit = options.connect_timeout;
        wire.deadline = Instant::now() + options.connect_timeout;
        let greeting = parse_greeting(wire.read()?)?;
        let is_socket = matches!(options.endpoint, Endpoint::Socket(_));
        let uses_tls = tls::decide(options.tls, is_socket, &greeting)?;
        let mut capabilities = capabilities(&greeting, uses_tls, options.database.is_some());
        let can_bulk = is_for_bulk && greeting.can_bulk;
        if is_for_bulk {
            capabilities |= greeting.capabilities & CapabilityFlags::CLIENT_LOCAL_FILES;
            capabilities.set(CapabilityFlags::CLIENT_LONG_PASSWORD, !can_bulk);
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
        Ok(Self {
            wire,
            version: greeting.version,
            can_bulk,
            read_timeout: options.read_timeout,
            cells: Cells::default(),
        })
    }

    pub fn is_mariadb(&self) -> bool {
        self.version.contains("MariaDB")
    }

    /// Whether the server takes `BULK_EXECUTE` from this connection.
    pub fn can_bulk(&self) -> bool {
        self.can_bulk
    }

    /// Runs a statement and calls `on_row` with the names of the columns and each row as it comes.
    /// A statement without rows calls nothing; one with rows of more than 64 MiB is an error.
    pub fn query(&mut self, sql: &str, mut on_row: impl FnMut(&[String], &Row<'_>)) -> Result<(), Error> {
        self.ask(&query(sql))?;
        let Answer::Columns(count) = parse_answer(self.wire.read()?)? else { return Ok(()) };
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            columns.push(parse_column_name(self.wire.read()?)?);
        }
        if !is_end(self.wire.read()?) {
            return Err(Error::Malformed("the columns do not end"));
        }
        let mut left = LARGEST_ANSWER;
        loop {
            let payload = self.wire.read()?;
            // Even an empty row costs memory to keep.
            left = left.checked_sub(payload.len() + HEADER).ok_or(Error::TooLong(LARGEST_ANSWER))?;
            if is_end(payload) {
                return Ok(());
            }
            on_row(&columns, &parse_row(payload, count, &mut self.cells)?);
        }
    }

    /// Runs a statement that has no rows.
    pub fn execute(&mut self, sql: &str) -> Result<Done, Error> {
        self.command(&query(sql))
    }

    /// Sends a whole payload, which begins with `QUERY` or `BULK_EXECUTE` and has no rows as its answer.
    pub fn command(&mut self, payload: &[u8]) -> Result<Done, Error> {
        self.ask(payload)?;
        parse_done(self.wire.read()?)
    }

    /// Prepares a statement without rows; its number.
    pub fn prepare(&mut self, sql: &str) -> Result<u32, Error> {
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
        self.ask(&payload)
    }

    /// Begins `LOAD DATA LOCAL INFILE 'name' ...`; the server then asks for the content of that file, which is what
    /// goes to `send`. No file is ever read, and a server that asks for another name gets none.
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

    /// A handle that ends this connection from another thread, also while it waits for the server.
    pub fn closer(&self) -> io::Result<Closer> {
        let socket = match &self.wire.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        };
        Ok(Closer(match socket {
            Socket::Unix(stream) => Socket::Unix(stream.try_clone()?),
            Socket::Tcp(stream) => Socket::Tcp(stream.try_clone()?),
        }))
    }

    /// Who listens at the other end of a Unix socket, as this host numbers it.
    pub fn peer_pid(&self) -> Option<u32> {
        let socket = match &self.wire.stream {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &stream.sock,
        };
        let Socket::Unix(stream) = socket else { return None };
        let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok()
    }

    fn ask(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.wire.limit = self.read_timeout;
        self.wire.deadline = Instant::now() + self.read_timeout;
        self.wire.frames.sequence = 0;
        self.wire.send(payload)
    }
}

/// A LOAD DATA at work. A connection whose upload was dropped before its end is of no more use.
#[must_use]
pub struct Upload<'a>(&'a mut Connection);

impl Upload<'_> {
    /// Sends a piece of the content. An empty one would end it, so it sends nothing.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() { Ok(()) } else { self.0.wire.send(bytes) }
    }

    /// Ends the content; what became of it.
    pub fn finish(self) -> Result<Done, Error> {
        self.0.wire.send(&[])?;
        self.0.wire.deadline = Instant::now() + self.0.read_timeout;
        parse_done(self.0.wire.read()?)
    }
}

/// Ends a connection of another thread.
pub struct Closer(Socket);

impl Closer {
    pub fn close(&self) {
        // It may be closed already, which is all that is wanted.
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
    // The server's default plugin may be one we do not speak, while the user's own is: begin with an empty
    // answer to one we do, and the server asks again.
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

/// Frames over a socket, with a deadline for the exchange at work.
struct Wire {
    stream: Stream,
    frames: Frames,
    out: Vec<u8>,
    limit: Duration,
    deadline: Instant,
}

enum Stream {
    Plain(Socket),
    Tls(Box<StreamOwned<ClientConnection, Socket>>),
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Wire {
    fn connect(options: &Options) -> Result<Self, Error> {
        let socket = Socket::connect(options)
            .map_err(|cause| Error::Connect { place: options.endpoint.to_string(), cause })?;
        Ok(Self {
            stream: Stream::Plain(socket),
            frames: Frames::default(),
            out: Vec::new(),
            limit: options.connect_timeout,
            deadline: Instant::now() + options.connect_timeout,
        })
    }

    /// Goes on over TLS. Its handshake happens with the first bytes that are sent.
    fn encrypt(self, options: &Options) -> Result<Self, Error> {
        if self.frames.has_rest() {
            return Err(Error::Malformed("there are bytes between the greeting and TLS"));
        }
        let Stream::Plain(socket) = self.stream else { unreachable!("encrypted once") };
        let stream = StreamOwned::new(tls::session(options)?, socket);
        Ok(Self { stream: Stream::Tls(Box::new(stream)), ..self })
    }

    fn send(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.out.clear();
        encode(payload, &mut self.frames.sequence, &mut self.out);
        let written = match &mut self.stream {
            Stream::Plain(socket) => socket.write_all(&self.out),
            Stream::Tls(stream) => stream.write_all(&self.out).and_then(|()| stream.flush()),
        };
        written.map_err(|cause| self.explain(cause))
    }

    /// The next payload.
    fn read(&mut self) -> Result<&[u8], Error> {
        while !self.frames.has_payload()? {
            let space = self.frames.space();
            let count = match &mut self.stream {
                Stream::Plain(socket) => socket.read(space),
                Stream::Tls(stream) => stream.read(space),
            };
            match count {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => self.frames.advance(count),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(self.explain(cause)),
            }
            // The socket's own time limit is for one read; a server that drips bytes is as bad as a silent one.
            if Instant::now() > self.deadline {
                return Err(Error::Timeout(self.limit));
            }
        }
        Ok(self.frames.payload())
    }

    fn explain(&self, cause: io::Error) -> Error {
        match cause.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Error::Timeout(self.limit),
            ErrorKind::UnexpectedEof => Error::Closed,
            _ if cause.get_ref().is_some_and(|inner| inner.is::<rustls::Error>()) => {
                Error::Tls(cause.to_string())
            }
            _ => Error::Broken(cause),
        }
    }
}

impl Socket {
    fn connect(options: &Options) -> io::Result<Self> {
        let limit = options.connect_timeout;
        match &options.endpoint {
            Endpoint::Socket(path) => {
                let stream = connect_unix(path, limit)?;
                stream.set_read_timeout(Some(options.read_timeout))?;
                stream.set_write_timeout(Some(options.read_timeout))?;
                Ok(Socket::Unix(stream))
            }
            Endpoint::Tcp { host, port } => {
                let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, limit) {
                        Ok(stream) => {
                            stream.set_read_timeout(Some(options.read_timeout))?;
                            stream.set_write_timeout(Some(options.read_timeout))?;
                            stream.set_nodelay(true)?;
                            return Ok(Socket::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }
}

/// A server that stands still has a full queue in the end, on which a plain connect would wait for ever.
fn connect_unix(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.read(buffer),
            Socket::Tcp(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => stream.write(buffer),
            Socket::Tcp(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Connection, Error, LARGEST_ANSWER};
    use crate::frames::{Frames, encode};
    use crate::options::{Endpoint, Options, Password, TlsMode};
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
        // The client may have had enough already.
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
        assert_eq!(rows, LARGEST_ANSWER / 6);
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

        /// Whatever comes in place of each answer, with right numbers so that it gets as far as it can.
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
