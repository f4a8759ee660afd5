//! The event queue of a simulation.
//!
//! [Note: Radix heap] No event is noted for a past time, so times need not be kept sorted: a bucket
//! holds the times that share their leading digits with the present one and then have the same
//! first digit that differs (Ahuja, Mehlhorn, Orlin, Tarjan, "Faster algorithms for the shortest
//! path problem", 1990). When the present reaches a bucket, its content is distributed to buckets
//! of lower digits. Each occurrence is moved a few times, from one end of a list to another; a heap
//! would fetch some distant lines of memory for each. Floating-point numbers that are not negative
//! sort as their bits do.

use crate::share::{BundleId, Ending};

/// Times closer than this share of themselves are the same: simultaneous events happen in one turn,
/// regardless of the last digits.
const SAME: f64 = 1e-12;

/// The bits of a digit.
const DIGIT: u32 = 4;
/// Digits of a time, and values of a digit.
const DIGITS: usize = 64 / DIGIT as usize;
const VALUES: usize = 1 << DIGIT;

/// Something that happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A flow of this bundle ends, unless this version of its rates is out of date.
    Ending(BundleId, u32),
    /// A rank's thread has finished its activity, or begins.
    Thread(u32),
    /// A message can be seen by its receiver.
    Arrival(u32),
    /// A line has spent its saved tokens.
    Spent,
}

/// Occurrences in the order of their times, and of being noted.
pub(crate) struct EventQueue {
    /// The bits of the present time.
    now: u64,
    /// The events of the present time.
    due: Vec<Event>,
    /// By the first digit that differs from the present time, counted from the last one, then by
    /// its value.
    buckets: [[EventBucket; VALUES]; DIGITS],
    /// By digit: a bit for each bucket that is not empty.
    filled: [u32; DIGITS],
    noted: u64,
}

#[derive(Default)]
struct EventBucket {
    /// With the bits of their times.
    events: Vec<(u64, Event)>,
    /// The bits of the earliest time, if there is any.
    earliest: u64,
}

impl Default for EventQueue {
    fn default() -> Self {
        EventQueue {
            now: 0,
            due: Vec::new(),
            buckets: Default::default(),
            filled: [0; DIGITS],
            noted: 0,
        }
    }
}

impl EventQueue {
    pub(crate) fn note(&mut self, time: f64, event: Event) {
        self.noted += 1;
        // Times computed to be before the present are so by the last digits only.
        self.put(time.to_bits().max(self.now), event);
    }

    pub(crate) fn note_ending(&mut self, ending: &Ending) {
        self.note(ending.time, Event::Ending(ending.bundle, ending.version));
    }

    /// Takes everything that happens next, at one time, and says when. `None` if nothing does.
    pub(crate) fn take_next(&mut self, taken: &mut Vec<Event>) -> Option<f64> {
        if self.due.is_empty() {
            let (digit, value) = self.first()?;
            self.hand_down(digit, value);
        }
        let time = f64::from_bits(self.now);
        taken.append(&mut self.due);
        let same = (time * (1.0 + SAME)).to_bits();
        while let Some((digit, value)) = self.first()
            && self.buckets[digit][value].earliest <= same
        {
            self.hand_down(digit, value);
            taken.append(&mut self.due);
        }
        Some(time)
    }

    /// How much was noted so far.
    pub(crate) fn noted(&self) -> u64 {
        self.noted
    }

    fn put(&mut self, time: u64, event: Event) {
        let differing = time ^ self.now;
        if differing == 0 {
            self.due.push(event);
            return;
        }
        let digit = differing.ilog2() / DIGIT;
        let value = (time >> (digit * DIGIT)) as usize % VALUES;
        let bucket = &mut self.buckets[digit as usize][value];
        if bucket.events.is_empty() {
            self.filled[digit as usize] |= 1 << value;
            bucket.earliest = time;
        }
        bucket.earliest = bucket.earliest.min(time);
        bucket.events.push((time, event));
    }

    /// The bucket with the earliest times that are not due.
    fn first(&self) -> Option<(usize, usize)> {
        let digit = self.filled.iter().position(|filled| *filled != 0)?;
        Some((digit, self.filled[digit].trailing_zeros() as usize))
    }

    /// Advances to the earliest time of the first bucket, and distributes its events.
    fn hand_down(&mut self, digit: usize, value: usize) {
        let bucket = &mut self.buckets[digit][value];
        self.filled[digit] &= !(1 << value);
        self.now = bucket.earliest;
        let mut events = std::mem::take(&mut bucket.events);
        for (time, event) in events.drain(..) {
            self.put(time, event);
        }
        // Its memory serves again.
        self.buckets[digit][value].events = events;
    }
}

#[cfg(test)]
mod tests {
    use super::{Event, EventQueue};
    use proptest::prelude::*;

    /// Takes all events, and notes those that `later` returns for each.
    fn order(times: &[f64], later: impl Fn(usize, f64) -> Option<f64>) -> Vec<(f64, Vec<u32>)> {
        let mut events = EventQueue::default();
        let mut number = 0;
        let mut note = |events: &mut EventQueue, time| {
            events.note(time, Event::Thread(number));
            number += 1;
        };
        for time in times {
            note(&mut events, *time);
        }
        let (mut turns, mut taken) = (Vec::new(), Vec::new());
        while let Some(time) = events.take_next(&mut taken) {
            let of_turn = taken.drain(..).map(|event| match event {
                Event::Thread(number) => number,
                other => panic!("{other:?} was not noted"),
            });
            turns.push((time, of_turn.collect::<Vec<u32>>()));
            if let Some(delay) = later(turns.len(), time) {
                note(&mut events, time + delay);
            }
        }
        turns
    }

    proptest! {
        /// The order equals that of a sorted list, also with events noted in between.
        #[test]
        fn events_come_in_order_of_time_and_noting(
            times in prop::collection::vec(0_u32..50, 1..60),
            delays in prop::collection::vec(prop::option::of(0_u32..20), 60),
        ) {
            let scale = |ticks: u32| f64::from(ticks) * 1e-7;
            let times: Vec<f64> = times.into_iter().map(scale).collect();
            let delay = |turn: usize| delays.get(turn).copied().flatten().map(scale);
            let turns = order(&times, |turn, _| delay(turn));
            let mut expected: Vec<(f64, u32)> = times.into_iter().zip(0..).collect();
            let mut number = expected.len() as u32;
            for (turn, (time, of_turn)) in turns.into_iter().enumerate() {
                expected.sort_by(|a, b| a.partial_cmp(b).unwrap());
                prop_assert!((time - expected[0].0).abs() <= 1e-12 * time);
                let at_once = expected.iter().take_while(|(other, _)| *other <= time * (1.0 + 1e-12));
                let at_once: Vec<u32> = at_once.map(|(_, number)| *number).collect();
                expected.drain(..at_once.len());
                prop_assert_eq!(of_turn, at_once);
                if let Some(delay) = delay(turn + 1) {
                    expected.push((time + delay, number));
                    number += 1;
                }
            }
            prop_assert!(expected.is_empty());
        }
    }

    #[test]
    fn nearly_equal_times_share_a_turn() {
        let turns = order(&[1.0, 1.0 - 1e-16, 0.5, 1.0 + 2e-16, 1.0 + 1e-9], |_, _| {
            None
        });
        let numbers: Vec<Vec<u32>> = turns.into_iter().map(|(_, numbers)| numbers).collect();
        assert_eq!(numbers, [vec![2], vec![1, 0, 3], vec![4]]);
    }
}
