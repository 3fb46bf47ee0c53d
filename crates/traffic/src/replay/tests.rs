//! The reader's side with events made up here; what needs a server is in tests/real/server/test_replay.py.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::accounts::Accounts;
use super::classes::OPERATIONS;
use super::dispatch::{Channel, Counts, Dispatch, Events, Plan};
use super::order::{Order, Step};
use super::queue::{Budget, Delivery, Expected, Inbox, Item, Progress, Request};
use super::timeline::Speed;
use crate::event::{Command, Event, Outcome};
use crate::measures::Measure;
use mysql::options::{Password, TlsMode};
use mysql::{Endpoint, Options};

const MS: u64 = 1_000_000;
const START: u64 = 1_700_000_000_000_000_000;

/// An event that owns its text.
struct Made(Event<'static>);

struct Recording(VecDeque<Made>);

impl Events for Recording {
    fn next(&mut self) -> anyhow::Result<Option<Event<'_>>> {
        Ok(self.0.pop_front().map(|made| made.0))
    }
}

fn event(at_ms: u64, session: u64, command: Command, text: &'static str) -> Made {
    let mut event = Event::new(START + at_ms * MS, session, command);
    event.text = text.as_bytes();
    event.outcome = Outcome::Ok;
    event.response_ns = Some(MS);
    Made(event)
}

