//! Decisions: the plans by which a call runs.

use std::sync::Arc;
use std::time::Duration;

use weft_algorithms::MemoryClass;
use weft_call::{Call, Counts, Op, Tiling};
use weft_kernels::DType;
use weft_program::Plan;
use weft_schedule::{Collective, WireFormat};

use crate::Error;

/// What a call runs by in a lane.
#[derive(Debug)]
pub(crate) struct Decision {
    /// On ordinary memory; why not, where what was asked for runs on symmetric memory only.
    pub(crate) ordinary: Result<Arc<Plan>, Error>,
    /// To use instead if all ranks passed symmetric memory.
    pub(crate) symmetric: Option<Arc<Plan>>,
    /// What the ranks agree by on what only single ones know, where they must.
    pub(crate) agreement: Option<Arc<Plan>>,
}

/// What a decision depends on: candidates, with the class of memory that they use.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct DecisionKey {
    pub(super) collective: Collective,
    pub(super) per_rank: bool,
    pub(super) ordinary: Option<(u32, MemoryClass)>,
    pub(super) symmetric: Option<(u32, MemoryClass)>,
    pub(super) wire: WireFormat,
}

impl Decision {
    /// That of the small all-reduce that goes before.
    pub(crate) fn of_agreement(&self) -> Arc<Decision> {
        let unasked = || Error::Internal("an agreement that is not needed".into());
        Arc::new(Decision {
            ordinary: self.agreement.clone().ok_or_else(unasked),
            symmetric: None,
            agreement: None,
        })
    }

    /// The plans that the call may run by.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        let chosen = self.ordinary.iter().chain(&self.symmetric);
        chosen.chain(&self.agreement)
    }
}

/// The small all-reduce that settles what only single ranks know. See [Note: Agreement] in
/// `execution/operation.rs`.
pub(crate) fn agreement_call(memory: *mut u8, priority: i32, timeout: Option<Duration>) -> Call {
    Call {
        collective: Collective::AllReduce,
        dtype: DType::U64,
        op: Op::Max,
        input: memory,
        output: memory,
        counts: Counts::Equal(2),
        priority,
        timeout,
        algorithm: None,
        tiling: Tiling::default(),
        wire: None,
    }
}
