//! Any split of events merges to the whole; the whole is what a plain model counts.

use std::collections::BTreeMap;

use proptest::prelude::*;

use crate::digest::classes::Bounds;
use crate::digest::group::Dimension;
use crate::digest::lines::Source;
use crate::digest::{Digest, DigestOptions};
use crate::event::{Command, Event, Outcome};
use crate::measures::{Measure, Measures};

/// An event that owns its parts.
#[derive(Clone, Debug)]
struct Owned {
    start_ns: u64,
    response_ns: Option<u64>,
    first_byte_ns: Option<u64>,
    number: u8,
    name: u8,
    outcome: u8,
    rows: Option<u64>,
    command: u8,
}

impl Owned {
    fn with<T>(&self, then: impl FnOnce(&Event<'_>) -> T) -> T {
        let commands = [Command::Query, Command::Query, Command::Execute, Command::Quit, Command::Other(99)];
        let text = format!("SELECT {} FROM t{}", self.start_ns, char::from(b'a' + self.number));
        let name = format!("name{}", self.name);
        then(&Event {
            response_ns: self.response_ns,
            first_byte_ns: self.first_byte_ns,
            user: if self.name.is_multiple_of(5) { b"" } else { name.as_bytes() },
            host: name.as_bytes(),
            database: &name.as_bytes()[..4],
            outcome: match self.outcome {
                0 => Outcome::Unanswered,
                1 => Outcome::Unknown,
                number @ 2..=5 => Outcome::Error(1000 + u16::from(number)),
                _ => Outcome::Ok,
            },
            text: text.as_bytes(),
            measures: self.rows.map_or_else(Measures::default, |rows| {
                // Each has another number, and not all of them are known.
                let known = Measure::ALL.into_iter().zip(0..).filter(|(_, place)| place != &(rows % 5));
                known.map(|(measure, place)| (measure, rows * place)).collect()
            }),
            ..Event::new(self.start_ns, u64::from(self.name), commands[usize::from(self.command % 5)])
        })
    }
}

const START_NS: u64 = 1_700_000_000_000_000_000;

fn events() -> impl Strategy<Value = Vec<Owned>> {
    let start = prop_oneof![
        8 => (0_u64..3_000_000_000_000).prop_map(|since| START_NS + since),
        2 => START_NS..START_NS + 5,
        1 => Just(0_u64),
        1 => any::<u64>(),
    ];
    let response = prop_oneof![6 => (0_u64..1 << 36).prop_map(Some), 2 => Just(Some(7)), 1 => any::<u64>().prop_map(Some), 1 => Just(None)];
    let rows = proptest::option::of(0_u64..1000);
    let event =
        (start, response, proptest::option::of(0_u64..1 << 30), 0_u8..6, 0_u8..60, 0_u8..12, rows, 0_u8..9);
    let event =
        event.prop_map(|(start_ns, response_ns, first_byte_ns, number, name, outcome, rows, command)| {
            Owned { start_ns, response_ns, first_byte_ns, number, name, outcome, rows, command }
        });
    proptest::collection::vec(event, 0..300)
}

fn lines(digest: &mut Digest) -> String {
    let mut out = Vec::new();
    digest.write_lines(&Source::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn digest_of<'a>(options: &DigestOptions, events: impl IntoIterator<Item = &'a Owned>) -> Digest {
    let mut digest = Digest::new(options);
    events.into_iter().for_each(|event| event.with(|event| digest.count(event)));
    digest
}

fn options(group: &[Dimension]) -> DigestOptions {
    // So few slices that both reasons to make them wider occur.
    let bounds = Bounds { most_slices: 100, ..DigestOptions::default().bounds };
    DigestOptions { group: group.to_vec(), bounds, ..DigestOptions::default() }
}

/// Two at random until one is left.
fn merged(mut digests: Vec<Digest>, order: u64) -> Digest {
    let mut state = order;
    while digests.len() > 1 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = (state >> 33) as usize % digests.len();
        let taken = digests.swap_remove(place);
        let into = (state >> 40) as usize % digests.len();
        digests[into].merge(taken);
    }
    digests.pop().unwrap()
}

/// Generated names: nearly every event has one of its own, and some classes, light and heavy ones, come again and again.
/// Its class, and its response time.
fn flood() -> impl Strategy<Value = Vec<(u32, u64)>> {
    let event = prop_oneof![
        6 => (100_u32..2000, 0_u64..2000),
        3 => (0_u32..10, 0_u64..5000),
        1 => (10_u32..13, 0_u64..1_000_000),
    ];
    proptest::collection::vec(event, 0..400)
}

fn flood_digest<'a>(options: &DigestOptions, events: impl IntoIterator<Item = &'a (u32, u64)>) -> Digest {
    let mut digest = Digest::new(options);
    for (number, response_ns) in events {
        let text = format!("SELECT a FROM tmp_{number}x");
        let mut event = Event::new(START_NS + u64::from(*number), 1, Command::Query);
        (event.text, event.response_ns) = (text.as_bytes(), Some(*response_ns));
        digest.count(&event);
    }
    digest
}

