//! Network rungs: 2 KB sent and returned, or the time to connect.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};

use super::rung::{About, Missing, Rung, time_each};

const MESSAGE: usize = 2048;
const TIMEOUT: Duration = Duration::from_secs(2);
/// A service that sends first does so within this time of the connection.
const GREETING: Duration = Duration::from_millis(300);
/// Every connection leaves a port in TIME_WAIT for a minute, so there are never many.
const CONNECTIONS_PER_ROUND: usize = 50;

/// 2 KB to a service that sends it back.
pub struct Echo {
    rung: &'static str,
    stream: TcpStream,
    method: String,
    spoiled_by: Vec<String>,
}

impl Echo {
    /// Over this host's loopback, to a thread of this process.
    pub fn loopback() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (mut other, from) = listener.accept()?;
        // Another process on this host may have connected first.
        if from != stream.local_addr()? {
            bail!("another program connected to our port");
        }
        other.set_nodelay(true)?;
        // The echo ends when this end closes.
        std::thread::spawn(move || {
            let mut message = [0; MESSAGE];
            while other.read_exact(&mut message).is_ok() && other.write_all(&message).is_ok() {}
        });
        let method = "2 KiB over TCP on the loopback to a thread of our own and back".to_owned();
        Self::new(
            "loopback_2kb",
            stream,
            method,
            vec!["the loopback: no device, no interrupt, no wire".to_owned()],
        )
    }

    /// To an address that echoes.
    fn to(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&resolve(address)?, TIMEOUT)?;
        let method = format!("2 KiB over TCP to {address} and back");
        let mut echo = Self::new(
            "network_2kb",
            stream,
            method,
            vec!["the time of the echo at the other end".to_owned()],
        )?;
        echo.once().with_context(|| format!("{address} does not send back what it gets"))?;
        Ok(echo)
    }

    fn new(
        rung: &'static str,
        stream: TcpStream,
        method: String,
        spoiled_by: Vec<String>,
    ) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { rung, stream, method, spoiled_by })
    }

    fn once(&mut self) -> anyhow::Result<()> {
        let mut message = [0x68; MESSAGE];
        self.stream.write_all(&message)?;
        message.fill(0);
        self.stream.read_exact(&mut message)?;
        if message != [0x68; MESSAGE] {
            bail!("it sends something else back");
        }
        Ok(())
    }
}

impl Rung for Echo {
    fn about(&self) -> About {
        About {
            rung: self.rung,
            method: self.method.clone(),
            operations_per_repetition: 1,
            spoiled_by: self.spoiled_by.clone(),
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        time_each(until, into, || self.once())
    }
}

/// TCP connections to an address: one round trip, of small packets, answered by the other kernel.
struct Connects {
    address: SocketAddr,
    name: String,
}

impl Rung for Connects {
    fn about(&self) -> About {
        About {
            rung: "network_connect",
            method: format!(
                "TCP connect to {}: SYN there, SYN-ACK back; at most {CONNECTIONS_PER_ROUND} a round",
                self.name
            ),
            operations_per_repetition: 1,
            spoiled_by: vec!["packets without content: 2 KB take longer".to_owned()],
        }
    }

    fn measure(&mut self, until: Instant, into: &mut Vec<f64>) -> anyhow::Result<()> {
        for _ in 0..CONNECTIONS_PER_ROUND {
            let start = Instant::now();
            let stream = TcpStream::connect_timeout(&self.address, TIMEOUT)?;
            into.push(super::rung::nanoseconds(start.elapsed()));
            drop(stream);
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }
}

/// The rung of a path to `address`. `echoes` is the user's word that it sends back what it gets: nothing is ever sent
/// to a service that was not named as one.
pub fn to_target(address: &str, echoes: bool) -> Result<Box<dyn Rung>, Missing> {
    let missing = |rung| move |error: anyhow::Error| Missing { rung, reason: format!("{error:#}") };
    if echoes {
        return Ok(Box::new(Echo::to(address).map_err(missing("network_2kb"))?));
    }
    let connects = || {
        let resolved = resolve(address)?;
        refuse_mysql(resolved, address)?;
        Ok(Connects { address: resolved, name: address.to_owned() })
    };
    Ok(Box::new(connects().map_err(missing("network_connect"))?))
}

/// A server of the MySQL family counts connections that do not log in, and after max_connect_errors of them refuses
/// this host altogether.
fn refuse_mysql(address: SocketAddr, name: &str) -> anyhow::Result<()> {
    let mut stream =
        TcpStream::connect_timeout(&address, TIMEOUT).with_context(|| format!("{name} does not answer"))?;
    stream.set_read_timeout(Some(GREETING))?;
    let mut start = [0; 5];
    match stream.read_exact(&mut start) {
        // Length (3), sequence 0, then protocol version 10 or an error.
        Ok(()) if start[3] == 0 && matches!(start[4], 0x0A | 0xFF) => bail!(
            "{name} is a MySQL server, which counts connections without a login (max_connect_errors): name it with --mysql-host"
        ),
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{name} does not answer")),
    }
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    address
        .to_socket_addrs()
        .with_context(|| format!("{address} is no HOST:PORT that can be resolved"))?
        .next()
        .ok_or_else(|| anyhow!("{address} has no address"))
}

#[cfg(test)]
mod tests {
    use super::{Echo, to_target};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Instant;

    fn listen(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
        address
    }

    #[test]
    fn the_loopback_answers() {
        use crate::ladder::rung::Rung;
        let mut times = Vec::new();
        Echo::loopback().unwrap().measure(Instant::now(), &mut times).unwrap();
        assert!(times.len() == 1 && times[0] > 0.0);
    }

    #[test]
    fn a_mysql_server_is_not_asked_without_a_login() {
        let address = listen(|mut stream| drop(stream.write_all(b"\x4a\0\0\0\x0a8.0.31\0....")));
        let missing = to_target(&address, false).err().unwrap();
        assert!(missing.reason.contains("--mysql-host"), "{}", missing.reason);
    }

    #[test]
    fn who_says_nothing_is_connected_to_and_who_echoes_echoes() {
        let address = listen(|mut stream| {
            let mut buffer = [0; 4096];
            while let Ok(read) = stream.read(&mut buffer) {
                if read == 0 || stream.write_all(&buffer[..read]).is_err() {
                    break;
                }
            }
        });
        for echoes in [false, true] {
            let mut times = Vec::new();
            to_target(&address, echoes)
                .unwrap_or_else(|m| panic!("{}", m.reason))
                .measure(Instant::now(), &mut times)
                .unwrap();
            assert_eq!(times.len(), 1);
        }
        let deaf = listen(|mut stream| drop(stream.write_all(b"HTTP/1.1 400 no\r\n\r\n")));
        assert!(to_target(&deaf, true).err().unwrap().reason.contains("does not send back"));
        assert!(to_target(&deaf, false).is_ok());
    }

    #[test]
    fn an_address_that_does_not_answer_says_so() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        assert!(to_target(&address, false).err().unwrap().reason.contains("does not answer"));
        assert!(to_target("nonsense", false).err().unwrap().reason.contains("HOST:PORT"));
    }
}
