//! The way by which a packet came: the tunnels and tags around it.
//!
//! Two networks may use the same addresses, so connections of different ways are kept apart unless their sequence
//! numbers show that they are one (`Table`).

use std::fmt::Write;

/// More layers than are ever nested; tags and labels count, too.
const MOST_LAYERS: usize = 16;

/// What was around a packet. The number beside it is the one by which the same kind is told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Vlan,
    Mpls,
    Pppoe,
    Vxlan,
    Geneve,
    Gre,
    KeyedGre,
    Pptp,
    ErspanI,
    ErspanII,
    ErspanIII,
    GtpU,
    Tzsp,
    Nsh,
    MacInMac,
    Trill,
    EtherIp,
    EthernetInIp,
    Ipv4InIpv4,
    Ipv6InIpv4,
    Ipv4InIpv6,
    Ipv6InIpv6,
    L2tp,
    Teredo,
    Lisp,
    Capwap,
    Gue,
    Fou,
    Macsec,
}

impl Kind {
    /// Its name, and what its number is if that says something to people.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Kind::Vlan => ("", ""),
            Kind::Mpls => ("MPLS", ""),
            Kind::Pppoe => ("PPPoE", "session"),
            Kind::Vxlan => ("VXLAN", "VNI"),
            Kind::Geneve => ("Geneve", "VNI"),
            Kind::Gre => ("GRE", ""),
            Kind::KeyedGre => ("GRE", "key"),
            Kind::Pptp => ("PPTP", ""),
            Kind::ErspanI => ("ERSPAN I", ""),
            Kind::ErspanII => ("ERSPAN II", "session"),
            Kind::ErspanIII => ("ERSPAN III", "session"),
            // Each direction has a number of its own, and each subscriber.
            Kind::GtpU => ("GTP-U", ""),
            Kind::Tzsp => ("TZSP", ""),
            Kind::Nsh => ("NSH", "path"),
            Kind::MacInMac => ("802.1ah", "I-SID"),
            Kind::Trill => ("TRILL", ""),
            Kind::EtherIp => ("EtherIP", ""),
            Kind::EthernetInIp => ("Ethernet in IP", ""),
            Kind::Ipv4InIpv4 => ("IP in IP", ""),
            Kind::Ipv6InIpv4 => ("IPv6 in IPv4", ""),
            Kind::Ipv4InIpv6 => ("IPv4 in IPv6", ""),
            Kind::Ipv6InIpv6 => ("IPv6 in IPv6", ""),
            // As GTP-U's.
            Kind::L2tp => ("L2TP", ""),
            Kind::Teredo => ("Teredo", ""),
            Kind::Lisp => ("LISP", ""),
            Kind::Capwap => ("CAPWAP", ""),
            Kind::Gue => ("GUE", ""),
            Kind::Fou => ("IP in UDP", ""),
            Kind::Macsec => ("MACsec", ""),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// What all layers and their addresses come to; 0 without any.
    key: u64,
    layers: [(Kind, u32); MOST_LAYERS],
    depth: usize,
}

impl Path {
    pub fn clear(&mut self) {
        (self.key, self.depth) = (0, 0);
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    /// Goes into one more layer; false if there are too many.
    #[must_use]
    pub fn enter(&mut self, kind: Kind, number: u32) -> bool {
        let Some(layer) = self.layers.get_mut(self.depth) else { return false };
        *layer = (kind, number);
        self.depth += 1;
        self.mix((u64::from(number) << 8) | (kind as u64 + 1));
        true
    }

    /// What else tells two tunnels of the same number apart: the ends, in whatever direction, or what a provider adds.
    pub fn mix(&mut self, value: u64) {
        // Odd constants of a finaliser of splitmix64.
        let mixed = (self.key.rotate_left(5) ^ value).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.key = (mixed ^ mixed >> 29).max(1);
    }

    pub fn between(&mut self, one: u128, other: u128) {
        let fold =
            |address: u128| (address >> 64) as u64 ^ (address as u64).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.mix(fold(one) ^ fold(other));
    }

    /// Whether there is more than tags.
    pub fn is_tunnel(&self) -> bool {
        self.layers[..self.depth].iter().any(|(kind, _)| *kind != Kind::Vlan)
    }

    /// `GRE > VXLAN (VNI 7)`, the outermost first.
    pub fn name(&self) -> String {
        let mut name = String::new();
        for (kind, number) in self.layers[..self.depth].iter().filter(|(kind, _)| *kind != Kind::Vlan) {
            let (layer, of) = kind.name();
            name += if name.is_empty() { "" } else { " > " };
            name += layer;
            if !of.is_empty() {
                let _ = write!(name, " ({of} {number})");
            }
        }
        name
    }
}
