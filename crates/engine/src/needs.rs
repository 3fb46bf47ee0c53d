//! What a schedule needs of this machine's cores, before it starts: whether the driver can keep its own lateness small.

use std::fs;
use std::net::IpAddr;
use std::thread::available_parallelism;

use serde_json::{Value, json};

use crate::net::Address;

/// A thread that is busier than this lets requests wait: M/D/1's p99 is beyond ten times the work of one.
const MOST_BUSY_SHARE: f64 = 0.7;
/// Assumed CPU of a server on these cores per CPU of the driver, for the cheapest statement; above this share of the
/// cores both wait for each other. Measured: p99 0.9 to 2.1 ms at 10,000 statements/s where two cores also run the server.
const SERVER_FACTOR: f64 = 3.0;
const MOST_SHARED: f64 = 0.3;
/// Connections on which pings are timed, in addition to those of the load.
pub const PING_CONNECTIONS: usize = 4;

/// A schedule and what it costs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// In the busiest second, and over the whole schedule.
    pub busiest_ops_s: f64,
    pub mean_ops_s: f64,
    /// CPU of the threads that send, an operation; None where it could not be measured.
    pub send_ns: Option<f64>,
    /// The same of the thread that reads what is to be sent.
    pub read_ns: f64,
    pub threads: usize,
    /// That this process may use: affinity and the control group's quota.
    pub cores: usize,
    pub shares_with_server: bool,
}

impl Needs {
    /// Cores in the busiest second.
    fn busiest_cores(&self) -> Option<f64> {
        Some((self.send_ns? + self.read_ns) * self.busiest_ops_s / 1e9)
    }

    /// Why the driver's own lateness may be above 1 ms at p99; None where it should not.
    fn doubt(&self) -> Option<&'static str> {
        let (needed, cores) = (self.busiest_cores()?, self.cores as f64);
        let busy = self.send_ns? * self.busiest_ops_s / 1e9 / self.threads.max(1) as f64;
        if needed > MOST_BUSY_SHARE * cores {
            Some("these cores are too few")
        } else if busy > MOST_BUSY_SHARE {
            Some("its threads are too few")
        } else if self.shares_with_server && needed * (1.0 + SERVER_FACTOR) > MOST_SHARED * cores {
            Some("the server needs the same cores")
        } else {
            None
        }
    }

    /// One sentence for people.
    pub fn sentence(&self) -> String {
        let Some(needed) = self.busiest_cores() else {
            return "the cores that this needs are not known: no request could be timed".to_owned();
        };
        let server = if self.shares_with_server { ", which the server shares" } else { "" };
        let end = self.doubt().map_or_else(String::new, |why| {
            format!(": {why}; do not expect a p99 of its own lateness below 1 ms")
        });
        format!(
            "headrace needs about {needed:.2} of {} cores{server}, in the busiest second ({:.0} statements/s, {:.0} us of \
             CPU each, timed just now with pings){end}",
            self.cores,
            self.busiest_ops_s,
            (self.send_ns.unwrap_or(0.0) + self.read_ns) / 1e3
        )
    }

    pub fn to_json(&self) -> Value {
        json!({
            "busiest_ops_s": self.busiest_ops_s,
            "mean_ops_s": self.mean_ops_s,
            "send_cpu_ns": self.send_ns,
            "read_cpu_ns": self.read_ns,
            "busiest_cores": self.busiest_cores(),
            "cores": self.cores,
            "threads": self.threads,
            "shares_with_server": self.shares_with_server,
            "is_enough": self.busiest_cores().map(|_| self.doubt().is_none()),
            "sentence": self.sentence(),
        })
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Whether a server at this address runs on this machine. A tunnel's end looks like a server.
pub fn is_here(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp(address) => address.ip().is_loopback() || is_own(address.ip()),
    }
}

/// The kernel's table of local addresses of IPv4; and those of IPv6, in hex.
fn is_own(ip: IpAddr) -> bool {
    let table = |path: &str| fs::read_to_string(path).unwrap_or_default();
    match ip {
        IpAddr::V4(ip) => {
            let text = table("/proc/net/fib_trie");
            let address = format!("|-- {ip}");
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            lines.windows(2).any(|pair| pair[0] == address && pair[1] == "/32 host LOCAL")
        }
        IpAddr::V6(ip) => {
            let hex: String = ip.octets().iter().map(|byte| format!("{byte:02x}")).collect();
            table("/proc/net/if_inet6").lines().any(|line| line.starts_with(&hex))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Needs, is_here};
    use crate::net::Address;

    fn needs(busiest_ops_s: f64) -> Needs {
        let (send_ns, read_ns) = (Some(15_000.0), 5_000.0);
        Needs {
            busiest_ops_s,
            mean_ops_s: 1.0,
            send_ns,
            read_ns,
            threads: 1,
            cores: 2,
            shares_with_server: false,
        }
    }

    #[test]
    fn what_is_said_before_the_start() {
        let calm = needs(1_000.0);
        assert_eq!(calm.to_json()["is_enough"], true);
        assert!(
            calm.sentence().starts_with("headrace needs about 0.02 of 2 cores, in the busiest second (1000 ")
        );
        for (needs, why) in [
            (needs(80_000.0), "these cores are too few"),
            (needs(50_000.0), "its threads are too few"),
            (Needs { shares_with_server: true, ..needs(10_000.0) }, "the server needs the same cores"),
        ] {
            assert!(needs.sentence().contains(why), "{}", needs.sentence());
            assert_eq!(needs.to_json()["is_enough"], false);
        }
        let shared = Needs { shares_with_server: true, ..calm };
        assert!(!shared.sentence().contains("do not expect"), "{}", shared.sentence());
        let unknown = Needs { send_ns: None, ..calm };
        assert!(unknown.to_json()["is_enough"].is_null() && unknown.to_json()["busiest_cores"].is_null());
    }

    #[test]
    fn where_a_server_is() {
        for (address, is_local) in [("127.0.0.1:1", true), ("[::1]:1", true), ("192.0.2.1:3306", false)] {
            assert_eq!(is_here(&Address::Tcp(address.parse().unwrap())), is_local, "{address}");
        }
        assert!(is_here(&Address::Unix("/run/mysqld.sock".into())));
    }
}