proptest! {
    // Each case counts and prints a dozen digests.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_split_in_any_order_is_the_whole(
        events in events(), parts in 1_usize..9, places in proptest::collection::vec(any::<usize>(), 300),
        order in any::<u64>(), group in 0_usize..4,
    ) {
        use Dimension::{Class, Command, Database, Host, Session, Table, User};
        let groups: [&[Dimension]; 4] = [&[Class], &[Class, User], &[User, Host, Table], &[Database, Session, Command]];
        let options = options(groups[group]);
        let whole = lines(&mut digest_of(&options, &events));
        let digests: Vec<_> = (0..parts)
            .map(|part| {
                let chosen = events.iter().zip(&places).filter(|(_, place)| *place % parts == part);
                digest_of(&options, chosen.map(|(event, _)| event))
            })
            .collect();
        prop_assert_eq!(lines(&mut merged(digests, order)), whole);
    }

    #[test]
    fn the_same_classes_are_listed_whatever_the_order_and_the_parts(
        events in flood(), most_listed in 0_usize..20, parts in 1_usize..9,
        places in proptest::collection::vec(any::<usize>(), 400), order in any::<u64>(),
    ) {
        let options = DigestOptions { most_listed, ..options(&[Dimension::Class]) };
        let whole = lines(&mut flood_digest(&options, &events));
        let mut shuffled: Vec<_> = events.iter().zip(&places).collect();
        shuffled.sort_by_key(|(_, place)| **place);
        let digests: Vec<_> = (0..parts)
            .map(|part| {
                let chosen = shuffled.iter().filter(|(_, place)| **place % parts == part);
                flood_digest(&options, chosen.map(|(event, _)| *event))
            })
            .collect();
        prop_assert_eq!(lines(&mut merged(digests, order)), &*whole);
        // They are those with the most time.
        let mut sums = BTreeMap::<u32, u64>::new();
        events.iter().for_each(|(number, response_ns)| *sums.entry(*number).or_default() += response_ns);
        let mut expected: Vec<_> = sums.into_values().collect();
        expected.sort_unstable_by(|a, b| b.cmp(a));
        let found: Vec<serde_json::Value> = whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let listed: Vec<_> = found.iter()
            .filter(|line| line["type"] == "class" && line["is_others"] == false)
            .map(|line| line["response_sum_ns"].as_u64().unwrap())
            .collect();
        prop_assert_eq!(&*listed, &expected[..most_listed.min(expected.len())]);
        let rest = expected.get(most_listed).copied();
        prop_assert_eq!(found[0]["unlisted_most_ns"].as_u64(), Some(rest.unwrap_or(0)));
        prop_assert_eq!(found[0]["other_classes"].as_u64(), Some((expected.len() - listed.len()) as u64));
    }

    #[test]
    fn beyond_memory_no_heavy_class_is_lost_and_none_lacks_more_than_is_said(
        events in flood(), most_classes in 2_usize..60, parts in 1_usize..4, order in any::<u64>(),
    ) {
        let bounds = Bounds { most_classes, ..DigestOptions::default().bounds };
        let options = DigestOptions { most_listed: most_classes, bounds, ..DigestOptions::default() };
        let length = events.len().div_ceil(parts).max(1);
        let digests: Vec<_> = events.chunks(length).map(|part| flood_digest(&options, part)).collect();
        prop_assume!(!digests.is_empty());
        let mut whole = merged(digests, order);
        let summary = whole.listing();
        let mut sums = BTreeMap::<String, u64>::new();
        for (number, response_ns) in &events {
            *sums.entry(format!("select a from tmp_{number}x")).or_default() += response_ns + 1;
        }
        let total: u64 = sums.values().sum();
        let lost_ns = summary.lost_most_ns;
        // There is room for at least as many as are listed, twice.
        prop_assert!(lost_ns <= 2 * total / (2 * most_classes as u64), "{lost_ns} of {total}");
        for (key, sum) in sums {
            let class = summary.listed.iter().find(|(listed, _)| *listed == key.as_bytes());
            let Some((_, class)) = class else {
                prop_assert!(sum <= summary.unlisted_most_ns + 400, "{key} has {sum}");
                continue;
            };
            let (found_ns, count) = class.rank(false).0;
            let found = found_ns as u64 + count;
            prop_assert!(found <= sum && sum <= found + lost_ns, "{key}: {found} of {sum}, {lost_ns} at most");
        }
        prop_assert_eq!(summary.totals.count, events.len() as u64);
        prop_assert_eq!(summary.totals.response.sum_ns as u64 + summary.totals.count, total);
    }

    #[test]
    fn a_class_counts_what_a_model_counts(events in events()) {
        let text = lines(&mut digest_of(&options(&[Dimension::Command]), &events));
        let mut model: BTreeMap<String, (u64, u64, u128, Vec<u64>)> = BTreeMap::new();
        for event in &events {
            event.with(|event| {
                if !event.is_asked() {
                    return;
                }
                let name = super::group::command_name(event.command).into_owned();
                let entry = model.entry(name).or_insert_with(|| (0, 0, 0, vec![0; Measure::ALL.len()]));
                entry.0 += 1;
                entry.1 += u64::from(matches!(event.outcome, Outcome::Error(_)));
                entry.2 = entry.2.saturating_add(u128::from(event.response_ns.unwrap_or(0)).pow(2));
                entry.3.iter_mut().zip(Measure::ALL).for_each(|(sum, each)| *sum += event.measures.get(each).unwrap_or(0));
            });
        }
        let mut found = BTreeMap::new();
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["type"] == "class" {
                let squares = line["response_sum_squares"].as_str().unwrap().parse().unwrap();
                let counts = (line["count"].as_u64().unwrap(), line["failed"].as_u64().unwrap(), squares,
                    Measure::ALL.map(|each| line[each.name()]["sum"].as_u64().unwrap_or(0)).to_vec());
                found.insert(line["key"]["command"].as_str().unwrap().to_owned(), counts);
                let buckets: u64 = line["buckets"].as_array().unwrap().iter().map(|pair| pair[1].as_u64().unwrap()).sum();
                prop_assert_eq!(Some(buckets), line["timed"].as_u64());
            }
        }
        prop_assert_eq!(found, model);
    }

    #[test]
    fn slices_are_bounded_and_hold_every_dated_event(events in events()) {
        let text = lines(&mut digest_of(&options(&[Dimension::Class]), &events));
        let mut sliced = 0;
        for line in text.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            if line["type"] == "class" {
                let slices = line["slices"].as_array().unwrap();
                prop_assert!(slices.len() <= 512);
                sliced += slices.iter().map(|slice| slice[1].as_u64().unwrap()).sum::<u64>();
            }
        }
        prop_assert_eq!(sliced, events.iter().filter(|event| event.with(|event| event.is_asked() && event.start_ns > 0)).count() as u64);
    }
}

