//! TCP's troubles, one by one.

use super::generate::{Call, START_NS, Talk};
use super::read_packets;
use crate::traffic::coverage::Coverage;
use crate::traffic::stream::Side::{Client, Server};

/// Handshake, greeting, one question and its answer, the end.
fn whole() -> Talk {
    let mut talk = Talk::new(40_000, 1000, 9000);
    talk.shake();
    talk.say(Server, b"hello");
    talk.say(Client, b"question one");
    talk.say(Server, b"the answer");
    talk.say(Server, b", and more");
    talk.say(Client, b"question two");
    talk.say(Server, b"fin");
    talk.end();
    talk
}

const CLIENT: &[u8] = b"question onequestion two";
const SERVER: &[u8] = b"hellothe answer, and morefin";

fn nothing_lost(coverage: &Coverage) {
    assert_eq!((coverage.gaps, coverage.damaged, coverage.skipped_bytes), (0, 0, 0), "{coverage:?}");
}

#[test]
fn in_order() {
    let talk = whole();
    let (calls, coverage) = read_packets(&talk.packets);
    let opened = calls.opened();
    assert_eq!((opened.len(), opened[0].client, opened[0].server), (1, talk.client, talk.server));
    assert!(!opened[0].is_midstream);
    assert_eq!(calls.said(1, Client), CLIENT);
    assert_eq!(calls.said(1, Server), SERVER);
    assert_eq!(coverage.packets, talk.packets.len() as u64);
    assert_eq!((coverage.retransmitted_packets, coverage.other_packets), (0, 0));
    nothing_lost(&coverage);
    let time = |call: &Call| if let Call::Bytes(time_ns, ..) = call { Some(*time_ns) } else { None };
    let times: Vec<u64> = calls.calls.iter().filter_map(time).map(|time| (time - START_NS) / 1000).collect();
    assert_eq!(times, [4, 5, 6, 7, 8, 9]);
}
