//! Fingerprints of statements whose shape was seen before: these are looked up, and not made again.

use sql::Shapes;

use crate::digest::classes::Place;
use crate::digest::seeded::Seeded;
use crate::event::{Command, Event};

/// To learn a shape takes as long as so many lookups save.
const PRICE: u32 = 8;
/// What may be spent before anything was saved.
const CREDIT: u32 = 1 << 15;

#[derive(Debug)]
pub struct Known {
    shapes: Shapes,
    /// Each with the place of its class.
    fingerprints: Vec<(Box<[u8]>, Place)>,
    /// Learning what never comes again costs a share of what was saved, and no more.
    credit: u32,
}

impl Known {
    pub fn new() -> Self {
        Self { shapes: Shapes::new(Seeded::new().seed()), fingerprints: Vec::new(), credit: CREDIT }
    }

    pub fn shapes(&self) -> &Shapes {
        &self.shapes
    }

    /// The number by which `at` gives the fingerprint of a statement, if its shape was learnt.
    #[inline]
    pub fn number(&self, text: &[u8], hash: u64) -> Option<u32> {
        self.shapes.find_hashed(text, hash)
    }

    /// The place of a class as it was last.
    #[inline]
    pub fn place(&self, number: u32) -> Place {
        self.fingerprints[number as usize].1
    }

    #[inline]
    pub fn at(&mut self, number: u32) -> (&[u8], &mut Place) {
        let (fingerprint, place) = &mut self.fingerprints[number as usize];
        self.credit = self.credit.saturating_add(1);
        (fingerprint, place)
    }

    /// The fingerprint of an event's statement, if its shape was learnt, and the place of its class.
    #[inline]
    pub fn find(&mut self, event: &Event<'_>) -> Option<(&[u8], &mut Place)> {
        if event.command != Command::Query || event.is_cut {
            return None;
        }
        let number = self.shapes.find(event.text)?;
        Some(self.at(number))
    }

    /// Learns the shape of an event's statement, which has this fingerprint.
    pub fn learn(&mut self, event: &Event<'_>, fingerprint: &[u8]) {
        if event.command != Command::Query || event.is_cut || self.credit < PRICE {
            return;
        }
        self.credit -= PRICE;
        if self.shapes.learn(event.text, self.fingerprints.len() as u32) {
            self.fingerprints.push((fingerprint.into(), Place::default()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CREDIT, Known, PRICE};
    use crate::event::{Command, Event};

    fn event(text: &str) -> Event<'_> {
        Event { text: text.as_bytes(), ..Event::new(1, 1, Command::Query) }
    }

    #[test]
    fn a_shape_that_was_learnt_is_found_of_whole_statements_alone() {
        let mut known = Known::new();
        let find = |known: &mut Known, event| known.find(&event).map(|(text, _)| text.to_vec());
        assert_eq!(find(&mut known, event("SELECT 1 FROM t")), None);
        known.learn(&event("SELECT 1 FROM t"), b"select ? from t");
        for other in ["SELECT 1 FROM u", "SELECT a FROM t", "SELECT 1 FROM t "] {
            assert_eq!(find(&mut known, event(other)), None, "{other}");
        }
        assert_eq!(find(&mut known, Event { is_cut: true, ..event("SELECT 1 FROM t") }), None);
        assert_eq!(find(&mut known, Event { command: Command::Rows, ..event("SELECT 1 FROM t") }), None);
        assert_eq!(find(&mut known, event("SELECT 22 FROM t")).as_deref(), Some(&b"select ? from t"[..]));
    }

    #[test]
    fn what_never_comes_again_is_learnt_only_so_often() {
        let mut known = Known::new();
        for number in 0..=CREDIT / PRICE {
            known.learn(&event(&format!("SELECT a{number}")), b"");
        }
        assert_eq!(known.fingerprints.len() as u32, CREDIT / PRICE);
    }
}