#[test]
fn beyond_the_cap_classes_are_others_and_nothing_is_lost() {
    let options = DigestOptions { most_listed: 10, ..DigestOptions::default() };
    let mut parts: Vec<_> = (0..3).map(|_| Digest::new(&options)).collect();
    for number in 0..600_u64 {
        let text = format!("SELECT x{}", "a".repeat(1 + number as usize % 20));
        let mut event = Event::new(START_NS + number, 1, Command::Query);
        (event.text, event.response_ns) = (text.as_bytes(), Some(number));
        parts[number as usize % 3].count(&event);
    }
    let mut whole = parts.pop().unwrap();
    parts.into_iter().for_each(|part| whole.merge(part));
    let text = lines(&mut whole);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let others = &lines[lines.len() - 2];
    assert_eq!(others["is_others"], true);
    assert_eq!(lines[0]["others"], others["count"]);
    assert_eq!(lines[lines.len() - 1]["classes"], 11);
    let count: u64 = lines[3..lines.len() - 1].iter().map(|line| line["count"].as_u64().unwrap()).sum();
    assert_eq!((count, lines[1]["count"].as_u64().unwrap()), (600, 600));
}

#[test]
fn many_busy_classes_have_wider_slices() {
    let bounds = Bounds { most_slices: 1000, ..DigestOptions::default().bounds };
    let mut digest = Digest::new(&DigestOptions { bounds, ..DigestOptions::default() });
    for second in 0..300_u64 {
        for number in 0..10 {
            let text = "ab".repeat(number);
            let mut event = Event::new(START_NS + second * 1_000_000_000, 1, Command::Query);
            event.text = text.as_bytes();
            digest.count(&event);
        }
    }
    // 300 slices of 1 s each would be too many, 150 of 2 s too; the heat keeps its own width.
    let summary = digest.listing();
    let slices: usize = summary.all().map(|stats| stats.slices.count()).sum();
    assert_eq!((summary.shift, summary.digest.heat_shift, slices), (2, 0, 750));
}

