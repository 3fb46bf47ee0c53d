//! Where a server that was asked runs: in which process of this host, or elsewhere.
//!
//! A path, a port or a host name is no evidence: a tunnel, a proxy and a published port of a container all answer
//! at 127.0.0.1, and a second server may have the same paths. What counts is the other end of our own connection,
//! and what only the process that serves it can know: the number of its thread, its identifier, its age.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use serde::Serialize;

use super::namespaces;
use super::processes::{Server, field};
use super::tasks::status_value;
use crate::server::query::rows;
use mysql::Connection;

/// `TCP_ESTABLISHED` in /proc/net/tcp.
const ESTABLISHED: &str = "01";
/// How much the age of a server and that of its process may differ: it is up before it counts, and its clock is
/// another one, in whole seconds.
const AGE_DIFFERS_S: f64 = 5.0;
/// Ticks per second in /proc/PID/stat (USER_HZ).
const TICKS_S: f64 = 100.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// In a process of this host with the same namespaces as ours.
    Here,
    /// In a process of this host with namespaces of its own.
    Namespace,
    /// In no process of this host.
    Elsewhere,
    Unknown,
}

#[derive(Debug, Serialize)]
pub struct Place {
    pub answer: Answer,
    /// The server's process; null unless it is on this host.
    pub pid: Option<u32>,
    /// Its namespaces that are not ours, as /proc/PID/ns names them.
    namespaces: Vec<String>,
    /// The process of this host at the other end of our connection, if that is not the server.
    answered_by: Option<Process>,
    /// What the answer is from: sentences, the strongest first.
    evidence: Vec<String>,
    /// What would give an answer; empty if there is one.
    missing: String,
}

#[derive(Debug, PartialEq, Serialize)]
struct Process {
    pid: u32,
    program: String,
}

/// What the server says about itself, and which connection it was asked over.
struct Said {
    /// The thread that serves us, as the server's own kernel numbers it.
    thread: Option<u32>,
    /// Where the server sees our connection come from.
    client: Option<(Option<IpAddr>, u16)>,
    uptime_s: Option<f64>,
    hostname: Option<String>,
    uuid: Option<String>,
    datadir: Option<String>,
    peer_pid: Option<u32>,
    /// Our own end of a TCP connection, and the other.
    ends: Option<(SocketAddr, SocketAddr)>,
}

/// What one process's own files say to that; `None`: not known.
#[derive(Default)]
struct Compared {
    /// The other end of our connection is its socket.
    holds_end: Option<bool>,
    /// It has a connection from where the server sees ours come from.
    has_client: Option<bool>,
    has_thread: Option<bool>,
    is_as_old: Option<bool>,
    has_name: Option<bool>,
    has_uuid: Option<bool>,
    has_data: Option<bool>,
}

pub fn read(
    connection: &mut Connection,
    variables: &BTreeMap<String, String>,
    servers: &[Server],
    hostname: Option<&str>,
) -> Place {
    if let Some(several) = answering_servers(connection, variables) {
        return Place {
            answer: Answer::Unknown,
            pid: None,
            namespaces: Vec::new(),
            answered_by: None,
            evidence: vec![several],
            missing: "the server's own address or socket, without the proxy".to_owned(),
        };
    }
    let said = said(connection, variables);
    let candidates: Vec<&Server> = servers.iter().filter(|server| server.is_database()).collect();
    let mut compared: Vec<(u32, Compared)> =
        candidates.iter().map(|server| (server.pid(), compare(server, &said, hostname))).collect();
    let holds_end = compared.iter().any(|(_, each)| each.holds_end == Some(true));
    let answered_by = if holds_end { None } else { answering(&said) };
    // A forwarder told the server our own address (the PROXY protocol), which says nothing about who is connected.
    if answered_by.is_some() && said.is_seen_as_ours() {
        compared.iter_mut().for_each(|(_, each)| each.has_client = None);
    }
    let mut place = decided(&compared, &said, sees_all_processes());
    if let Some(pid) = place.pid {
        place.namespaces = namespaces::of_its_own(pid).unwrap_or_default();
        place.answer = if place.namespaces.is_empty() { Answer::Here } else { Answer::Namespace };
    } else {
        place.answered_by = answered_by;
    }
    place
}

