//! What a network interface does with packets for the kernel: ethtool's ioctl, which needs no permission.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Name -> command (include/uapi/linux/ethtool.h).
const QUESTIONS: [(&str, u32); 6] = [
    ("rx_checksum", 0x14),
    ("tx_checksum", 0x16),
    ("scatter_gather", 0x18),
    ("tso", 0x1e),
    ("gso", 0x23),
    ("gro", 0x2b),
];
const ETHTOOL: u32 = 0x8946;

#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Whether each is on; one that the kernel does not report is left out. `None` if it reports none.
pub fn read(interface: &str) -> Option<BTreeMap<&'static str, bool>> {
    // Any socket will do.
    let socket = UdpSocket::bind(("127.0.0.1", 0)).ok()?;
    let found: BTreeMap<_, _> = QUESTIONS
        .into_iter()
        .filter_map(|(name, command)| Some((name, ask(&socket, interface, command)? != 0)))
        .collect();
    (!found.is_empty()).then_some(found)
}

fn ask(socket: &UdpSocket, interface: &str, command: u32) -> Option<u32> {
    let mut value = Value { command, data: 0 };
    // SAFETY: all zero is a valid value of it.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (letter, byte) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *letter = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: the request names an interface and a value that the kernel fills; both outlive the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), ETHTOOL as _, &raw mut request) };
    (result == 0).then_some(value.data)
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn loopback_needs_no_checksums_and_an_unknown_interface_has_no_answer() {
        let found = read("lo").unwrap();
        assert!(found.contains_key("gro"), "{found:?}");
        assert_eq!(found.get("tx_checksum"), Some(&true));
        assert_eq!(read("no-such-interface"), None);
    }
}
