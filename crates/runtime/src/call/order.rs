//! The operations of a group in the order of their calls, which is the same on all ranks.

use std::collections::VecDeque;

use super::{Call, Fingerprint};

/// So many finished operations are remembered, for peers that ask.
const REMEMBERED: usize = 64;

/// Numbers operations, and remembers what they were.
#[derive(Default, Debug)]
pub(crate) struct Order {
    next: u64,
    history: u64,
    remembered: VecDeque<(u64, Fingerprint)>,
}

impl Order {
    /// The number of the operation that this call becomes, and its fingerprint. `plan` is 0 while it is not settled.
    pub(crate) fn enter(&mut self, call: &Call, plan: u16) -> (u64, Fingerprint) {
        let fingerprint = Fingerprint::new(call, self.history).with_plan(plan);
        self.history = fingerprint.extended();
        let sequence = self.next;
        self.next += 1;
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back((sequence, fingerprint));
        (sequence, fingerprint)
    }

    /// Takes note of the plan of an operation that was entered without.
    pub(crate) fn settle(&mut self, sequence: u64, fingerprint: Fingerprint) {
        if let Some(entry) = self
            .remembered
            .iter_mut()
            .rev()
            .find(|(s, _)| *s == sequence)
        {
            entry.1 = fingerprint;
        }
    }

    /// What was called as operation `sequence`, if that is still known.
    pub(crate) fn recall(&self, sequence: u64) -> Option<Fingerprint> {
        let found = self.remembered.iter().find(|(s, _)| *s == sequence);
        found.map(|(_, fingerprint)| *fingerprint)
    }
}