/// Names of variables that tell servers apart, also two of one host.
const IDENTITY: [&str; 4] = ["hostname", "port", "datadir", "server_id"];
/// Statements that are asked for them: a proxy may take the servers in turn, or only send reads elsewhere.
const IDENTITY_ASKED: usize = 3;

/// What says that the statements of this one connection are answered by several servers; None if they are not.
fn answering_servers(connection: &mut Connection, variables: &BTreeMap<String, String>) -> Option<String> {
    let sql = format!("SELECT {}", IDENTITY.map(|name| format!("CONCAT(@@{name}, '')")).join(", "));
    for _ in 0..IDENTITY_ASKED {
        let found = rows(connection, &sql).ok()?.into_iter().next()?;
        for (name, cell) in IDENTITY.iter().zip(found) {
            if let (Some(one), Some(other)) = (variables.get(*name), cell)
                && *one != other
            {
                return Some(format!(
                    "a proxy sends the statements of one connection to several servers ({name} {one} and {other})"
                ));
            }
        }
    }
    None
}

fn said(connection: &mut Connection, variables: &BTreeMap<String, String>) -> Said {
    let value = |name: &str| variables.get(name).filter(|value| !value.is_empty()).cloned();
    let mut cell = |sql: &str| rows(connection, sql).ok()?.into_iter().next()?.into_iter().last()?;
    const OWN: &str = "FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID()";
    let client = cell(&format!("SELECT HOST {OWN}"))
        .or_else(|| cell("SELECT HOST FROM performance_schema.processlist WHERE ID = CONNECTION_ID()"))
        .and_then(|text| client_of(&text));
    let uptime_s = cell("SHOW GLOBAL STATUS LIKE 'Uptime'").and_then(|text| text.parse().ok());
    // Last: a pool of threads may serve the next statement by another one.
    let thread = cell(&format!("SELECT TID {OWN}"))
        .or_else(|| {
            let sql =
                "SELECT THREAD_OS_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID()";
            cell(sql)
        })
        .and_then(|text| text.parse().ok())
        .filter(|&thread| thread > 0);
    Said {
        thread,
        client,
        uptime_s,
        hostname: value("hostname"),
        uuid: value("server_uuid"),
        datadir: value("datadir"),
        peer_pid: connection.peer_pid(),
        ends: connection.ends(),
    }
}

impl Said {
    /// Whether the server sees our own end of the connection; it may have made a name of the address.
    fn is_seen_as_ours(&self) -> bool {
        self.ends.zip(self.client).is_some_and(|((ours, _), (host, port))| {
            port == ours.port() && host.is_none_or(|host| plain_ip(host) == plain_ip(ours.ip()))
        })
    }
}

/// `10.0.0.7:41200`, `[fe80::1]:41200`, `::1:41200` or `db1.example:41200`; a Unix socket has no port.
fn client_of(text: &str) -> Option<(Option<IpAddr>, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.parse().ok(), port.parse().ok()?))
}

fn compare(server: &Server, said: &Said, hostname: Option<&str>) -> Compared {
    let pid = server.pid();
    let sockets = sockets_of(pid);
    // In another network the same addresses are other connections.
    let ends = said.ends.filter(|_| namespaces::is_shared(pid, "net") == Some(true));
    let holds_end = match (said.peer_pid, ends) {
        (Some(peer), _) => Some(peer == pid),
        (None, Some((ours, theirs))) => {
            let is_ours = |end: &End| end.remote == plain(ours) && end.local == plain(theirs);
            holds(pid, sockets.as_deref(), is_ours)
        }
        (None, None) => None,
    };
    let has_client = said.client.and_then(|(host, port)| {
        let is_it = |end: &End| {
            end.remote.port() == port && host.is_none_or(|host| plain_ip(host) == end.remote.ip())
        };
        holds(pid, sockets.as_deref(), is_it)
    });
    let root = format!("/proc/{pid}/root");
    let name = if namespaces::is_shared(pid, "uts") == Some(true) {
        hostname.map(str::to_owned)
    } else {
        namespaces::host_name_in(pid)
    };
    let inode = |path: &str| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let data = said.datadir.as_ref().map(|path| format!("{root}{path}"));
    let has_data = data.as_ref().and_then(|path| Some(inode(path)? == inode(&format!("/proc/{pid}/cwd"))?));
    let file = data.and_then(|path| fs::read_to_string(format!("{path}/auto.cnf")).ok());
    let own_uuid = file.as_deref().and_then(uuid_of);
    Compared {
        holds_end,
        has_client,
        has_thread: said.thread.and_then(|thread| has_thread(pid, thread)),
        is_as_old: said.uptime_s.and_then(|uptime_s| Some((age_s(pid)? - uptime_s).abs() <= AGE_DIFFERS_S)),
        has_name: said.hostname.as_ref().zip(name).map(|(said, name)| *said == name),
        has_uuid: said.uuid.as_deref().zip(own_uuid).map(|(said, own)| said == own),
        has_data,
    }
}

