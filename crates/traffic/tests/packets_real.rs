//! Captures by tcpdump of real connections over a lossy link between two network namespaces, at both of its ends.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use traffic::packets::{PacketOptions, read};
use traffic::stream::{Opened, Side, Streams};

/// Asks for answers of random lengths on several connections at once; bytes follow from their places alone.
const TALK: &str = r#"
import random, socket, struct, sys, threading

def bytes_of(at, length, flip):
    return bytes(((i % 251) ^ flip) for i in range(at, at + length))

def take(connection, length):
    data = b""
    while len(data) < length:
        more = connection.recv(length - len(data))
        if not more:
            return None
        data += more
    return data

def serve(connection):
    asked = said = 0
    while (head := take(connection, 8)) is not None:
        length, answer = struct.unpack("<II", head)
        assert take(connection, length) == bytes_of(asked, length, 0)
        asked += length
        connection.sendall(bytes_of(said, answer, 255))
        said += answer
    connection.close()

def ask(number):
    choice = random.Random(number)
    connection = socket.create_connection(("10.99.0.2", 3306))
    asked = heard = 0
    for _ in range(60):
        length, answer = choice.randrange(1, 4000), choice.choice([1, 100, 5000, 60000])
        connection.sendall(struct.pack("<II", length, answer) + bytes_of(asked, length, 0))
        asked += length
        assert take(connection, answer) == bytes_of(heard, answer, 255)
        heard += answer
    connection.close()

if sys.argv[1] == "serve":
    listener = socket.create_server(("10.99.0.2", 3306))
    threads = [threading.Thread(target=serve, args=(listener.accept()[0],)) for _ in range(4)]
else:
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"#;

/// Ended with its test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Namespaces([String; 2]);

impl Namespaces {
    fn make() -> Option<Self> {
        let names = ["a", "b"].map(|end| format!("hr-{}{end}", std::process::id()));
        let all = Self(names);
        let [a, b] = &all.0;
        let steps = [
            format!("ip netns add {a}"),
            format!("ip netns add {b}"),
            format!("ip link add va netns {a} type veth peer name vb netns {b}"),
            format!("ip -n {a} addr add 10.99.0.1/30 dev va"),
            format!("ip -n {b} addr add 10.99.0.2/30 dev vb"),
            format!("ip -n {a} link set va up"),
            format!("ip -n {b} link set vb up"),
            // A queue too short for the answers: it drops before the capture sees them, so that others overtake.
            format!("tc -n {a} qdisc add dev va root tbf rate 40mbit burst 6kb limit 12kb"),
            format!("tc -n {b} qdisc add dev vb root tbf rate 40mbit burst 6kb limit 12kb"),
        ];
        for step in steps {
            let mut words = step.split(' ');
            match Command::new(words.next()?).args(words).output() {
                Ok(done) if done.status.success() => {}
                other => {
                    eprintln!("not run: {step}: {other:?}");
                    return None;
                }
            }
        }
        Some(all)
    }

    /// Packets that the link lost.
    fn lost(&self) -> u64 {
        let [_, b] = &self.0;
        let told = Command::new("tc").args(["-n", b, "-s", "qdisc", "show", "dev", "vb"]).output().unwrap();
        let text = String::from_utf8(told.stdout).unwrap();
        let (_, after) = text.split_once("(dropped ").unwrap();
        after.split(',').next().unwrap().parse().unwrap()
    }

