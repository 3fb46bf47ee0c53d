//! Protocol numbers, and the step from one layer into the next.

use super::others::Other;
use super::path::{Kind, Path};
use super::segment::{Content, Parsed, be16, inside};

pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const MPLS: u16 = 0x8847;
pub const NSH: u16 = 0x894f;
pub const TOO_DEEP: Parsed<'static> = Parsed::Other(Other::Named("tunnels nested too deep"));

/// Enters a layer and returns its content, unless there are too many layers.
pub fn enter<'a>(
    path: &mut Path,
    (kind, number): (Kind, u32),
    content: Content,
    (bytes, wire_bytes): (&'a [u8], usize),
    at: usize,
) -> Parsed<'a> {
    if path.enter(kind, number) { inside(content, bytes, wire_bytes, at) } else { TOO_DEEP }
}

pub fn is_frame(frame: &[u8]) -> bool {
    match (be16(frame, 12), frame.get(14)) {
        (Some(IPV4), Some(first)) => (0x45..=0x4f).contains(first),
        (Some(IPV6), Some(first)) => first >> 4 == 6,
        (Some(0x8100 | 0x88a8 | 0x0806 | MPLS | 0x8864 | NSH | 0x88e7), Some(_)) => true,
        _ => false,
    }
}
