//! Queueing disciplines: packets that wait to be sent, are held back on purpose, or are dropped there.
//!
//! No file of /proc or /sys shows them, so they are asked for by rtnetlink, as tc(8) does.

use std::collections::BTreeMap;
use std::io;

use anyhow::Context;
use rustix::net::netdevice::index_to_name;

use super::netlink::{Netlink, attributes, number};
use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;

pub const QDISC: Kind = Kind::host(
    "qdisc",
    "bytes, packets, waiting packets and bytes, drops, overlimits of each queueing discipline; \
     label interface/kind/handle (rtnetlink)",
    |host: &Host| Box::new(Disciplines { is_live: host.root.as_os_str() == "/", socket: None }),
);

const COLUMNS: [&str; 6] = ["bytes", "packets", "waiting", "waiting_bytes", "drops", "overlimits"];
/// rtnetlink.h and gen_stats.h: messages, attributes of a discipline, and of its statistics.
const NEW: u16 = 36;
const GET: u16 = 38;
const MESSAGE_BYTES: usize = 20;
const KIND: u16 = 1;
const STATISTICS: u16 = 7;
const BASIC: u16 = 1;
const QUEUE: u16 = 3;

struct Disciplines {
    is_live: bool,
    socket: Option<Netlink>,
}

/// Index of an interface, kind and major number of the handle -> the columns. Those of a card's queues have no
/// handle, and are summed.
type Found = BTreeMap<(u32, String, u32), [u64; COLUMNS.len()]>;

impl Sample for Disciplines {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if !self.is_live {
            let message = "a saved host has no queueing disciplines";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message).into());
        }
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => Netlink::open(None).context("cannot open a socket for rtnetlink")?,
        };
        let rows = rows(&socket).context("rtnetlink does not list queueing disciplines")?;
        self.socket = Some(socket);
        // Interfaces that need none are not listed: nothing found is an answer, too.
        values.single("disciplines", rows.len() as u64);
        values.table(&COLUMNS, &rows);
        Ok(())
    }
}

fn rows(socket: &Netlink) -> io::Result<Vec<(String, [u64; COLUMNS.len()])>> {
    let mut found = Found::new();
    socket.dump(GET, &[0; MESSAGE_BYTES], |kind, body| add(kind, body, &mut found))?;
    let mut rows = Vec::new();
    for ((interface, kind, handle), columns) in found {
        // An interface may disappear between two questions.
        if let Ok(name) = index_to_name(socket, interface) {
            rows.push((format!("{name}/{kind}/{handle:x}"), columns));
        }
    }
    Ok(rows)
}

fn add(message: u16, body: &[u8], found: &mut Found) {
    let Some(rest) = body.get(MESSAGE_BYTES..).filter(|_| message == NEW) else {
        return;
    };
    let (interface, handle) = (number(body, 4), number(body, 8) >> 16);
    let mut kind = String::new();
    let mut columns = [0; COLUMNS.len()];
    for (name, content) in attributes(rest) {
        match name {
            KIND => kind = String::from_utf8_lossy(content).trim_end_matches('\0').to_owned(),
            STATISTICS => attributes(content).for_each(|(name, content)| read(name, content, &mut columns)),
            _ => {}
        }
    }
    let sums = found.entry((interface, kind, handle)).or_default();
    for (sum, number) in sums.iter_mut().zip(columns) {
        *sum += number;
    }
}

fn read(name: u16, content: &[u8], columns: &mut [u64; COLUMNS.len()]) {
    let at = |offset| u64::from(number(content, offset));
    match name {
        BASIC if content.len() >= 12 => {
            let bytes = content[..8].try_into().expect("eight bytes");
            (columns[0], columns[1]) = (u64::from_ne_bytes(bytes), at(8));
        }
        QUEUE if content.len() >= 20 => {
            (columns[2], columns[3], columns[4], columns[5]) = (at(0), at(4), at(8), at(16));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, Found, Netlink, add, rows};
    use proptest::prelude::{any, proptest};

    #[test]
    fn the_kernel_lists_disciplines_with_the_names_of_their_interfaces() {
        let socket = Netlink::open(None).unwrap();
        for (label, _) in rows(&socket).unwrap() {
            let (interface, rest) = label.split_once('/').unwrap();
            assert!(std::path::Path::new("/sys/class/net").join(interface).exists(), "{label}");
            assert!(rest.contains('/'), "{label}");
        }
    }

    #[test]
    fn disciplines_of_the_queues_of_a_card_are_summed() {
        let mut body = vec![0_u8; 20];
        body[4] = 3;
        body.extend_from_slice(&[8, 0, 1, 0, b't', b'b', b'f', 0]);
        let mut statistics = vec![20, 0, 1, 0];
        statistics.extend_from_slice(&1_000_u64.to_ne_bytes());
        statistics.extend_from_slice(&[7, 0, 0, 0, 0, 0, 0, 0]);
        statistics.extend_from_slice(&[24, 0, 3, 0]);
        for number in [5_u32, 600, 9, 0, 11] {
            statistics.extend_from_slice(&number.to_ne_bytes());
        }
        body.extend_from_slice(&(4 + statistics.len() as u16).to_ne_bytes());
        body.extend_from_slice(&[7, 0]);
        body.extend_from_slice(&statistics);
        let mut found = Found::new();
        add(36, &body, &mut found);
        add(36, &body, &mut found);
        assert_eq!(found[&(3, "tbf".to_owned(), 0)], [2_000, 14, 10, 1_200, 18, 22]);
        assert_eq!(COLUMNS[5], "overlimits");
    }

    proptest! {
        #[test]
        fn no_answer_can_break_the_parser(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            add(36, &body, &mut Found::new());
        }
    }
}
