//! Reduce by leaders: inside each unit to its leader, then among the leaders to the root. Any number of levels.
//!
//! Outputs of other ranks than the root stay as they are: a leader keeps its unit's sum in scratch memory.

use weft_schedule::Schedule;

use crate::cost::Cost;
use crate::hierarchy::{self, Inner, Scheme};
use crate::units::Owners;
use crate::{Algorithm, Parts, Request, Requirements, Symmetry, hierarchy_cost};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "reduce",
    summary: "inside each unit to its leader, then among leaders; each unit sends one message",
    requires: Requirements {
        parts: Parts::Levels {
            inner: SCHEME.inner,
            top: "binomial",
        },
        ..Requirements::NONE
    },
    symmetry: Symmetry::None,
    cost,
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