fn with(mut made: Made, change: impl FnOnce(&mut Event<'static>)) -> Made {
    change(&mut made.0);
    made
}

fn plan() -> Plan {
    Plan {
        speed: Speed::Factor(1.0),
        longest_idle_ns: None,
        copies: 1,
        is_read_only: false,
        keeps_commit_order: false,
        can_bulk: true,
        since_ns: 0,
        until_ns: u64::MAX,
        databases: HashMap::new(),
    }
}

fn accounts() -> Accounts {
    let options = Options {
        endpoint: Endpoint::Socket(PathBuf::from("/nowhere")),
        user: "u".to_owned(),
        password: Password::default(),
        database: None,
        tls: TlsMode::Disabled,
        tls_ca: None,
        connect_timeout: Duration::MAX,
        read_timeout: Duration::MAX,
    };
    Accounts::read(options, None).unwrap()
}

/// All of the reader's shared things, for so many threads.
struct Bench {
    budget: Budget,
    inboxes: Vec<Inbox>,
    progress: Progress,
    writes: Order,
    closes: Order,
    stop: AtomicBool,
}

impl Bench {
    fn new(threads: usize, cap: usize) -> Self {
        Self {
            budget: Budget::new(cap),
            inboxes: (0..threads).map(|_| Inbox::default()).collect(),
            progress: Progress::default(),
            writes: Order::default(),
            closes: Order::default(),
            stop: AtomicBool::new(false),
        }
    }

    fn read(&self, plan: &Plan, events: Vec<Made>) -> Counts {
        let accounts = accounts();
        let channel = Channel {
            budget: &self.budget,
            inboxes: &self.inboxes,
            progress: &self.progress,
            writes: &self.writes,
            closes: &self.closes,
            stop: &self.stop,
        };
        Dispatch::new(plan, &accounts, channel).run(&mut Recording(events.into())).unwrap().0
    }

    fn mail(&self, thread: usize) -> Vec<Delivery> {
        let mut mail = Vec::new();
        self.inboxes[thread].take(&mut mail);
        mail
    }
}

/// What one thread gets, in words.
fn words(deliveries: &[Delivery]) -> Vec<String> {
    let item = |item: &Item| {
        let at = item.at_ns as f64 / MS as f64;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let request = match &item.request {
            Request::Query(sql) => text(sql),
            Request::Prepare { statement, text: sql } => format!("prepare {statement} {}", text(sql)),
            Request::Execute { is_bulk: true, statement, text: sql, .. } => {
                format!("bulk {statement:?} {}", text(sql))
            }
            Request::Execute { statement, text: sql, .. } => format!("execute {statement:?} {}", text(sql)),
            Request::InitDb(name) => format!("use {}", text(name)),
            other => format!("{other:?}"),
        };
        format!("{at} {} {request}", OPERATIONS[usize::from(item.operation)])
    };
    let word = |delivery: &Delivery| match delivery {
        Delivery::Open(key, opening) => {
            format!(
                "{key} open {} {}",
                opening.at_ns as f64 / MS as f64,
                opening.database.as_deref().unwrap_or("-")
            )
        }
        Delivery::Event(key, event) => format!("{key} {}", item(event)),
    };
    deliveries.iter().map(word).collect()
}

fn played(plan: &Plan, events: Vec<Made>) -> (Vec<String>, Counts) {
    let bench = Bench::new(1, usize::MAX);
    let counts = bench.read(plan, events);
    assert!(bench.progress.is_over.load(Ordering::Relaxed));
    (words(&bench.mail(0)), counts)
}

#[test]
fn a_session_from_its_login_to_its_end() {
    let events = vec![
        with(event(0, 1, Command::Connect, ""), |e| e.database = b"shop"),
        with(event(10, 1, Command::Prepare, "SELECT ?"), |e| e.statement = Some(7)),
        with(event(20, 1, Command::Execute, "SELECT ?"), |e| {
            e.statement = Some(7);
            e.parameter_count = 1;
        }),
        with(event(30, 1, Command::Close, ""), |e| e.statement = Some(7)),
        event(40, 1, Command::ChangeUser, ""),
        event(50, 1, Command::Fetch, ""),
        event(60, 1, Command::Quit, ""),
        with(event(70, 2, Command::Connect, ""), |e| e.outcome = Outcome::Error(1045)),
    ];
    let (words, counts) = played(&Plan { speed: Speed::Factor(2.0), ..plan() }, events);
    let expected = [
        "0 open 0 shop",
        "0 5 prepare prepare 7 SELECT ?",
        "0 10 select execute Some(7) SELECT ?",
        "0 15 session Close(7)",
        "0 20 session ResetConnection",
        "0 30 session Quit",
    ];
    assert_eq!(words, expected);
    assert_eq!((counts.events, counts.sent, counts.sessions), (8, 4, 1));
    assert_eq!((counts.unsupported, counts.refused_logins), (1, 1));
}

#[test]
fn a_statement_whose_password_was_not_recorded_is_not_sent() {
    let queries = [
        "SET PASSWORD FOR app@localhost = PASSWORD('***')",
        "CREATE USER eve IDENTIFIED BY '***'",
        // A value that only looks like it.
        "SELECT '***', stars FROM t",
    ];
    let mut events: Vec<_> =
        (1..).zip(queries).map(|(n, sql)| event(10 * n, 1, Command::Query, sql)).collect();
    events.push(with(event(40, 1, Command::Prepare, "ALTER USER eve IDENTIFIED BY '***'"), |e| {
        e.statement = Some(7);
    }));
    let (words, counts) = played(&plan(), events);
    assert_eq!((counts.sent, counts.redacted, counts.without_text), (1, 3, 0));
    assert!(
        words.iter().any(|each| each.contains("stars"))
            && !words.iter().any(|each| each.contains("PASSWORD"))
    );
}

#[test]
fn rows_in_bulk_are_sent_where_the_server_takes_them() {
    let bulk = |at_ms, flags: &'static [u8]| {
        with(event(at_ms, 1, Command::BulkExecute, "INSERT INTO t VALUES (?)"), |e| {
            (e.statement, e.parameter_count, e.parameters) = (Some(7), 1, flags);
            e.measures.set(Measure::RowsSent, 2);
        })
    };
    let events = || {
        let cut = with(bulk(30, b""), |e| e.is_cut = true);
        vec![event(0, 1, Command::Connect, ""), bulk(10, b"\x80\0\x03\0\0\x05\0\0\0"), cut]
    };
    let (words, counts) = played(&plan(), events());
    assert_eq!(words[1], "0 10 insert bulk Some(7) INSERT INTO t VALUES (?)");
    assert_eq!((counts.sent, counts.unsupported, counts.without_text), (1, 0, 1));
    let (_, counts) = played(&Plan { can_bulk: false, ..plan() }, events());
    assert_eq!((counts.sent, counts.unsupported, counts.without_text), (0, 1, 1));
    let (_, counts) = played(&Plan { is_read_only: true, ..plan() }, events());
    assert_eq!((counts.sent, counts.filtered_writes), (0, 2));
    // In a log they have no values.
    let logged =
        with(event(10, 1, Command::Query, "INSERT INTO t VALUES (?)"), |e| e.outcome = Outcome::Unknown);
    let refused = with(event(20, 1, Command::Query, "SELECT ?"), |e| e.outcome = Outcome::Error(1064));
    let (_, counts) = played(&plan(), vec![logged, refused, event(30, 1, Command::Query, "SELECT '?'")]);
    assert_eq!((counts.sent, counts.without_text), (2, 1));
    // Nobody asks for a result a row here, so there is none to compare.
    assert_eq!(Expected::of(&bulk(10, b"\x80\0").0).rows_sent, Some(2));
    assert_eq!(Expected::of(&bulk(10, b"\xc0\0").0).rows_sent, None);
}

