//! Explanations of a group's choice of algorithms.

use std::collections::HashMap;

use weft_algorithms::MemoryClass;
use weft_kernels::DType;
use weft_schedule::Collective;
use weft_transport::TransportKind;

use super::{Group, closed};
use crate::Error;
use crate::selection::{Choice, Explanation};

impl Group {
    /// Explains the choice for a call: a message of `bytes` (all blocks together), the same count
    /// on every rank, root 0.
    ///
    /// # Errors
    ///
    /// [`Error`] if the group is closed, or the algorithm is unknown.
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

    /// The choices for a collective, by the size of the message, with the same count on every rank.
    ///
    /// # Errors
    ///
    /// [`Error`] if the group is closed.
    pub fn choices(&self, collective: Collective) -> Result<Vec<Choice>, Error> {
        self.check_usable()?;
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.selector.choices(collective)
        })
    }

    /// The number of pairs of ranks that each transport connects.
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
