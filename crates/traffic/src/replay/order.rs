//! Who has to wait for whom, across sessions: a step waits for every step that was recorded to be over before it
//! began.
//!
//! Steps are dependent only on steps that are before them in the recording, so the first that is not over can
//! always go on: nothing waits for ever.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the reader knows of the steps it has handed out.
#[derive(Default)]
pub struct Planner {
    next: u64,
    /// Recorded ends of steps, with their numbers; not yet before anybody's begin.
    open: BinaryHeap<Reverse<(u64, u64)>>,
    placed: u64,
}

/// A step's place: what it waits for, and its own number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// So many places must be over.
    pub after: u64,
    /// None for what is not waited for.
    pub number: Option<u64>,
}

/// What is over, shared by all threads.
#[derive(Default)]
pub struct Order {
    /// All places below this one are over.
    reached: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Number of a step -> its place in the order of recorded ends, once that is known.
    places: HashMap<u64, u64>,
    /// Steps that were over before they had a place.
    early: HashSet<u64>,
    /// Places that are over, above `reached`.
    over: HashSet<u64>,
}

impl Planner {
    /// The place of what begins at `start_ns`. Called in the order of the recording.
    pub fn wait(&mut self, start_ns: u64, order: &Order) -> Step {
        while let Some(Reverse((end_ns, number))) = self.open.peek().copied()
            && end_ns <= start_ns
        {
            self.open.pop();
            order.place(number, self.placed);
            self.placed += 1;
        }
        Step { after: self.placed, number: None }
    }

    /// The same for a step that others wait for; it was over at `end_ns`.
    pub fn step(&mut self, start_ns: u64, end_ns: u64, order: &Order) -> Step {
        let step = self.wait(start_ns, order);
        let number = self.next;
        self.next += 1;
        self.open.push(Reverse((end_ns, number)));
        Step { number: Some(number), ..step }
    }
}

impl Order {
    /// Whether all that a step waits for is over.
    pub fn allows(&self, step: Step) -> bool {
        step.after <= self.reached.load(Ordering::Acquire)
    }

    /// A step is over, however it ended: who waits for it waits for no success.
    pub fn over(&self, step: Step) {
        let Some(number) = step.number else { return };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.places.remove(&number) {
            Some(place) => self.advance(&mut state, place),
            None => {
                state.early.insert(number);
            }
        }
    }

    fn place(&self, number: u64, place: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.early.remove(&number) {
            self.advance(&mut state, place);
        } else {
            state.places.insert(number, place);
        }
    }

    fn advance(&self, state: &mut State, place: u64) {
        state.over.insert(place);
        let mut reached = self.reached.load(Ordering::Relaxed);
        while state.over.remove(&reached) {
            reached += 1;
        }
        self.reached.store(reached, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Planner};
    use proptest::prelude::{any, prop_assert, proptest};

    #[test]
    fn a_step_waits_for_those_that_were_over_and_no_others() {
        let (order, mut planner) = (Order::default(), Planner::default());
        let first = planner.step(0, 10, &order);
        let long = planner.step(5, 100, &order);
        let second = planner.step(10, 20, &order);
        let third = planner.step(30, 40, &order);
        assert!(order.allows(first) && order.allows(long));
        assert!(!order.allows(second) && !order.allows(third));
        order.over(first);
        assert!(order.allows(second) && !order.allows(third));
        // What was recorded to take until 100 need not be over.
        order.over(second);
        assert!(order.allows(third));
        assert!(!order.allows(planner.wait(100, &order)));
        order.over(long);
        assert!(!order.allows(planner.wait(100, &order)));
        order.over(third);
        assert!(order.allows(planner.wait(100, &order)));
    }

    proptest! {
        /// However long steps took, and in whatever order they end that the rule allows: all end.
        #[test]
        fn nothing_waits_for_ever(
            steps in proptest::collection::vec((0_u64..20, 1_u64..100), 1..60), pick in any::<u64>(),
        ) {
            let (order, mut planner) = (Order::default(), Planner::default());
            let mut start = 0;
            let mut waiting: Vec<_> = steps
                .iter()
                .map(|(gap, length)| {
                    start += gap;
                    (start, start + length, planner.step(start, start + length, &order))
                })
                .collect();
            let mut ended = Vec::new();
            while !waiting.is_empty() {
                let allowed: Vec<_> = (0..waiting.len()).filter(|i| order.allows(waiting[*i].2)).collect();
                prop_assert!(!allowed.is_empty(), "all wait");
                let (start, end, step) = waiting.remove(allowed[pick as usize % allowed.len()]);
                for (_, before, _) in &waiting {
                    prop_assert!(*before > start, "it did not wait");
                }
                ended.push(end);
                order.over(step);
            }
        }
    }
}