/// A statement of a session with a connection that has the session's number.
fn of(at_ms: u64, session: u64, text: &'static str) -> Made {
    with(event(at_ms, session, Command::Query, text), |e| e.connection = Some(session))
}

/// KILLs as they are given out: who sends what, and to whom.
fn kills(plan: &Plan, events: Vec<Made>) -> (Vec<String>, Counts) {
    let bench = Bench::new(1, usize::MAX);
    let counts = bench.read(plan, events);
    let mut states = Vec::new();
    let mut found = Vec::new();
    for delivery in bench.mail(0) {
        match delivery {
            Delivery::Open(key, opening) => states.push((key, opening.state)),
            Delivery::Event(key, item) => {
                if let Request::Kill(aim) = item.request {
                    let victim =
                        states.iter().find(|(_, state)| aim.is_for(state)).expect("a session of ours");
                    found.push(format!("{key} to {}: {}", victim.0, aim.kill.to_sql(0)));
                }
            }
        }
    }
    (found, counts)
}

fn reasons(counts: &Counts) -> Vec<String> {
    let found = counts.kills.to_json();
    let reasons = found["reasons"].as_object().unwrap().iter();
    reasons.filter(|(_, count)| **count != 0).map(|(name, count)| format!("{name} {count}")).collect()
}

#[test]
fn a_kill_is_for_the_session_that_had_the_connection() {
    let events = || {
        vec![
            with(event(0, 70, Command::Connect, ""), |e| e.connection = Some(5)),
            of(1, 6, "SELECT 1"),
            of(2, 6, "KILL 5"),
            of(3, 6, "kill/**/query/* */5"),
            with(event(4, 6, Command::Other(0x0C), ""), |e| e.statement = Some(5)),
            // As a log has a prepared one.
            with(event(5, 6, Command::Execute, "KILL SOFT QUERY 6;"), |e| e.connection = Some(6)),
        ]
    };
    let expected = [
        "1 to 0: KILL CONNECTION 0",
        "1 to 0: KILL QUERY 0",
        "1 to 0: KILL CONNECTION 0",
        "1 to 1: KILL SOFT QUERY 0",
    ];
    // It ends nothing but sessions of the replay, so it is not a write.
    for plan in [plan(), Plan { is_read_only: true, ..plan() }] {
        let (found, counts) = kills(&plan, events());
        assert_eq!(found, expected);
        assert_eq!((counts.kills.left_out(), counts.unsupported), (0, 0));
    }
    let (found, _) = kills(&Plan { copies: 2, ..plan() }, events());
    assert_eq!(found[..2], ["2 to 0: KILL CONNECTION 0", "3 to 1: KILL CONNECTION 0"]);
}

