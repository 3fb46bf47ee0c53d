//! Packets that a cloud held back or dropped because an instance has reached a limit of its own.
//!
//! No interface is full then and no queue overflows: the hypervisor's card shapes the traffic. Amazon's driver (ena)
//! counts it by limit; devices of virtio 1.4 count it by queue, of which Linux shows the bytes here. Both are statistics
//! of ethtool -S, which any user may read.

use std::collections::HashMap;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::{fs, io};

use anyhow::Context;

use super::sample::sampler::{Host, Kind, Sample};
use super::sample::values::Values;

pub const ALLOWANCE: Kind = Kind::host(
    "allowance",
    "packets held back or dropped by the cloud's limit of bandwidth, packets, tracked connections or local services \
     of each interface, or bytes (`ratelimit_bytes`); `conntrack_allowance_available`; nothing where the card does not count them (ethtool -S)",
    |host: &Host| {
        Box::new(Allowances {
            is_live: host.root.as_os_str() == "/",
            folder: host.root.join("sys/class/net"),
            cards: HashMap::new(),
        })
    },
)
.every(2);

/// Statistics of Amazon's driver that are kept, and the metrics' names.
const AMAZON: [&str; 6] = [
    "bw_in_allowance_exceeded",
    "bw_out_allowance_exceeded",
    "pps_allowance_exceeded",
    "conntrack_allowance_exceeded",
    "linklocal_allowance_exceeded",
    "conntrack_allowance_available",
];
/// The ends of the names of a virtio queue's statistics, and the metrics that add them up.
const VIRTIO: [&str; 2] = ["ratelimit_packets", "ratelimit_bytes"];

/// include/uapi/linux/ethtool.h and sockios.h.
const ETHTOOL: u32 = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
const STATISTICS: u32 = 1;
const NAME_BYTES: usize = 32;
/// More statistics than any card has.
const MOST: u32 = 65_536;

struct Allowances {
    is_live: bool,
    folder: PathBuf,
    /// For each interface the statistics that are kept; none for most.
    cards: HashMap<String, Card>,
}

#[derive(Clone, Default, Debug, PartialEq)]
struct Card {
    count: u32,
    /// Position of a statistic, and its metric.
    kept: Vec<(usize, &'static str)>,
}

impl Sample for Allowances {
    fn sample(&mut self, values: &mut Values) -> anyhow::Result<()> {
        if !self.is_live {
            let message = "a saved host has no statistics of its cards";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message).into());
        }
        let socket = UdpSocket::bind(("127.0.0.1", 0)).context("cannot open a socket for ethtool")?;
        let mut rows = Vec::new();
        let names =
            fs::read_dir(&self.folder).with_context(|| format!("cannot read {}", self.folder.display()))?;
        for name in names.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
            let card =
                self.cards.entry(name.clone()).or_insert_with(|| card(&socket, &name).unwrap_or_default());
            if card.kept.is_empty() {
                continue;
            }
            match statistics(&socket, &name, card.count) {
                Some(numbers) => rows.push((name, sums(card, &numbers))),
                // It may have another driver now, or be gone.
                None => drop(self.cards.remove(&name)),
            }
        }
        write(&rows, values);
        Ok(())
    }
}