    fn run(&self, end: usize, words: &[&str]) -> Running {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[end]]).args(words);
        Running(command.stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

#[derive(Default)]
struct Check {
    reached: HashMap<(u64, Side), usize>,
    opened: usize,
    closed: usize,
    /// Bytes of the heads of questions, which are no pattern.
    asked: HashMap<u64, Vec<u8>>,
}

impl Streams for Check {
    fn opened(&mut self, _: u64, opened: &Opened) -> anyhow::Result<()> {
        assert!(!opened.is_midstream);
        assert_eq!(opened.server.to_string(), "10.99.0.2:3306");
        self.opened += 1;
        Ok(())
    }

    fn bytes(&mut self, _: u64, session: u64, from: Side, bytes: &[u8]) -> anyhow::Result<()> {
        let reached = self.reached.entry((session, from)).or_default();
        match from {
            Side::Client => self.asked.entry(session).or_default().extend(bytes),
            Side::Server => {
                for (at, byte) in bytes.iter().enumerate() {
                    assert_eq!(*byte, ((*reached + at) % 251) as u8 ^ 255);
                }
            }
        }
        *reached += bytes.len();
        Ok(())
    }

    fn gap(&mut self, _: u64, _: u64, from: Side, missing: Option<u64>) -> anyhow::Result<()> {
        panic!("{missing:?} bytes of the {from:?} are missing");
    }

    fn closed(&mut self, _: u64, _: u64) -> anyhow::Result<()> {
        self.closed += 1;
        Ok(())
    }

    fn cut(&mut self, session: u64) -> anyhow::Result<()> {
        self.closed(0, session)
    }
}

impl Check {
    fn whole(&self) {
        assert_eq!((self.opened, self.closed, self.asked.len()), (4, 4, 4));
        for (session, asked) in &self.asked {
            let (mut rest, mut questions, mut pattern, mut answers) = (&asked[..], 0, 0, 0);
            while let Some((head, after)) = rest.split_first_chunk::<8>() {
                let number = |at: usize| u32::from_le_bytes(*head[at..].first_chunk().unwrap()) as usize;
                let (question, later) = after.split_at(number(0));
                assert!(question.iter().enumerate().all(|(at, byte)| *byte == ((pattern + at) % 251) as u8));
                pattern += question.len();
                answers += number(4);
                questions += 1;
                rest = later;
            }
            assert_eq!((questions, rest.len()), (60, 0));
            assert_eq!(self.reached[&(*session, Side::Server)], answers);
        }
    }
}

fn wait_for(Running(child): &mut Running, most: Duration) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < most, "the talk did not end");
        sleep(Duration::from_millis(50));
    }
    assert!(child.wait().unwrap().success());
}

fn wait_for_file(path: &Path) {
    let begun = Instant::now();
    while std::fs::metadata(path).map_or(0, |data| data.len()) < 24 {
        assert!(begun.elapsed() < Duration::from_secs(20), "tcpdump does not begin");
        sleep(Duration::from_millis(50));
    }
}

#[test]
fn streams_over_a_lossy_link_come_out_whole() {
    let Some(namespaces) = Namespaces::make() else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = ["client.pcap", "server.pcap"].map(|name| folder.path().join(name));
    let mut dumps: Vec<Running> = [(0, "va"), (1, "vb")]
        .map(|(end, device)| {
            let file = files[end].to_str().unwrap();
            let words = ["tcpdump", "-U", "-Z", "root", "-B", "16384", "-i", device, "-w", file, "tcp"];
            namespaces.run(end, &words)
        })
        .into();
    files.iter().for_each(|file| wait_for_file(file));
    let mut server = namespaces.run(1, &["python3", "-c", TALK, "serve"]);
    sleep(Duration::from_millis(1500));
    let mut client = namespaces.run(0, &["python3", "-c", TALK, "ask"]);
    wait_for(&mut client, Duration::from_secs(100));
    wait_for(&mut server, Duration::from_secs(20));
    // The last packets, sent again until they arrive.
    sleep(Duration::from_millis(1500));
    for Running(dump) in &mut dumps {
        let pid = rustix::process::Pid::from_child(dump);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        dump.wait().unwrap();
    }
    assert!(namespaces.lost() > 20, "a link that lost next to nothing: {}", namespaces.lost());
    for file in &files {
        let mut check = Check::default();
        let input = File::open(file).unwrap();
        let coverage = read(input, "real", &PacketOptions::default(), &mut check).unwrap();
        check.whole();
        assert_eq!((coverage.gaps, coverage.damaged, coverage.other_packets), (0, 0, 0));
    }
}