impl Compared {
    /// Whether it is this process.
    fn is_proof(&self) -> bool {
        let fits = |known: Option<bool>| known == Some(true);
        if fits(self.holds_end) {
            return true;
        }
        // Our own connection ends in another process, which may pass it on to this one.
        if self.is_refuted() {
            return false;
        }
        // Of many connections one may have the same port by chance, as a thread of another container may have the same
        // number: never without something else that fits.
        let is_named = fits(self.has_name) || fits(self.has_uuid);
        match (self.has_client, fits(self.has_thread), fits(self.is_as_old)) {
            (Some(true), true, _) | (Some(true), _, true) => true,
            (Some(false), true, true) => fits(self.has_uuid),
            (None, true, true) => is_named && self.has_data != Some(false),
            (None, _, true) => fits(self.has_uuid) && fits(self.has_name),
            _ => false,
        }
    }

    /// Whether it cannot be this process, although it may have the same paths.
    fn is_refuted(&self) -> bool {
        self.has_thread == Some(false) || self.has_uuid == Some(false)
    }

    /// Whether it is rather not this process.
    fn is_unlike(&self) -> bool {
        self.is_refuted() || self.is_as_old == Some(false) || self.has_name == Some(false)
    }

    fn for_it(&self) -> Vec<String> {
        let sentences = [
            (self.holds_end, "the other end of the connection is a socket of this process"),
            (
                self.has_client,
                "this process has a connection from the address that the server reports for ours",
            ),
            (self.has_thread, "the thread that serves the connection is one of this process"),
            (self.has_uuid, "its server_uuid is the one in this process's data directory"),
            (self.is_as_old, "it has been up for as long as this process"),
            (self.has_name, "it reports this process's host name"),
            (self.has_data, "its data directory is this process's working directory"),
        ];
        sentences
            .into_iter()
            .filter(|(is_so, _)| *is_so == Some(true))
            .map(|(_, text)| text.to_owned())
            .collect()
    }

    fn against_it(&self, pid: u32) -> Option<String> {
        let sentences = [
            (self.has_thread, "has no thread of the number that serves the connection"),
            (self.has_uuid, "has another server_uuid in its data directory"),
            (self.is_as_old, "started at another time than the server"),
            (self.has_name, "has another host name than the server reports"),
            (self.holds_end, "does not hold the other end of the connection"),
            (self.has_client, "has no connection from the address that the server reports for ours"),
        ];
        let first = sentences.into_iter().find(|(is_so, _)| *is_so == Some(false));
        first.map(|(_, text)| format!("process {pid} {text}"))
    }
}

/// `sees_all`: no process of this host is hidden from us.
fn decided(compared: &[(u32, Compared)], said: &Said, sees_all: bool) -> Place {
    let proven: Vec<&(u32, Compared)> = compared.iter().filter(|(_, each)| each.is_proof()).collect();
    let place = |answer, pid, evidence, missing: &str| Place {
        answer,
        pid,
        namespaces: Vec::new(),
        answered_by: None,
        evidence,
        missing: missing.to_owned(),
    };
    if let [(pid, found)] = proven[..] {
        return place(Answer::Here, Some(*pid), found.for_it(), "");
    }
    if let [(pid, found)] =
        proven.iter().filter(|(_, each)| each.holds_end == Some(true)).collect::<Vec<_>>()[..]
    {
        return place(Answer::Here, Some(*pid), found.for_it(), "");
    }
    let mut evidence: Vec<String> = compared.iter().filter_map(|(pid, each)| each.against_it(*pid)).collect();
    if compared.is_empty() {
        evidence.push("no MySQL or MariaDB process runs on this host".to_owned());
    }
    if proven.is_empty() && sees_all && compared.iter().all(|(_, each)| each.is_unlike()) {
        return place(Answer::Elsewhere, None, evidence, "");
    }
    let missing = if !sees_all {
        "not all processes of this host can be seen: run headrace as root, outside containers"
    } else if said.thread.is_none() {
        "the number of the thread that serves the connection (SELECT ON performance_schema.threads, with the \
         Performance Schema on), or root to read the server's sockets"
    } else {
        "root, to read the sockets of this host's servers"
    };
    place(Answer::Unknown, None, evidence, missing)
}

