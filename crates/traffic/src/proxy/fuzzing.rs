//! What fuzzers drive: the login of a connection through the proxy, in which both sides may say anything. Compiled for
//! `cargo fuzz` only.

use super::login::{Act, Login, Rules};
use crate::stream::Side;

/// The lowest bits of the first byte are the proxy's rules. The rest is a list of pieces: a byte that is even for the
/// client, a length of two bytes, little-endian; the bytes.
///
/// # Panics
///
/// That is what it looks for; also where the size of the pieces changes what is done.
pub fn login(data: &[u8]) {
    let [bits, data @ ..] = data else { return };
    let rules = Rules { ends_tls: bits & 1 != 0, hides_tls: bits & 2 != 0, server_tls: bits & 4 != 0 };
    let (whole, in_bytes) = (acts(rules, data, usize::MAX), acts(rules, data, 1));
    // What a client says behind its login waits there for the encryption of the other leg.
    assert!(rules.server_tls || whole == in_bytes, "{whole:?}\n{in_bytes:?}");
}

/// What is done up to the end of the login, without what came behind it.
fn acts(rules: Rules, mut data: &[u8], piece_bytes: usize) -> Vec<Act> {
    let (mut login, mut all) = (Login::new(rules), Vec::new());
    while let [from, low, high, rest @ ..] = data {
        let (said, rest) = rest.split_at(usize::from(u16::from_le_bytes([*low, *high])).min(rest.len()));
        data = rest;
        let from = if from % 2 == 0 { Side::Client } else { Side::Server };
        let mut left = said;
        while !left.is_empty() {
            let (piece, later) = left.split_at(piece_bytes.min(left.len()));
            left = later;
            for act in login.take(from, piece) {
                let (act, is_end) = match act {
                    Act::Over(side, _) => (Act::Over(side, vec![]), true),
                    // What is behind it is encrypted, and what comes next is the plain text of that.
                    Act::Encrypt(side, _) => {
                        left = if side == from { &[] } else { left };
                        (Act::Encrypt(side, vec![]), false)
                    }
                    Act::Refuse(why) => (Act::Refuse(why), true),
                    act => (act, false),
                };
                all.push(act);
                if is_end {
                    return all;
                }
            }
        }
    }
    all
}
