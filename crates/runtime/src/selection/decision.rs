//! Decisions: the plans of a call.

use std::sync::Arc;
use std::time::Duration;

use weft_algorithms::MemoryClass;
use weft_call::{Call, Counts, Op, Tiling};
use weft_kernels::DType;
use weft_program::Plan;
use weft_schedule::{Collective, WireFormat};

use crate::Error;

/// The plans of a call in a lane.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The plan for ordinary memory; the error if the requested one needs symmetric memory.
    pub(crate) ordinary: Result<Arc<Plan>, Error>,
    /// The plan that is used instead if all ranks passed symmetric memory.
    pub(crate) symmetric: Option<Arc<Plan>>,
    /// The plan of the agreement before the call, if it needs one.
    pub(crate) agreement: Option<Arc<Plan>>,
}

/// The key of a decision: candidates, with the class of memory that they use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DecisionKey {
    pub(super) collective: Collective,
    pub(super) per_rank: bool,
    pub(super) ordinary: Option<(u32, MemoryClass)>,
    pub(super) symmetric: Option<(u32, MemoryClass)>,
    pub(super) wire: WireFormat,
}

impl Decision {
    /// The decision for the small all-reduce before the call.
    pub(crate) fn of_agreement(&self) -> Arc<Decision> {
        let not_needed = || Error::Internal("an agreement that is not needed".into());
        Arc::new(Decision {
            ordinary: self.agreement.clone().ok_or_else(not_needed),
            symmetric: None,
            agreement: None,
        })
    }

    /// All plans that the call may run by.
    pub(crate) fn plans(&self) -> impl Iterator<Item = &Arc<Plan>> {
        let chosen = self.ordinary.iter().chain(&self.symmetric);
        chosen.chain(&self.agreement)
    }
}

/// The small all-reduce that determines values which only single ranks know. See
/// [Note: Agreement of values] in `execution/operation.rs`.
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
