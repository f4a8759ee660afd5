//! Broadcast by leaders: from the root to one leader of each unit, then inside the units, for any
//! number of levels.

use weft_schedule::Schedule;

use crate::InsideComponent;
use crate::composition::hierarchy::{self, Scheme};
use crate::composition::hierarchy_cost;
use crate::patterns::units::Owners;
use crate::{About, Algorithm, Costs, Parts, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "broadcast",
    summary: "among one leader of each unit, then inside; each unit receives the message once",
    about: About {
        how: "`leaders(INSIDE, .., BETWEEN)`: from the root to one leader of each unit, then inside the units.",
        wins: "Several hosts with several ranks each.",
        source: "Jia et al., \"Highly scalable deep learning training system with mixed-precision\", 2018",
        quote: "as Jia et al. 2018, one way: a broadcast of n among leaders, then of n in each unit",
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
        InsideComponent::outward("binomial", &super::binomial::ALGORITHM),
        InsideComponent::outward("mapped", &super::mapped::ALGORITHM),
    ],
};

fn build(request: &ScheduleRequest) -> Schedule {
    hierarchy::build(request, SCHEME)
}
