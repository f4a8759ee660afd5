//! Explanations of a group's choices.

use std::collections::HashMap;

use weft_algorithms::MemoryClass;
use weft_kernels::DType;
use weft_schedule::Collective;
use weft_transport::TransportKind;

use super::{Group, closed};
use crate::Error;
use crate::selection::{Choice, Explanation};

impl Group {
    /// Tells what a call would run by: a message of `bytes` (all blocks together), the same count
    /// on every rank, root 0.
    pub fn explain(
        &self,
        collective: Collective,
        bytes: u64,
        dtype: DType,
        memory: MemoryClass,
    ) -> Result<Explanation, Error> {
        self.check_usable()?;
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.selector.explain(collective, bytes, dtype, memory)
        })
    }

    /// What calls of a collective run by, by the size of the message, the same count on every rank.
    pub fn choices(&self, collective: Collective) -> Result<Vec<Choice>, Error> {
        self.check_usable()?;
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.selector.choices(collective)
        })
    }

    /// How many pairs of its ranks are joined by each transport.
    pub fn pairs(&self) -> HashMap<TransportKind, u64> {
        let mut pairs = HashMap::new();
        for a in 0..self.size() {
            for b in a + 1..self.size() {
                *pairs.entry(self.meeting.kind(a, b)).or_default() += 1;
            }
        }
        pairs
    }
}