/// Whether processes of others are listed: not with `hidepid` as an ordinary user.
fn sees_all_processes() -> bool {
    fs::metadata("/proc/1").is_ok()
}

/// The process of this host that holds the other end of our connection.
fn answering(said: &Said) -> Option<Process> {
    let pid = match (said.peer_pid, said.ends) {
        (Some(pid), _) => pid,
        (None, Some((ours, theirs))) => {
            let is_it = |end: &End| end.remote == plain(ours) && end.local == plain(theirs);
            let inode = established("self").into_iter().find(is_it)?.inode;
            let numbers = fs::read_dir("/proc").ok()?.flatten();
            let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            pids.find(|&pid| sockets_of(pid).is_some_and(|own| own.contains(&inode)))?
        }
        (None, None) => return None,
    };
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(Process { pid, program: program.trim().to_owned() })
}

/// One end of an established TCP connection. Addresses of IPv4 are never in the form of IPv6.
#[derive(Clone, Copy, Debug, PartialEq)]
struct End {
    local: SocketAddr,
    remote: SocketAddr,
    inode: u64,
}

/// `None` if its sockets cannot be read.
fn holds(pid: u32, sockets: Option<&[u64]>, is_it: impl Fn(&End) -> bool) -> Option<bool> {
    let sockets = sockets?;
    Some(established(&pid.to_string()).iter().any(|end| is_it(end) && sockets.contains(&end.inode)))
}

/// The established connections in a process's network namespace.
fn established(pid: &str) -> Vec<End> {
    let table = |name: &str| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
    ["tcp", "tcp6"]
        .iter()
        .flat_map(|name| table(name).lines().filter_map(end_of).collect::<Vec<_>>())
        .collect()
}

/// A line of /proc/net/tcp or tcp6 (proc(5)).
fn end_of(line: &str) -> Option<End> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, remote, ESTABLISHED, _, _, _, _, _, inode, ..] = words[..] else { return None };
    Some(End { local: address_of(local)?, remote: address_of(remote)?, inode: inode.parse().ok()? })
}

/// `0100007F:0CEA`: words of 32 bits in the machine's order, and the port.
fn address_of(text: &str) -> Option<SocketAddr> {
    let (host, port) = text.split_once(':')?;
    let words: Vec<[u8; 4]> = (0..host.len() / 8)
        .map(|at| Some(u32::from_str_radix(host.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes()))
        .collect::<Option<_>>()?;
    let ip = match words[..] {
        [word] => IpAddr::from(word),
        [_, _, _, _] => IpAddr::from(<[u8; 16]>::try_from(words.concat()).ok()?),
        _ => return None,
    };
    Some(SocketAddr::new(plain_ip(ip), u16::from_str_radix(port, 16).ok()?))
}

fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(plain_ip(address.ip()), address.port())
}

