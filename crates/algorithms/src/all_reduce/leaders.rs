//! All-reduce by leaders: a reduce inside each unit, an all-reduce among the units' leaders, a
//! broadcast inside.
//!
//! Fewer messages between units than any other: for small messages. Only the leaders' links are in
//! use. Any number of levels.
//!
//! Source: Jia et al., "Highly scalable deep learning training system with mixed-precision:
//! training ImageNet in four minutes", 2018.

use weft_schedule::Schedule;

use crate::InsideComponent;
use crate::composition::hierarchy::{self, Scheme};
use crate::composition::hierarchy_cost;
use crate::patterns::units::Owners;
use crate::{
    About, Algorithm, Costs, Parts, Requirements, ScheduleRequest, Symmetry, broadcast, reduce,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "all-reduce",
    summary: "reduce to a leader inside each unit, all-reduce among leaders, broadcast inside; fewest messages between units",
    about: About {
        how: "`leaders(INSIDE, .., BETWEEN)`: a reduce to one leader inside each unit, an all-reduce among the \
              leaders, a broadcast inside. `INSIDE` is `binomial`, `double-tree` or `slice-reduce` (then the broadcast is \
              `mapped`). Only the leaders' links are in use.",
        wins: "Small messages on several hosts with many ranks each: fewest messages between hosts.",
        source: "Jia et al., \"Highly scalable deep learning training system with mixed-precision\", 2018",
        quote: "Jia et al. 2018: a reduce and a broadcast of n in each unit; between h units the all-reduce \
                  of n, by leaders alone",
    },
    requires: Requirements {
        parts: Parts::Levels {
            inner: SCHEME.inner,
            owners: SCHEME.owners,
            top: "ring",
        },
        ..Requirements::NONE
    },
    symmetry: Symmetry::None,
    costs: Costs::Parts(
        |request| hierarchy_cost::cost(request, SCHEME),
        [
            "`INSIDE`'s on the A ranks of a unit, then `BETWEEN`'s on H units",
            "leaders: `BETWEEN`'s on H ranks + that of the root of `INSIDE`'s broadcast",
            "`INSIDE`'s",
        ],
    ),
    build,
};

const SCHEME: Scheme = Scheme {
    owners: Owners::Leader,
    inner: &[
        InsideComponent::both(
            "binomial",
            &reduce::binomial::ALGORITHM,
            &broadcast::binomial::ALGORITHM,
        ),
        InsideComponent::both(
            "double-tree",
            &reduce::double_tree::ALGORITHM,
            &broadcast::double_tree::ALGORITHM,
        ),
        InsideComponent::both(
            "slice-reduce",
            &reduce::slice_reduce::ALGORITHM,
            &broadcast::mapped::ALGORITHM,
        ),
    ],
};

fn build(request: &ScheduleRequest) -> Schedule {
    hierarchy::build(request, SCHEME)
}