#[test]
fn the_slowest_is_the_example_and_samples_can_be_left_out() {
    let events = [5_u64, 9, 9, 2].iter().zip(0..).map(|(response, number)| Owned {
        start_ns: START_NS + 10 - number,
        response_ns: Some(*response),
        first_byte_ns: None,
        number: 1,
        name: 1,
        outcome: 9,
        rows: None,
        command: 0,
    });
    let events: Vec<_> = events.collect();
    let sample = |digest: &mut Digest| -> serde_json::Value {
        let text = lines(digest);
        serde_json::from_str::<serde_json::Value>(text.lines().nth(3).unwrap()).unwrap()["sample"].clone()
    };
    let kept = sample(&mut digest_of(&options(&[Dimension::Class]), &events));
    assert_eq!((kept["response_ns"].as_u64(), kept["start_ns"].as_u64()), (Some(9), Some(START_NS + 8)));
    let options = DigestOptions { keeps_samples: false, ..DigestOptions::default() };
    assert!(sample(&mut digest_of(&options, &events)).is_null());
}

/// Shapes that are known keep the place of their class, and classes that leave give theirs to others.
#[test]
fn a_known_statement_is_of_its_class_after_others_left() {
    let bounds = Bounds { most_classes: 16, ..DigestOptions::default().bounds };
    let mut digest = Digest::new(&DigestOptions { most_listed: 8, bounds, ..DigestOptions::default() });
    let mut count = |text: &str, response_ns| {
        let mut event = Event::new(START_NS, 1, Command::Query);
        (event.text, event.response_ns) = (text.as_bytes(), Some(response_ns));
        digest.count(&event);
    };
    for round in 0..50_usize {
        count(&format!("SELECT b FROM t{}", "x".repeat(round + 1)), 1);
        for heavy in 1..=6 {
            count(&format!("SELECT a FROM h{heavy} WHERE id = {round}"), heavy * 1_000_000);
        }
    }
    assert!(digest.classes.others().is_some(), "some left");
    let heavy: BTreeMap<_, _> = digest
        .classes
        .iter()
        .filter(|(key, _)| key.starts_with(b"select a"))
        .map(|(key, class)| (key.to_vec(), class.stats(0).response.sum_ns))
        .collect();
    let expected = (1..=6).map(|heavy| {
        (format!("select a from h{heavy} where id = ?").into_bytes(), 50 * u128::from(heavy * 1_000_000_u64))
    });
    assert_eq!(heavy, expected.collect());
}
