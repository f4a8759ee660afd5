//! Multi-rail all-reduce: reduce-scatter inside each unit, an all-reduce per slice among its owners, all-gather inside.
//!
//! Every rank of a host carries a slice over the network, so all of a host's links ("rails") are in use, and a host
//! sends as many bytes as if it were one rank: 2 (H - 1) / H of the message for H hosts with a ring among them.
//! Any number of levels; units may differ in size.
//!
//! Source: Cho, Finkler, Kumar, Kung, Saxena, Sreedhar, "BlueConnect: Decomposing all-reduce for deep learning on heterogeneous
//! network hierarchy", 2019; the form with one level is the hierarchical all-reduce of Jia et al. 2018 with every rank a master.

use weft_schedule::Schedule;

use crate::cost::Cost;
use crate::hierarchy::{self, Inner, Scheme};
use crate::units::Owners;
use crate::{
    Algorithm, Parts, Request, Requirements, Symmetry, all_gather, hierarchy_cost, reduce_scatter,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "multi-rail",
    collective: "all-reduce",
    summary: "every rank of a unit carries a slice to the other units; inside by one algorithm, between by another",
    requires: Requirements {
        parts: Parts::Levels {
            inner: SCHEME.inner,
            top: "ring",
        },
        ..Requirements::NONE
    },
    symmetry: Symmetry::None,
    cost,
    build,
};

const SCHEME: Scheme = Scheme {
    owners: Owners::Slices,
    inner: &[
        Inner::both(
            "direct",
            &reduce_scatter::direct::ALGORITHM,
            &all_gather::direct::ALGORITHM,
        ),
        Inner::both(
            "ring",
            &reduce_scatter::ring::ALGORITHM,
            &all_gather::ring::ALGORITHM,
        ),
        Inner::both(
            "halving-doubling",
            &reduce_scatter::halving::ALGORITHM,
            &all_gather::doubling::ALGORITHM,
        ),
        Inner::both(
            "slice-reduce",
            &reduce_scatter::slice_reduce::ALGORITHM,
            &all_gather::mapped::ALGORITHM,
        ),
    ],
};

fn cost(request: &Request) -> Cost {
    hierarchy_cost::cost(request, SCHEME)
}

fn build(request: &Request) -> Schedule {
    hierarchy::build(request, SCHEME)
}
