//! Captures of real connections on loopback.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::{CaptureOptions, Captured, Ended, Limits, capture};
use crate::guard::Pulse;
use crate::packets::PacketOptions;
use crate::stream::{Opened, Side, Streams};
use base::stop::StopSignal;

mod filters;

/// What was captured of all connections but those of a probe.
#[derive(Default)]
struct Said {
    probe: u16,
    clients: HashMap<u64, SocketAddr>,
    bytes: HashMap<(u64, Side), Vec<u8>>,
    last_ns: u64,
    gaps: usize,
    closed: Arc<AtomicUsize>,
}

impl Streams for Said {
    fn opened(&mut self, _: u64, opened: &Opened) -> anyhow::Result<()> {
        if opened.server.port() == self.probe {
            return Ok(());
        }
        assert!(!opened.is_midstream);
        self.clients.insert(opened.session, opened.client);
        Ok(())
    }

    fn bytes(&mut self, time_ns: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()> {
        self.last_ns = self.last_ns.max(time_ns);
        self.bytes.entry((session, from)).or_default().extend(bytes);
        Ok(())
    }

    fn gap(&mut self, _: u64, _: u64, _: Side, _: Option<u64>) -> anyhow::Result<()> {
        self.gaps += 1;
        Ok(())
    }

    fn closed(&mut self, _: u64, session: u64) -> anyhow::Result<()> {
        if self.clients.contains_key(&session) {
            self.closed.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

/// What each client asked and heard.
type Truth = HashMap<SocketAddr, (Vec<u8>, Vec<u8>)>;

/// Connections that only show whether packets are captured yet.
struct Probe(TcpListener);

impl Probe {
    /// With it, the ports of it and of another one.
    fn beside(listener: &TcpListener) -> (Self, PacketOptions) {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let ports = [listener, &probe].map(|each| each.local_addr().unwrap().port()).to_vec();
        (Self(probe), PacketOptions { ports, ..PacketOptions::default() })
    }

    /// Until the first packet is captured, or the capture has ended.
    fn wait(&self, pulse: &Pulse, is_over: impl Fn() -> bool) {
        while pulse.beats() == 0 && !is_over() {
            let _client = TcpStream::connect(self.0.local_addr().unwrap()).unwrap();
            self.0.accept().unwrap();
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn may_capture() -> bool {
    // SAFETY: plain system calls on a descriptor of our own.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_DGRAM, 0) };
    if fd >= 0 {
        unsafe { libc::close(fd) };
        return true;
    }
    eprintln!("not run: no CAP_NET_RAW");
    false
}

/// Asks `questions` times on each of four connections; an answer is a question's length times its bytes.
fn talk(listener: TcpListener, questions: usize) -> Truth {
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let servers: Vec<_> = listener
            .incoming()
            .take(4)
            .map(|stream| {
                let mut stream = stream.unwrap();
                thread::spawn(move || {
                    let mut length = [0; 4];
                    while stream.read_exact(&mut length).is_ok() {
                        stream.write_all(&vec![length[0]; u32::from_ne_bytes(length) as usize]).unwrap();
                    }
                })
            })
            .collect();
        servers.into_iter().for_each(|server| server.join().unwrap());
    });
    let clients = [0, 1, 2, 3].map(|number| {
        thread::spawn(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            let (mut asked, mut heard) = (Vec::new(), Vec::new());
            for at in 0..questions {
                let length = if at == 100 { 3_000_000 } else { 1 + (at * 37 + number) % 5000 };
                let question = (length as u32).to_ne_bytes();
                stream.write_all(&question).unwrap();
                asked.extend(question);
                let mut answer = vec![0; length];
                stream.read_exact(&mut answer).unwrap();
                heard.extend(answer);
            }
            (stream.local_addr().unwrap(), (asked, heard))
        })
    });
    let all = clients.into_iter().map(|client| client.join().unwrap()).collect();
    server.join().unwrap();
    all
}

fn capture_talk(
    interface: Option<&str>,
    change: impl FnOnce(&mut CaptureOptions),
    questions: usize,
) -> Option<(Captured, Said, Truth)> {
    if !may_capture() {
        return None;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (probe, packets) = Probe::beside(&listener);
    let mut options =
        CaptureOptions { interface: interface.map(str::to_owned), packets, ..CaptureOptions::default() };
    // Tests share their machine, and this process.
    options.limits = Limits { max_cpu_share: 100.0, min_available_bytes: 0, ..Limits::default() };
    change(&mut options);
    let has_end =
        options.duration.is_some() || options.max_bytes.is_some() || options.limits.min_available_bytes > 0;
    let (stop, writer) = StopSignal::pair();
    let pulse = options.pulse.clone();
    let mut said = Said { probe: probe.0.local_addr().unwrap().port(), ..Said::default() };
    let closed = said.closed.clone();
    let capturing = thread::spawn(move || {
        let captured = capture(&options, &stop, &mut said).unwrap();
        (captured, said)
    });
    probe.wait(&pulse, || capturing.is_finished());
    let truth = talk(listener, questions);
    if !has_end {
        // The kernel hands over a block that is not full some time after its last packet.
        let begun = Instant::now();
        while closed.load(Ordering::Relaxed) < truth.len() && begun.elapsed() < Duration::from_secs(60) {
            thread::sleep(Duration::from_millis(10));
        }
    }
    // It must not end by this, where it has an end of its own.
    let writer = has_end.then_some(writer);
    let (captured, said) = capturing.join().unwrap();
    drop(writer);
    Some((captured, said, truth))
}

#[test]
fn captures_whole_connections() {
    for interface in [Some("lo"), None] {
        let Some((captured, said, truth)) = capture_talk(interface, |_| {}, 300) else { return };
        assert_eq!(captured.ended, Ended::Asked);
        let coverage = captured.coverage;
        assert_eq!((coverage.dropped_packets, coverage.gaps, coverage.damaged), (0, 0, 0), "{coverage:?}");
        // The long answers overrun the receiver's buffer, so that some are really sent again.
        assert_eq!((coverage.cut_packets, coverage.other_packets), (0, 0));
        let closed = said.closed.load(Ordering::Relaxed);
        assert_eq!((said.clients.len(), closed, said.gaps), (4, 4, 0));
        for (session, client) in &said.clients {
            let (asked, heard) = &truth[client];
            assert!(said.bytes[&(*session, Side::Client)] == *asked);
            assert!(said.bytes[&(*session, Side::Server)] == *heard);
        }
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert!(now.as_nanos() as u64 - said.last_ns < 60_000_000_000, "stamped by this host's clock");
    }
}

#[test]
fn ends_by_itself() {
    let Some((captured, ..)) = capture_talk(Some("lo"), |options| options.max_bytes = Some(100_000), 200)
    else {
        return;
    };
    assert_eq!(captured.ended, Ended::Size);
    // The limit is looked at between blocks of the ring.
    assert!((100_000..16_000_000).contains(&captured.coverage.bytes));
    let soon = |options: &mut CaptureOptions| options.duration = Some(Duration::from_millis(100));
    assert_eq!(capture_talk(None, soon, 1).unwrap().0.ended, Ended::Duration);
    let greedy = |options: &mut CaptureOptions| options.limits.min_available_bytes = u64::MAX;
    let (captured, ..) = capture_talk(None, greedy, 1).unwrap();
    assert!(matches!(captured.ended, Ended::Memory { .. }) && captured.ended.is_early());
}

#[test]
fn lost_packets_are_counted() {
    // A ring of two blocks cannot take 12 MB that is not read, and neither can the backlog behind it.
    if !may_capture() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (probe, packets) = Probe::beside(&listener);
    let mut options =
        CaptureOptions { interface: Some("lo".to_owned()), packets, ..CaptureOptions::default() };
    options.limits = Limits { max_cpu_share: 100.0, max_drop_share: 1.0, min_available_bytes: 0 };
    options.ring_bytes = 1;
    options.backlog_bytes = 1;
    struct Slow(u64);
    impl Streams for Slow {
        fn opened(&mut self, _: u64, _: &Opened) -> anyhow::Result<()> {
            Ok(())
        }

        fn bytes(&mut self, _: u64, _: u64, _: Side, _: &[u8]) -> anyhow::Result<()> {
            thread::sleep(Duration::from_millis(2));
            Ok(())
        }

        fn gap(&mut self, _: u64, _: u64, _: Side, missing: Option<u64>) -> anyhow::Result<()> {
            self.0 += missing.unwrap();
            Ok(())
        }

        fn closed(&mut self, _: u64, _: u64) -> anyhow::Result<()> {
            Ok(())
        }

        fn cut(&mut self, session: u64) -> anyhow::Result<()> {
            self.closed(0, session)
        }
    }
    let (stop, writer) = StopSignal::pair();
    let pulse = options.pulse.clone();
    let capturing = thread::spawn(move || {
        let mut slow = Slow(0);
        (capture(&options, &stop, &mut slow).unwrap(), slow.0)
    });
    probe.wait(&pulse, || capturing.is_finished());
    talk(listener, 300);
    drop(writer);
    let (captured, missing) = capturing.join().unwrap();
    assert!(captured.coverage.dropped_packets > 0);
    assert_eq!(captured.coverage.gap_bytes, missing);
}

/// A decoder that is busy with the first bytes of a connection until it is told.
struct Busy {
    probe: u16,
    session: Option<u64>,
    free: Receiver<()>,
    bytes: usize,
    is_closed: Arc<AtomicBool>,
}

impl Streams for Busy {
    fn opened(&mut self, _: u64, opened: &Opened) -> anyhow::Result<()> {
        if opened.server.port() != self.probe {
            self.session = Some(opened.session);
        }
        Ok(())
    }

    fn bytes(&mut self, _: u64, session: u64, _: Side, bytes: &[u8]) -> anyhow::Result<()> {
        if self.session == Some(session) {
            if self.bytes == 0 {
                self.free.recv().unwrap();
            }
            self.bytes += bytes.len();
        }
        Ok(())
    }

    fn gap(&mut self, _: u64, _: u64, _: Side, _: Option<u64>) -> anyhow::Result<()> {
        Ok(())
    }

    fn closed(&mut self, _: u64, session: u64) -> anyhow::Result<()> {
        self.is_closed.fetch_or(self.session == Some(session), Ordering::Relaxed);
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

#[test]
fn a_busy_decoder_costs_no_packets() {
    const MIB: usize = 1 << 20;
    // More than the ring has room for.
    const SENT: usize = 48 * MIB;
    if !may_capture() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (probe, packets) = Probe::beside(&listener);
    let limits = Limits { max_cpu_share: 100.0, max_drop_share: 1.0, min_available_bytes: 0 };
    let interface = Some("lo".to_owned());
    let options = CaptureOptions { interface, packets, limits, ..CaptureOptions::default() };
    let (stop, writer) = StopSignal::pair();
    let (pulse, (freed, free)) = (options.pulse.clone(), channel());
    let is_closed = Arc::new(AtomicBool::new(false));
    let mut busy = Busy {
        probe: probe.0.local_addr().unwrap().port(),
        session: None,
        free,
        bytes: 0,
        is_closed: is_closed.clone(),
    };
    let capturing = thread::spawn(move || (capture(&options, &stop, &mut busy).unwrap(), busy.bytes));
    probe.wait(&pulse, || capturing.is_finished());
    let server =
        thread::spawn(move || std::io::copy(&mut listener.accept().unwrap().0, &mut std::io::sink()));
    let mut client = TcpStream::connect(address).unwrap();
    for _ in 0..SENT / MIB {
        client.write_all(&vec![b'x'; MIB]).unwrap();
        // Slow enough for a thread that has a core to itself only now and then.
        thread::sleep(Duration::from_millis(5));
    }
    drop(client);
    assert_eq!(server.join().unwrap().unwrap(), SENT as u64);
    freed.send(()).unwrap();
    let begun = Instant::now();
    while !is_closed.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(10));
    }
    drop(writer);
    let (captured, bytes) = capturing.join().unwrap();
    assert_eq!((captured.coverage.dropped_packets, captured.coverage.gaps, bytes), (0, 0, SENT));
}

#[test]
fn packets_right_before_the_end_belong_to_it() {
    if !may_capture() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (probe, packets) = Probe::beside(&listener);
    let limits = Limits { max_cpu_share: 100.0, min_available_bytes: 0, ..Limits::default() };
    let interface = Some("lo".to_owned());
    let options = CaptureOptions { interface, packets, limits, ..CaptureOptions::default() };
    let (stop, writer) = StopSignal::pair();
    let pulse = options.pulse.clone();
    let mut said = Said { probe: probe.0.local_addr().unwrap().port(), ..Said::default() };
    let capturing = thread::spawn(move || capture(&options, &stop, &mut said).map(|_| said));
    probe.wait(&pulse, || capturing.is_finished());
    let truth = talk(listener, 50);
    drop(writer);
    let said = capturing.join().unwrap().unwrap();
    assert_eq!(said.clients.len(), truth.len());
    for (session, client) in &said.clients {
        assert!(said.bytes[&(*session, Side::Server)] == truth[client].1);
    }
}

/// A decoder that takes its time at the end of each connection.
struct Thorough {
    opened: Arc<AtomicUsize>,
    closed: usize,
}

impl Streams for Thorough {
    fn opened(&mut self, _: u64, _: &Opened) -> anyhow::Result<()> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn bytes(&mut self, _: u64, _: u64, _: Side, _: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }

    fn gap(&mut self, _: u64, _: u64, _: Side, _: Option<u64>) -> anyhow::Result<()> {
        Ok(())
    }

    fn closed(&mut self, _: u64, _: u64) -> anyhow::Result<()> {
        thread::sleep(Duration::from_millis(300));
        self.closed += 1;
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

#[test]
fn a_long_end_is_waited_for() {
    const CLIENTS: usize = 8;
    if !may_capture() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let packets = PacketOptions { ports: vec![address.port()], ..PacketOptions::default() };
    let limits = Limits { max_cpu_share: 100.0, min_available_bytes: 0, ..Limits::default() };
    let interface = Some("lo".to_owned());
    let options = CaptureOptions { interface, packets, limits, ..CaptureOptions::default() };
    let (stop, writer) = StopSignal::pair();
    let opened = Arc::new(AtomicUsize::new(0));
    let mut thorough = Thorough { opened: opened.clone(), closed: 0 };
    let capturing = thread::spawn(move || capture(&options, &stop, &mut thorough).map(|_| thorough.closed));
    let mut clients = Vec::new();
    while opened.load(Ordering::Relaxed) < CLIENTS && !capturing.is_finished() {
        clients.push(TcpStream::connect(address).unwrap());
        thread::sleep(Duration::from_millis(50));
    }
    drop(writer);
    assert!(capturing.join().unwrap().unwrap() >= CLIENTS);
}

#[test]
fn interface_that_is_not_there() {
    for name in ["nowhere0", "", "..", "../../etc"] {
        let options = CaptureOptions { interface: Some(name.to_owned()), ..CaptureOptions::default() };
        let error = capture(&options, &StopSignal::pair().0, &mut Said::default()).unwrap_err();
        assert_eq!(error.to_string(), format!("bad input: no interface {name:?}"));
    }
}

/// A decoder that never returns from its first packet.
struct Stuck;

impl Streams for Stuck {
    fn opened(&mut self, _: u64, _: &Opened) -> anyhow::Result<()> {
        println!("stuck");
        loop {
            std::hint::spin_loop();
        }
    }

    fn bytes(&mut self, _: u64, _: u64, _: Side, _: &[u8]) -> anyhow::Result<()> {
        Ok(())
    }

    fn gap(&mut self, _: u64, _: u64, _: Side, _: Option<u64>) -> anyhow::Result<()> {
        Ok(())
    }

    fn closed(&mut self, _: u64, _: u64) -> anyhow::Result<()> {
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

#[test]
#[ignore = "what the next test runs in a process of its own, since the guard ends it"]
fn a_stuck_capture() {
    let limit = std::env::var("HEADRACE_TEST_LIMIT").expect("the limit that is to end it");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let packets =
        PacketOptions { ports: vec![listener.local_addr().unwrap().port()], ..PacketOptions::default() };
    let mut options =
        CaptureOptions { interface: Some("lo".to_owned()), packets, ..CaptureOptions::default() };
    let max_cpu_share = if limit == "cpu" { 0.05 } else { 1000.0 };
    options.limits = Limits { max_cpu_share, min_available_bytes: 0, ..Limits::default() };
    options.duration = (limit == "duration").then(|| Duration::from_millis(1500));
    thread::spawn(move || {
        // Repeatedly, in case the first ones precede the capture.
        loop {
            let _client = std::net::TcpStream::connect(listener.local_addr().unwrap());
            thread::sleep(Duration::from_millis(100));
        }
    });
    let (never, _writer) = StopSignal::pair();
    let stop = if limit == "signal" { StopSignal::install().unwrap() } else { never };
    let _ = capture(&options, &stop, &mut Stuck);
}

#[test]
fn a_stuck_decoder_keeps_no_limit_from_holding() {
    use std::io::{BufRead, BufReader, Read};
    if !may_capture() {
        return;
    }
    for limit in ["duration", "signal", "cpu"] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "capture::tests::a_stuck_capture"])
            .env("HEADRACE_TEST_LIMIT", limit)
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("stuck")), "{limit}");
        if limit == "signal" {
            let id = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        }
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{limit}: {said}");
        assert!(said.contains("the decoder did not end"), "{limit}: {said}");
    }
}