fn plain_ip(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// The inodes of a process's sockets; `None` without permission to read them.
fn sockets_of(pid: u32) -> Option<Vec<u64>> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
    let inode = |link: fs::DirEntry| {
        let target = fs::read_link(link.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Some(links.filter_map(inode).collect())
}

/// Whether one of its threads has this number in its own PID namespace.
fn has_thread(pid: u32, thread: u32) -> Option<bool> {
    let folder = format!("/proc/{pid}/task");
    if namespaces::is_shared(pid, "pid") == Some(true) {
        return Some(fs::metadata(format!("{folder}/{thread}")).is_ok());
    }
    let mut numbers = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| {
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        status_value(&status, "NSpid")?.split_whitespace().last()?.parse::<u32>().ok()
    });
    Some(numbers.any(|number| number == thread))
}

fn age_s(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let started_s = field(&stat, 22)?.parse::<f64>().ok()? / TICKS_S;
    // Not /proc/uptime, which lxcfs replaces.
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Some(now.tv_sec as f64 + now.tv_nsec as f64 / 1e9 - started_s)
}

/// Of an auto.cnf.
fn uuid_of(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.trim().strip_prefix("server-uuid")?.trim().strip_prefix('='))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        Said {
            thread: Some(7),
            client: None,
            uptime_s: Some(100.0),
            hostname: None,
            uuid: None,
            datadir: None,
            peer_pid: None,
            ends: None,
        }
    }

    fn decide(compared: Compared) -> Answer {
        decided(&[(42, compared)], &said(), true).answer
    }

    #[test]
    fn the_same_paths_prove_nothing() {
        let same = || Compared { has_data: Some(true), has_name: Some(true), ..Compared::default() };
        assert_eq!(decide(same()), Answer::Unknown);
        assert_eq!(decide(Compared { is_as_old: Some(true), ..same() }), Answer::Unknown);
        assert_eq!(
            decide(Compared { is_as_old: Some(true), has_thread: Some(false), ..same() }),
            Answer::Elsewhere
        );
    }

    #[test]
    fn twins_in_containers_that_were_started_together() {
        let twin = || Compared { has_thread: Some(true), is_as_old: Some(true), ..Compared::default() };
        assert_eq!(decide(Compared { has_client: Some(false), ..twin() }), Answer::Unknown);
        assert_eq!(decide(twin()), Answer::Unknown);
        assert_eq!(decide(Compared { has_name: Some(false), ..twin() }), Answer::Elsewhere);
        assert_eq!(decide(Compared { has_name: Some(true), ..twin() }), Answer::Here);
    }

    #[test]
    fn a_number_that_fits_by_chance_proves_nothing() {
        let by_chance = Compared { has_thread: Some(true), is_as_old: Some(false), ..Compared::default() };
        assert_eq!(decide(by_chance), Answer::Elsewhere);
        let by_chance = Compared { has_client: Some(true), is_as_old: Some(false), ..Compared::default() };
        assert_eq!(decide(by_chance), Answer::Elsewhere);
    }

    #[test]
    fn the_end_of_the_connection_is_proof() {
        let end = |holds_end| Compared { holds_end: Some(holds_end), ..Compared::default() };
        assert_eq!(decide(end(true)), Answer::Here);
        assert_eq!(decide(end(false)), Answer::Unknown);
        // A forwarder between two processes of this host.
        let forwarded = Compared { has_thread: Some(true), has_client: Some(true), ..end(false) };
        assert_eq!(decide(forwarded), Answer::Here);
    }

    #[test]
    fn without_all_processes_nothing_is_elsewhere() {
        let refuted = Compared { has_thread: Some(false), ..Compared::default() };
        let found = decided(&[(42, refuted)], &said(), false);
        assert_eq!(found.answer, Answer::Unknown);
        assert!(found.missing.contains("root"), "{}", found.missing);
    }

    #[test]
    fn ends_of_both_families() {
        let line =
            "   1: 0100007F:0CEA 0100007F:A0F2 01 00000000:00000000 00:00000000 00000000   105  0 31337 1";
        let end = end_of(line).unwrap();
        assert_eq!((end.local, end.inode), ("127.0.0.1:3306".parse().unwrap(), 31337));
        let mapped = "0000000000000000FFFF00000100007F:0CEA";
        assert_eq!(address_of(mapped), Some("127.0.0.1:3306".parse().unwrap()));
        assert_eq!(end_of(&line.replace(" 01 ", " 0A ")), None, "one that only listens");
        assert_eq!(address_of("0100:0CEA"), None);
    }

    #[test]
    fn clients_as_servers_write_them() {
        assert_eq!(client_of("10.0.0.7:41200"), Some((Some("10.0.0.7".parse().unwrap()), 41200)));
        assert_eq!(client_of("::1:41200"), Some((Some("::1".parse().unwrap()), 41200)));
        assert_eq!(client_of("db1.example:41200"), Some((None, 41200)));
        assert_eq!(client_of("localhost"), None);
    }

    #[test]
    fn the_identifier_of_a_data_directory() {
        assert_eq!(uuid_of("[auto]\nserver-uuid=81b1-4\n"), Some("81b1-4"));
        assert_eq!(uuid_of("[auto]\n"), None);
    }
}
