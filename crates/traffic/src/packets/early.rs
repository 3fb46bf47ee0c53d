//! Packets of other ports, kept until a server of MySQL greets on one of them.
//!
//! Nobody named a port, so the usual one is read. Where nothing comes from it, the first server that greets is the one
//! that the capture is of, and what its clients sent before the greeting (a balancer's header) belongs to it. A second
//! server that greets may be the one behind a proxy, whose statements would count twice: it is only named.

use std::collections::VecDeque;

use super::path::Path;
use super::segment::Segment;

/// Of both the latest are kept: the connection that greets began shortly before.
const MOST_SEGMENTS: usize = 16_384;
const MOST_BYTES: usize = 4 << 20;

/// A packet that waits, with its time and its way.
pub struct Kept {
    pub time_ns: u64,
    pub path: Path,
    segment: Segment<'static>,
    data: Vec<u8>,
}

impl Kept {
    pub fn segment(&self) -> Segment<'_> {
        Segment { data: &self.data, ..self.segment }
    }

    fn is_of(&self, port: u16) -> bool {
        self.segment.source.port == port || self.segment.destination.port == port
    }
}

#[derive(Default)]
pub struct Early {
    kept: VecDeque<Kept>,
    bytes: usize,
}

impl Early {
    pub fn keep(&mut self, time_ns: u64, segment: &Segment<'_>, path: Path) {
        while self.kept.len() >= MOST_SEGMENTS || self.bytes > MOST_BYTES {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.data.len();
        }
        self.bytes += segment.data.len();
        let (data, segment) = (segment.data.to_vec(), Segment { data: &[], ..*segment });
        self.kept.push_back(Kept { time_ns, path, segment, data });
    }

    /// Those of a port, in their order.
    pub fn of_port(self, port: u16) -> impl Iterator<Item = Kept> {
        self.kept.into_iter().filter(move |kept| kept.is_of(port))
    }
}
