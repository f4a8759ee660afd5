//! Order of a group's operations: their numbers and fingerprints, the same on all ranks.

use std::collections::VecDeque;

use super::{Call, Fingerprint};

/// The number of operations that are remembered, for peers that query them.
const REMEMBERED: usize = 64;

/// The number of priorities, other than 0, with a separate level. A further priority shares the
/// level of the nearest one with the same sign, or has that of 0 if there is none.
pub const LEVELS: usize = 3;

/// Numbers operations, and remembers their fingerprints.
#[derive(Default, Debug)]
pub struct Order {
    next: u64,
    history: u64,
    remembered: VecDeque<(u64, Fingerprint)>,
    /// The priorities of the levels from 1 on, in the order of their first calls, which is the same
    /// on all ranks.
    levels: Vec<i32>,
}

impl Order {
    /// Adds a call. Returns its operation's number and fingerprint. `plan` is 0 while none is
    /// chosen.
    #[inline]
    pub fn enter(&mut self, call: &Call, plan: u64) -> (u64, Fingerprint) {
        let level = self.level(call.priority);
        let fingerprint = Fingerprint::new(call, self.history, level).with_plan(plan);
        self.history = fingerprint.extended();
        let sequence = self.next;
        self.next += 1;
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((sequence, fingerprint));
        (sequence, fingerprint)
    }

    /// The number of operations so far.
    pub fn issued(&self) -> u64 {
        self.next
    }

    /// The level of a priority: 0, or one that distinguishes it from others if one is free.
    fn level(&mut self, priority: i32) -> usize {
        if priority == 0 {
            return 0;
        }
        let known = self.levels.iter().position(|level| *level == priority);
        if known.is_none() && self.levels.len() < LEVELS {
            self.levels.push(priority);
            return self.levels.len();
        }
        let same_sign = |index: &usize| self.levels[*index].signum() == priority.signum();
        let distance = |index: &usize| self.levels[*index].abs_diff(priority);
        let nearest = (0..self.levels.len())
            .filter(same_sign)
            .min_by_key(distance);
        known.or(nearest).map_or(0, |index| index + 1)
    }

    /// Records the plan of an operation that was added without one.
    pub fn settle(&mut self, sequence: u64, fingerprint: Fingerprint) {
        if let Some(entry) = self
            .remembered
            .iter_mut()
            .rev()
            .find(|(s, _)| *s == sequence)
        {
            entry.1 = fingerprint;
        }
    }

    /// The fingerprint of operation `sequence`, if it is still remembered.
    pub fn recall(&self, sequence: u64) -> Option<Fingerprint> {
        let found = self.remembered.iter().find(|(s, _)| *s == sequence);
        found.map(|(_, fingerprint)| *fingerprint)
    }

    /// The remembered operations.
    pub fn recent(&self) -> Vec<(u64, Fingerprint)> {
        self.remembered.iter().copied().collect()
    }

    /// The first operation that differs between this rank and another, with the two calls, if both
    /// still remember it.
    pub fn first_difference(
        &self,
        theirs: &[(u64, Fingerprint)],
    ) -> Option<(u64, Fingerprint, Fingerprint)> {
        self.remembered.iter().find_map(|(sequence, mine)| {
            let (_, other) = theirs.iter().find(|(s, _)| s == sequence)?;
            let first = mine.history == other.history && !mine.agrees(*other);
            first.then_some((*sequence, *mine, *other))
        })
    }
}

#[cfg(test)]
mod tests {
    use weft_kernels::DType;
    use weft_schedule::Collective;

    use super::*;
    use crate::{Counts, Op, Tiling};

    fn broadcast(root: u32) -> Call {
        Call {
            collective: Collective::Broadcast { root },
            dtype: DType::F32,
            op: Op::Sum,
            input: std::ptr::null(),
            output: std::ptr::null_mut(),
            counts: Counts::Equal(1),
            priority: 0,
            timeout: None,
            algorithm: None,
            tiling: Tiling::default(),
            wire: None,
        }
    }

    fn calls(roots: impl Iterator<Item = u32>) -> Order {
        let mut order = Order::default();
        for root in roots {
            order.enter(&broadcast(root), 0);
        }
        order
    }

    #[test]
    fn priorities_have_levels_in_the_order_of_their_first_calls() {
        let mut order = Order::default();
        let levels = [0, 10, -1, 10, 5, 0, 6, 7, 9, -100].map(|priority| {
            let call = Call {
                priority,
                ..broadcast(0)
            };
            order.enter(&call, 0).1.level()
        });
        assert_eq!(levels, [0, 1, 2, 1, 3, 0, 3, 3, 1, 2]);
    }

    #[test]
    fn first_difference_is_found_while_both_remember_it() {
        let others = |called: u64| calls((0..called).map(|_| 0)).recent();
        let mine = |called: u64| calls((0..called).map(|n| u32::from(n == 3 || n == 5)));
        let found = mine(10).first_difference(&others(8));
        let (sequence, mine_then, theirs) = found.unwrap();
        assert_eq!(sequence, 3);
        assert!(mine_then.to_string().contains("root 1"), "{mine_then}");
        assert!(theirs.to_string().contains("root 0"), "{theirs}");
        assert_eq!(mine(3).first_difference(&others(8)), None);
        let forgotten = REMEMBERED as u64 + 4;
        assert_eq!(mine(forgotten).first_difference(&others(forgotten)), None);
    }
}