#[test]
fn what_would_end_strangers_is_left_out_and_counted() {
    let events = vec![
        of(0, 1, "SELECT 1"),
        of(1, 2, "SELECT 1"),
        of(2, 1, "KILL QUERY 8"),
        with(of(3, 1, "KILL ?"), |e| (e.command, e.statement) = (Command::Prepare, Some(7))),
        with(of(4, 1, "KILL ?"), |e| {
            (e.command, e.statement, e.parameter_count) = (Command::Execute, Some(7), 1);
        }),
        with(of(5, 1, "KILL 2"), |e| (e.command, e.statement) = (Command::Prepare, Some(8))),
        of(6, 1, "SHUTDOWN"),
        of(7, 1, "KILL USER root"),
        of(8, 1, "KILL QUERY ID 2"),
        of(9, 1, "SELECT 1; KILL 2"),
        of(10, 1, "/*!50000 KILL 2*/"),
        of(11, 1, "PREPARE s FROM 'KILL 2'"),
        of(12, 1, "KILL CONNECTION_ID()"),
        with(of(13, 1, "KILL 2"), |e| e.is_cut = true),
        with(of(14, 1, "KILL 2"), |e| e.outcome = Outcome::Error(1095)),
        with(event(15, 1, Command::Other(0x0C), ""), |e| e.connection = Some(1)),
        event(16, 2, Command::Quit, ""),
        of(17, 1, "KILL 2"),
        of(18, 1, "SELECT 2"),
    ];
    let bench = Bench::new(1, usize::MAX);
    let counts = bench.read(&plan(), events);
    let words = words(&bench.mail(0));
    assert_eq!(words.iter().filter(|line| line.to_lowercase().contains("kill")).count(), 0, "{words:?}");
    let mut found = reasons(&counts);
    found.sort();
    assert_eq!(found, ["among 5", "expression 4", "failed 1", "not_open 2", "query_id 1", "user 1"]);
    assert_eq!((counts.kills.servers, counts.sent), (1, 3));
}

#[test]
fn a_kill_put_together_in_a_variable_is_not_run() {
    let events = |first: Made| {
        vec![of(0, 1, "SELECT 1"), first, of(2, 1, "PREPARE s FROM @s"), of(3, 2, "PREPARE s FROM @s")]
    };
    let of_parameter = with(of(1, 1, "SET @s = ?"), |e| {
        (e.command, e.statement, e.parameter_count) = (Command::Execute, Some(1), 1);
        e.parameters = b"\0\x01\xfd\0\x06kill 5";
    });
    for first in [of(1, 1, "SET @s = CONCAT('kI', 'Ll ', 5)"), of_parameter] {
        let (words, counts) = played(&plan(), events(first));
        assert_eq!(reasons(&counts), ["variable 1"]);
        // A session that never spoke of it may run what it likes.
        assert_eq!(words.iter().filter(|line| line.contains("PREPARE")).count(), 1);
    }
    assert_eq!(played(&plan(), events(of(1, 1, "SET @s = 'SELECT 1'"))).1.kills.left_out(), 0);
}

#[test]
fn a_log_tells_neither_logins_nor_changes_of_the_database() {
    let query = |at, text, database: &'static [u8]| {
        with(event(at, 5, Command::Query, text), |e| e.database = database)
    };
    let events = vec![
        query(100, "SELECT 1", b"a"),
        query(110, "SELECT 2", b"b"),
        query(120, "USE c", b"b"),
        query(130, "SELECT 3", b"c"),
        with(event(140, 5, Command::Execute, "SELECT 4 FROM t"), |e| e.database = b"c"),
    ];
    let (words, _) = played(&plan(), events);
    let expected = [
        "0 open 0 a",
        "0 0 select SELECT 1",
        "0 10 session use b",
        "0 10 select SELECT 2",
        "0 20 other USE c",
        "0 30 select SELECT 3",
        "0 40 select SELECT 4 FROM t",
        "0 40 session Quit",
    ];
    assert_eq!(words, expected);
}

