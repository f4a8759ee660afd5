//! Helpers shared by the simulator's tests.

use weft_schedule::Collective;

/// Every collective, with the root in the middle.
pub(crate) fn collectives(ranks: u32) -> Vec<Collective> {
    let root = ranks / 2;
    vec![
        Collective::AllReduce,
        Collective::Reduce { root },
        Collective::Broadcast { root },
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::Barrier,
    ]
}
