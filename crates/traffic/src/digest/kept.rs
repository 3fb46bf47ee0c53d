//! Events of one class, stored as they arrive and counted in batches.
//!
//! With many classes their counters do not fit in the CPU's caches, so each stored event must be small: one with ordinary
//! numbers is packed, any other is kept whole.

use std::sync::Arc;

use crate::digest::class_stats::Moment;
use crate::digest::names::Sender;
use crate::event::{Event, Outcome};
use crate::measures::{Measure, Measures, places};

/// How many non-zero measures a packed event can hold. Most measures are 0, and `known` has a bit for those.
const MOST_POSITIVE: usize = 6;
/// An unknown response time.
const UNKNOWN_NS: u64 = u64::MAX;
const _: () = assert!(Measure::ALL.len() <= u16::BITS as usize, "a bit for each");

#[derive(Debug)]
pub enum Kept {
    Packed(Packed),
    Whole(Box<(Moment, Arc<Sender>)>),
}

const _: () = assert!(size_of::<Kept>() <= 56, "less than a line of a cache");

#[derive(Debug)]
pub struct Packed {
    sender: Arc<Sender>,
    start_ns: u64,
    response_ns: u64,
    outcome: Outcome,
    /// One bit for each measure that is known, and one for each above 0.
    known: u16,
    positive: u16,
    /// The values above 0, in the order of their bits.
    values: [u32; MOST_POSITIVE],
}

impl Kept {
    #[inline]
    pub fn of(event: &Event<'_>, sender: &Arc<Sender>) -> Self {
        match Packed::of(event, sender) {
            Some(packed) => Kept::Packed(packed),
            None => Kept::Whole(Box::new((Moment::of(event), Arc::clone(sender)))),
        }
    }

    #[inline]
    pub fn moment(&self) -> Moment {
        match self {
            Kept::Packed(packed) => packed.moment(),
            Kept::Whole(whole) => whole.0.clone(),
        }
    }

    /// Reads the last bytes, so that they are in the CPU's cache.
    #[inline]
    pub fn touch(&self) -> u32 {
        match self {
            Kept::Packed(packed) => packed.values[MOST_POSITIVE - 1],
            Kept::Whole(_) => 0,
        }
    }

    #[inline]
    pub fn sender(&self) -> &Sender {
        match self {
            Kept::Packed(packed) => &packed.sender,
            Kept::Whole(whole) => &whole.1,
        }
    }
}

impl Packed {
    #[inline]
    fn of(event: &Event<'_>, sender: &Arc<Sender>) -> Option<Self> {
        if event.first_byte_ns.is_some() || event.response_ns == Some(UNKNOWN_NS) {
            return None;
        }
        let (mut positive, mut values, mut count) = (0, [0; MOST_POSITIVE], 0);
        for (measure, value) in event.measures.iter().filter(|(_, value)| *value > 0) {
            *values.get_mut(count)? = u32::try_from(value).ok()?;
            positive |= 1 << measure as u16;
            count += 1;
        }
        Some(Self {
            sender: Arc::clone(sender),
            start_ns: event.start_ns,
            response_ns: event.response_ns.unwrap_or(UNKNOWN_NS),
            outcome: event.outcome,
            known: event.measures.known() as u16,
            positive,
            values,
        })
    }

    #[inline]
    fn moment(&self) -> Moment {
        let mut measures = Measures::of_zeros(self.known.into());
        for (place, value) in places(self.positive.into()).zip(self.values) {
            measures.set(Measure::ALL[place], u64::from(value));
        }
        Moment {
            start_ns: self.start_ns,
            response_ns: (self.response_ns != UNKNOWN_NS).then_some(self.response_ns),
            first_byte_ns: None,
            outcome: self.outcome,
            measures,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Kept;
    use crate::digest::class_stats::Moment;
    use crate::digest::names::Everybody;
    use crate::event::{Command, Event, Outcome};
    use crate::measures::{Measure, Measures};
    use proptest::prelude::*;

    #[test]
    fn usual_events_are_packed_and_no_others() {
        let mut everybody = Everybody::default();
        let mut event = Event::new(1_700_000_000_000_000_000, 1, Command::Query);
        event.response_ns = Some(90_000_000_000);
        event.measures = Measure::ALL.into_iter().map(|measure| (measure, 0)).collect();
        for measure in Measure::ALL.into_iter().take(super::MOST_POSITIVE) {
            event.measures.set(measure, u64::from(u32::MAX));
        }
        let sender = everybody.count(&event, 0).clone();
        let is_packed = |event: &Event<'_>| matches!(Kept::of(event, &sender), Kept::Packed(_));
        assert!(is_packed(&event) && is_packed(&Event { response_ns: None, ..event.clone() }));
        let mut more = event.clone();
        more.measures.set(Measure::EventBytes, 1);
        let mut larger = event.clone();
        larger.measures.set(Measure::LockNs, 1 << 32);
        for other in [more, larger, Event { first_byte_ns: Some(1), ..event.clone() }] {
            assert!(!is_packed(&other), "{other:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_of_an_event_is_lost(
            start_ns in any::<u64>(),
            response_ns in proptest::option::of(prop_oneof![Just(u64::MAX), any::<u64>(), 0_u64..1 << 40]),
            first_byte_ns in proptest::option::weighted(0.1, any::<u64>()),
            outcome in prop_oneof![
                Just(Outcome::Unknown), Just(Outcome::Ok), Just(Outcome::Unanswered), any::<u16>().prop_map(Outcome::Error),
            ],
            values in proptest::collection::vec((0..Measure::ALL.len(), any::<u64>(), 20_u32..64), 0..15),
        ) {
            let measures: Measures =
                values.into_iter().map(|(place, value, shift)| (Measure::ALL[place], value >> shift)).collect();
            let base = Event::new(start_ns, 1, Command::Query);
            let event = Event { response_ns, first_byte_ns, outcome, measures, user: b"app", host: b"h", ..base };
            let sender = Everybody::default().count(&event, 0).clone();
            let kept = Kept::of(&event, &sender);
            prop_assert_eq!(kept.moment(), Moment::of(&event));
            prop_assert!(std::ptr::eq(kept.sender(), &*sender));
        }
    }
}