#[test]
fn databases_have_other_names() {
    let databases = HashMap::from([(b"a".to_vec(), b"x".to_vec())]);
    let query = |at, text, database: &'static [u8]| {
        with(event(at, 5, Command::Query, text), |e| e.database = database)
    };
    let events = vec![
        with(event(0, 5, Command::Connect, ""), |e| e.database = b"a"),
        with(event(1, 5, Command::InitDb, ""), |e| e.database = b"b"),
        query(2, "use `a` ;", b"b"),
        query(3, "SELECT 1", b"a"),
        query(4, "/* app */ USE a; DELETE FROM t", b"a"),
        // It would delete in the recorded one.
        query(4, "DELETE FROM a.t", b"a"),
    ];
    let (words, counts) = played(&Plan { databases, ..plan() }, events);
    assert_eq!(counts.qualified, 1);
    assert_eq!(words[..3], ["0 open 0 x", "0 1 session use b", "0 2 other use `x` ;"]);
    // In the other database is what is deleted, too.
    assert!(words.contains(&"0 4 other /* app */ USE `x`; DELETE FROM t".to_owned()), "{words:?}");
    assert_eq!(words.last().unwrap(), "0 4 session Quit");
}

#[test]
fn a_source_of_whole_seconds_is_known_by_its_times() {
    let at = |end_ns: u64, response_ns: u64| {
        with(event(0, 1, Command::Query, "SELECT 1"), |e| {
            e.start_ns = START + end_ns - response_ns;
            e.response_ns = Some(response_ns);
        })
    };
    let second = 1_000 * MS - START % (1_000 * MS);
    // The third took less, and was moved to the start of the second to keep the order.
    let moved = with(at(second, 3 * MS), |e| e.response_ns = Some(MS));
    let coarse = vec![at(second, 4 * MS), at(second, 3 * MS), moved, at(second + 1_000 * MS, 7_123)];
    assert!(played(&plan(), coarse).1.has_whole_seconds());
    let fine = vec![at(second, 4 * MS), at(second + 4_321, 3 * MS), at(second + 77_777_777, 7_123)];
    assert!(!played(&plan(), fine).1.has_whole_seconds());
}

#[test]
fn what_writes_is_left_out_and_counted() {
    let events = vec![
        event(0, 1, Command::Query, "SELECT 1"),
        event(1, 1, Command::Query, "DELETE FROM t"),
        event(2, 1, Command::Query, "SELECT 1 FROM t FOR UPDATE"),
    ];
    let (words, counts) = played(&Plan { is_read_only: true, ..plan() }, events);
    assert!(words.iter().all(|word| !word.contains("DELETE")), "{words:?}");
    assert!(counts.filtered_writes >= 1);
}

#[test]
fn sessions_are_played_by_several_at_once() {
    let bench = Bench::new(2, usize::MAX);
    let counts = bench.read(&Plan { copies: 4, ..plan() }, vec![event(0, 1, Command::Query, "SELECT 1")]);
    assert_eq!((counts.events, counts.sent, counts.sessions), (1, 4, 1));
    for thread in 0..2 {
        assert_eq!(words(&bench.mail(thread)).iter().filter(|word| word.contains("SELECT")).count(), 2);
    }
}

#[test]
fn parts_of_a_recording() {
    let events = |texts: [&'static str; 4]| {
        let mut made: Vec<_> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| event(at as u64 * 10, 1, Command::Query, text))
            .collect();
        made[0].0.is_state = true;
        made
    };
    let plan = Plan { since_ns: START + 20 * MS, until_ns: START + 30 * MS, ..plan() };
    let (words, counts) = played(&plan, events(["SET @a = 1", "SELECT 1", "SELECT 2", "SELECT 3"]));
    // What brings the session into its state comes first, and is not an operation of its own.
    assert_eq!(words, ["0 open 0 -", "0 0 session SET @a = 1", "0 0 select SELECT 2", "0 0 session Quit"]);
    assert_eq!(counts.state_events, 1);
}

#[test]
fn writes_wait_for_writes_that_were_over() {
    let bench = Bench::new(1, usize::MAX);
    let events = vec![
        event(0, 1, Command::Query, "UPDATE t SET a = 1"),
        event(5, 2, Command::Query, "SELECT 1"),
        event(5, 3, Command::Query, "UPDATE t SET a = 2"),
    ];
    bench.read(&Plan { keeps_commit_order: true, ..plan() }, events);
    let steps: Vec<_> = bench
        .mail(0)
        .into_iter()
        .filter_map(|delivery| match delivery {
            Delivery::Event(_, item) if !matches!(item.request, Request::Quit) => Some(item.step),
            _ => None,
        })
        .collect();
    assert!(bench.writes.allows(steps[0]) && bench.writes.allows(steps[1]));
    assert!(!bench.writes.allows(steps[2]));
    bench.writes.over(steps[0]);
    assert!(bench.writes.allows(steps[2]));
}

