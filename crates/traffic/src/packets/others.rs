//! What packets are that carry no TCP which is read, in words.

/// What a packet is instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Other {
    /// By the EtherType of its network protocol, and by its protocol above IP.
    Ether(u16),
    Ip(u8),
    /// By the lower port: a server's is, mostly. With what its content shows it to be.
    Udp(u16, &'static str),
    /// TCP of ports that are none of the servers'.
    Tcp,
    /// By the link type of the capture.
    Link(u16),
    Named(&'static str),
}

impl Other {
    pub fn name(self) -> String {
        match self {
            Other::Ether(number) => match ether(number) {
                "" => format!("EtherType 0x{number:04x}"),
                name => name.to_owned(),
            },
            Other::Ip(number) => match ip(number) {
                "" => format!("IP protocol {number}"),
                name => name.to_owned(),
            },
            Other::Udp(port, "") => match udp(port) {
                "" => format!("UDP of port {port}"),
                name => format!("UDP of port {port} ({name})"),
            },
            Other::Udp(port, seen) => format!("{seen} (UDP of port {port})"),
            Other::Tcp => "TCP of other ports".to_owned(),
            Other::Link(number) => match link(number) {
                "" => format!("link type {number}, which is not read"),
                name => format!("{name} (link type {number}, which is not read)"),
            },
            Other::Named(name) => name.to_owned(),
        }
    }
}

fn ether(number: u16) -> &'static str {
    match number {
        0x0806 => "ARP",
        0x8035 => "RARP",
        0x8863 => "PPPoE discovery",
        0x8864 => "PPPoE without IP",
        0x88cc => "LLDP",
        0x888e => "802.1X",
        0x88e5 => "MACsec (encrypted)",
        0x88f7 => "PTP",
        0x8809 => "LACP",
        0x8847 | 0x8848 => "MPLS without IP",
        0x8906 => "FCoE",
        0x8915 => "RoCE",
        0x4305 => "B.A.T.M.A.N.",
        0x8137 => "IPX",
        0x809b => "AppleTalk",
        0x88a2 => "ATA over Ethernet",
        0x88ab => "POWERLINK",
        0x8892 => "PROFINET",
        0x88a4 => "EtherCAT",
        0x9000 => "Ethernet loopback tests",
        _ => "",
    }
}

fn ip(number: u8) -> &'static str {
    match number {
        1 | 58 => "ICMP",
        2 => "IGMP",
        17 => "UDP that is cut off",
        33 => "DCCP",
        46 => "RSVP",
        47 => "GRE of an unknown kind",
        50 => "ESP (IPsec, encrypted)",
        59 => "IPv6 without content",
        88 => "EIGRP",
        89 => "OSPF",
        103 => "PIM",
        108 => "IPComp (compressed)",
        112 => "VRRP",
        55 => "mobile IP's short headers",
        115 => "L2TPv3 without a packet",
        135 => "mobile IP",
        136 => "UDP-Lite",
        132 => "SCTP",
        _ => "",
    }
}

fn udp(port: u16) -> &'static str {
    match port {
        53 => "DNS",
        67 | 68 | 546 | 547 => "DHCP",
        123 => "NTP",
        137 | 138 => "NetBIOS",
        161 | 162 => "SNMP",
        443 => "QUIC",
        500 => "IKE",
        646 => "LDP",
        514 => "syslog",
        1194 => "OpenVPN, encrypted",
        1701 => "L2TP without a packet",
        1812 | 1813 => "RADIUS",
        1900 => "SSDP",
        1985 => "HSRP",
        2055 | 9995 => "NetFlow",
        2123 => "GTP-C",
        2152 => "GTP without IP",
        3544 => "Teredo without IPv6",
        4341 | 4342 => "LISP without IP",
        4500 => "IPsec, encrypted",
        4739 => "IPFIX",
        4789 | 8472 => "no VXLAN",
        5246 | 5247 => "CAPWAP without data",
        5353 => "mDNS",
        5405 => "corosync",
        6081 => "no Geneve",
        6343 => "sFlow, samples of packets",
        8125 => "StatsD",
        51820 => "WireGuard, encrypted",
        _ => "",
    }
}

fn link(number: u16) -> &'static str {
    match number {
        107 => "Frame Relay",
        137 | 192 => "headers of a capture without a frame that is known",
        143 => "DOCSIS",
        197 => "ERF without Ethernet",
        252 => "parts of packets that Wireshark exported",
        253 => "Netlink messages",
        271 => "sockets of virtual machines",
        147..=162 => "a private link type",
        187 | 201 => "Bluetooth",
        189 | 220 | 249 => "USB",
        195 | 215 | 230 => "802.15.4",
        247 => "InfiniBand",
        _ => "",
    }
}

/// What the content of a packet of UDP shows it to be; empty if nothing.
pub fn seen_in_udp(payload: &[u8], wire_bytes: usize) -> &'static str {
    let is_wireguard = match payload {
        [1, 0, 0, 0, ..] => wire_bytes == 148,
        [2, 0, 0, 0, ..] => wire_bytes == 92,
        [3, 0, 0, 0, ..] => wire_bytes == 64,
        [4, 0, 0, 0, ..] => wire_bytes >= 32 && wire_bytes.is_multiple_of(16),
        _ => false,
    };
    match payload {
        _ if is_wireguard => "WireGuard, encrypted",
        // A long header of version 1 or 2.
        [0xc0..=0xff, 0, 0, 0, 1, ..] | [0xc0..=0xff, 0x6b, 0x33, 0x43, 0xcf, ..] => "QUIC, encrypted",
        [0x16 | 0x17, 0xfe, 0xfd | 0xff, ..] => "DTLS, encrypted",
        _ => "",
    }
}
