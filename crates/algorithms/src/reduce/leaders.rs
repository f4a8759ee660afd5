//! Reduce by leaders: inside each unit to its leader, then among the leaders to the root, for any
//! number of levels.
//!
//! Outputs of other ranks than the root stay as they are: a leader keeps its unit's sum in scratch
//! memory.

use weft_schedule::Schedule;

use crate::InsideComponent;
use crate::composition::hierarchy::{self, Scheme};
use crate::composition::hierarchy_cost;
use crate::patterns::units::Owners;
use crate::{About, Algorithm, Costs, Parts, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "reduce",
    summary: "inside each unit to its leader, then among leaders; each unit sends one message",
    about: About {
        how: "`leaders(INSIDE, .., BETWEEN)`: a reduce to one leader inside each unit, then among the leaders \
              to the root, which leads its own unit. The other leaders keep their unit's sum in scratch \
              memory.",
        wins: "Several hosts with several ranks each.",
        source: "Jia et al., \"Highly scalable deep learning training system with mixed-precision\", 2018",
        quote: "as Jia et al. 2018, one way: a reduce of n in each unit, then of n among leaders",
    },
    requires: Requirements {
        parts: Parts::Levels {
            inner: SCHEME.inner,
            owners: SCHEME.owners,
            top: "binomial",
        },
        ..Requirements::NONE
    },
    symmetry: Symmetry::None,
    costs: Costs::Parts(
        |request| hierarchy_cost::cost(request, SCHEME),
        [
            "those of its parts, one after the other",
            "as `INSIDE` and `BETWEEN`",
            "as `INSIDE`",
        ],
    ),
    build,
};

const SCHEME: Scheme = Scheme {
    owners: Owners::Leader,
    inner: &[
        InsideComponent::inward("binomial", &super::binomial::ALGORITHM),
        InsideComponent::inward("slice-reduce", &super::slice_reduce::ALGORITHM),
    ],
};

fn build(request: &ScheduleRequest) -> Schedule {
    hierarchy::build(request, SCHEME)
}
