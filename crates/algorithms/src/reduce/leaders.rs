//! Reduce by leaders: inside each unit to its leader, then among the leaders to the root. Any number of levels.
//!
//! Outputs of other ranks than the root stay as they are: a leader keeps its unit's sum in scratch memory.

use weft_schedule::Schedule;

use crate::cost::Cost;
use crate::hierarchy::{self, Inner, Scheme};
use crate::units::Owners;
use crate::{About, Algorithm, Formula, Parts, Request, Requirements, Symmetry, hierarchy_cost};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "reduce",
    summary: "inside each unit to its leader, then among leaders; each unit sends one message",
    about: About {
        how: "`leaders(INSIDE, .., BETWEEN)`: a reduce to one leader inside each unit, then among the leaders \
              to the root, which leads its own unit. The other leaders keep their unit's sum in scratch \
              memory.",
        formulas: &[Formula::any(
            "those of its parts, one after the other",
            "as `INSIDE` and `BETWEEN`",
            "as `INSIDE`",
        )],
        wins: "Several hosts with several ranks each.",
        source: "Jia et al., \"Highly scalable deep learning training system with mixed-precision\", 2018",
    },
    requires: Requirements {
        parts: Parts::Levels {
            inner: SCHEME.inner,
            owners: SCHEME.owners,
            top: "binomial",
            quote: "as Jia et al. 2018, one way: a reduce of n in each unit, then of n among leaders",
        },
        ..Requirements::NONE
    },
    symmetry: Symmetry::None,
    cost,
    textbook: None,
    build,
};

const SCHEME: Scheme = Scheme {
    owners: Owners::Leader,
    inner: &[
        Inner::inward("binomial", &super::binomial::ALGORITHM),
        Inner::inward("slice-reduce", &super::slice_reduce::ALGORITHM),
    ],
};

fn cost(request: &Request) -> Cost {
    hierarchy_cost::cost(request, SCHEME)
}

fn build(request: &Request) -> Schedule {
    hierarchy::build(request, SCHEME)
}