/// Sessions that get their next event only when the one before has been worked on, in an order that is bad for the
/// reader: nothing is lost, nothing waits for ever, and the cap holds but for one event a session.
#[test]
fn the_cap_holds_and_nothing_waits_for_ever() {
    const SESSIONS: usize = 5;
    const EVENTS: usize = 4_000;
    // The first session has most of the events, and is worked on last.
    let events = (0..EVENTS)
        .map(|at| {
            event(
                at as u64,
                if at % 10 == 0 { at as u64 / 10 % 5 } else { 0 },
                Command::Query,
                "SELECT 12345",
            )
        })
        .collect();
    let bench = Bench::new(1, 4_000);
    let mut queues: HashMap<u32, VecDeque<Box<Item>>> = HashMap::new();
    let mut states = HashMap::new();
    let (mut done, mut largest, mut largest_item) = (0, 0, 0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| bench.read(&plan(), events));
        while done < EVENTS {
            for delivery in bench.mail(0) {
                match delivery {
                    Delivery::Open(key, opening) => drop(states.insert(key, opening.state)),
                    Delivery::Event(key, item) => {
                        largest_item = largest_item.max(item.size);
                        queues.entry(key).or_default().push_back(item);
                    }
                }
            }
            largest = largest.max(bench.budget.used());
            let busy = queues.iter_mut().filter(|(_, queue)| !queue.is_empty());
            let Some((key, queue)) = busy.max_by_key(|(key, _)| **key) else {
                std::thread::yield_now();
                continue;
            };
            // What a session does when it begins an event and has its answer.
            let item = queue.pop_front().unwrap();
            bench.budget.begun(&item);
            bench.budget.give_back(&item);
            states[key].take();
            done += usize::from(!matches!(item.request, Request::Quit));
        }
        bench.stop.store(true, Ordering::Relaxed);
        assert_eq!(reader.join().unwrap().sent, EVENTS as u64);
    });
    assert!(largest <= 4_000 + SESSIONS * largest_item, "{largest}");
}

fn item(request: Request) -> Item {
    let mut item = Item {
        at_ns: 0,
        recorded_ns: 0,
        number: 0,
        request,
        operation: 0,
        class: 0,
        expected: Expected::NOTHING,
        step: Step::default(),
        size: 0,
    };
    item.size = item.own_size();
    item
}

#[test]
fn what_is_at_work_counts_until_it_is_over() {
    let budget = Budget::new(1_000);
    let long = item(Request::Query(vec![b'x'; 2_000].into()));
    budget.take(&long);
    budget.begun(&long);
    assert_eq!(budget.events(), 0);
    assert!(budget.used() > 2_000 && !budget.admits(100, 1) && budget.admits(100, 0));
    assert_eq!(budget.excess(), budget.used() - 1_000);
    budget.give_back(&long);
    assert_eq!(budget.used(), 0);
    assert!(budget.admits(100, 1) && budget.excess() > 0);
}

#[test]
fn a_long_request_that_is_on_its_way_leaves_what_people_are_shown() {
    let mut long = Request::Query([b"SELECT '", vec![b'x'; 1 << 20].as_slice(), b"'"].concat().into());
    long.forget_long();
    let Request::Query(text) = &long else { panic!() };
    assert!(text.starts_with(b"SELECT 'x") && (2_000..100_000).contains(&text.len()));
    let mut short = Request::Query(vec![b'x'; 10_000].into());
    short.forget_long();
    assert!(matches!(short, Request::Query(text) if text.len() == 10_000));
    let (parameters, text) = (vec![7; 1 << 20].into(), b"SELECT ?".as_slice().into());
    let mut execution = Request::Execute { is_bulk: false, statement: Some(1), text, parameters };
    execution.forget_long();
    assert!(matches!(execution, Request::Execute { parameters, .. } if parameters.is_empty()));
}