fn write(rows: &[(String, Vec<(&'static str, u64)>)], values: &mut Values) {
    for metric in AMAZON.into_iter().chain(VIRTIO) {
        let mut is_named = false;
        for (name, sums) in rows {
            if let Some((_, sum)) = sums.iter().find(|(kept, _)| *kept == metric) {
                if !is_named {
                    values.metric(metric);
                    is_named = true;
                }
                values.value(name, *sum);
            }
        }
    }
}

/// Which of the statistics, by their names in the order of the card, are kept.
fn kept<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(usize, &'static str)> {
    names
        .enumerate()
        .filter_map(|(position, name)| {
            let amazon = AMAZON.into_iter().find(|metric| *metric == name);
            let kept = amazon.or_else(|| VIRTIO.into_iter().find(|end| name.ends_with(end)))?;
            Some((position, kept))
        })
        .collect()
}

fn sums(card: &Card, numbers: &[u64]) -> Vec<(&'static str, u64)> {
    let mut sums: Vec<(&'static str, u64)> = Vec::new();
    for &(position, metric) in &card.kept {
        let Some(&number) = numbers.get(position) else { continue };
        match sums.iter_mut().find(|(known, _)| *known == metric) {
            Some((_, sum)) => *sum = sum.saturating_add(number),
            None => sums.push((metric, number)),
        }
    }
    sums
}

fn card(socket: &UdpSocket, interface: &str) -> Option<Card> {
    // struct ethtool_sset_info: command, reserved, a mask of sets, and the size of each that was asked for.
    let mut info = [0_u64; 3];
    info[0] = u64::from_ne_bytes(pair(GET_SET_INFO, 0));
    info[1] = 1 << STATISTICS;
    ask(socket, interface, &mut info)?;
    let count =
        if info[1] == 0 { 0 } else { u32::from_ne_bytes(info[2].to_ne_bytes()[..4].try_into().ok()?) };
    if count == 0 || count > MOST {
        return None;
    }
    // struct ethtool_gstrings: command, set, number, and the names, of a fixed length each. They begin in the middle
    // of a word.
    let mut words = vec![0_u64; (12 + count as usize * NAME_BYTES).div_ceil(8)];
    words[0] = u64::from_ne_bytes(pair(GET_STRINGS, STATISTICS));
    words[1] = u64::from_ne_bytes(pair(count, 0));
    ask(socket, interface, &mut words)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let names = bytes.get(12..)?.chunks_exact(NAME_BYTES).take(count as usize).map(text);
    Some(Card { count, kept: kept(names) })
}

fn statistics(socket: &UdpSocket, interface: &str, count: u32) -> Option<Vec<u64>> {
    // struct ethtool_stats: command, number, and the numbers.
    let mut words = vec![0_u64; 1 + count as usize];
    words[0] = u64::from_ne_bytes(pair(GET_STATISTICS, count));
    ask(socket, interface, &mut words)?;
    Some(words.split_off(1))
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    bytes
}

/// A name up to its first zero byte.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    std::str::from_utf8(&bytes[..end]).unwrap_or_default()
}

fn ask(socket: &UdpSocket, interface: &str, words: &mut [u64]) -> Option<()> {
    // SAFETY: all zero is a valid value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (letter, byte) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *letter = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: the request names an interface and memory that the kernel fills; it is as large as the command and the
    // number in it say, and outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL as _, &raw mut request) };
    (result == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::path::PathBuf;

    use serde_json::json;

    use super::{ALLOWANCE, Allowances, Card, card, kept, statistics, sums, write};
    use crate::sample::sampler::Sample;
    use crate::sample::values::{Values, collect};

    const ENA: [&str; 9] = [
        "tx_timeout",
        "bw_in_allowance_exceeded",
        "bw_out_allowance_exceeded",
        "pps_allowance_exceeded",
        "conntrack_allowance_exceeded",
        "linklocal_allowance_exceeded",
        "conntrack_allowance_available",
        "queue_0_tx_cnt",
        "queue_0_rx_cnt",
    ];

    #[test]
    fn limits_of_amazon_are_found_among_the_others() {
        let card = Card { count: 9, kept: kept(ENA.into_iter()) };
        assert_eq!(card.kept.len(), 6);
        let rows = vec![("ens5".to_owned(), sums(&card, &[1, 2, 3, 4, 5, 6, 7, 8, 9]))];
        let values = collect(|values| write(&rows, values));
        assert_eq!(values["bw_out_allowance_exceeded"], json!({"ens5": 3}));
        assert_eq!(values["conntrack_allowance_available"], json!({"ens5": 7}));
        assert!(values.get("ratelimit_packets").is_none());
    }

    #[test]
    fn queues_of_virtio_are_added_up() {
        let names =
            ["rx0_packets", "rx0_hw_ratelimit_packets", "rx0_hw_ratelimit_bytes", "tx0_hw_ratelimit_packets"];
        let card = Card { count: 4, kept: kept(names.into_iter()) };
        assert_eq!(sums(&card, &[9, 10, 99, 5]), [("ratelimit_packets", 15), ("ratelimit_bytes", 99)]);
        // A driver that answers with fewer numbers than it has names.
        assert_eq!(sums(&card, &[9, 10]), [("ratelimit_packets", 10)]);
    }

    #[test]
    fn real_interfaces_answer_as_many_numbers_as_names_or_not_at_all() {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        assert_eq!(card(&socket, "no-such-interface"), None);
        for name in std::fs::read_dir("/sys/class/net").unwrap().flatten() {
            let name = name.file_name().into_string().unwrap();
            if let Some(card) = card(&socket, &name) {
                assert_eq!(
                    statistics(&socket, &name, card.count).unwrap().len(),
                    card.count as usize,
                    "{name}"
                );
            }
        }
    }

    #[test]
    fn a_saved_host_is_unknown_and_a_live_one_is_asked() {
        let folder = PathBuf::from("/sys/class/net");
        let mut saved = Allowances { is_live: false, folder: folder.clone(), cards: Default::default() };
        assert!(saved.sample(&mut Values::default()).is_err());
        let mut live = Allowances { is_live: true, folder, cards: Default::default() };
        live.sample(&mut Values::default()).unwrap();
        assert!(live.cards.contains_key("lo"));
        assert_eq!(ALLOWANCE.name, "allowance");
    }
}
