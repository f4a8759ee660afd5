//! Explanations of a group's choices.

use weft_algorithms::MemoryClass;
use weft_kernels::DType;
use weft_schedule::Collective;

use super::{Group, closed};
use crate::Error;
use crate::selection::Explanation;

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
}
