//! Multi-rail all-reduce: reduce-scatter inside each unit, an all-reduce per slice among its
//! owners, all-gather inside.
//!
//! Every rank of a host carries a slice over the network, so all of a host's links ("rails") are in
//! use, and a host sends as many bytes as if it were one rank: 2 (H - 1) / H of the message for H
//! hosts with a ring among them. Any number of levels; units may differ in size.
//!
//! Source: Cho, Finkler, Kumar, Kung, Saxena, Sreedhar, "BlueConnect: Decomposing all-reduce for
//! deep learning on heterogeneous network hierarchy", 2019; the form with one level is the
//! hierarchical all-reduce of Jia et al. 2018 with every rank a master.

use weft_schedule::Schedule;

use crate::InsideComponent;
use crate::composition::hierarchy::{self, Scheme};
use crate::composition::hierarchy_cost;
use crate::patterns::units::Owners;
use crate::{
    About, Algorithm, Costs, Parts, Requirements, ScheduleRequest, Symmetry, all_gather,
    reduce_scatter,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "multi-rail",
    collective: "all-reduce",
    summary: "every rank of a unit carries a slice to the other units; inside by one algorithm, between by another",
    about: About {
        how: "`multi-rail(INSIDE, .., BETWEEN)`: a reduce-scatter inside each unit of the topology (a host, \
              say), an all-reduce per slice among the ranks that own it, one of each unit, and an all-gather \
              inside. Every rank of a host carries its slice, so all links of a host (\"rails\") are in use \
              at once, and a host sends no more than one rank would in its place. `INSIDE` is `direct`, \
              `ring`, `halving-doubling` or `slice-reduce` (whose phases read the memory of ranks of the \
              same unit); `BETWEEN` is any other all-reduce. With more levels, one `INSIDE` each, innermost \
              first: `multi-rail(slice-reduce, ring, ring)` for hosts in racks. Units of different sizes \
              have cuts at different places; every segment between two cuts has one owner in each unit, and \
              a rank that owns several takes turns between them.",
        wins: "All but the smallest messages on several hosts with several ranks each.",
        source: "Cho et al., \"BlueConnect: decomposing all-reduce for deep learning on heterogeneous network \
              hierarchy\", 2019",
        quote: "Cho et al. 2019: a reduce-scatter and an all-gather of n in each unit of a ranks; between h \
                  units the all-reduce of n / a, by every rank",
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
            "`INSIDE`'s + `BETWEEN`'s on H ranks / A",
            "`INSIDE`'s",
        ],
    ),
    build,
};

const SCHEME: Scheme = Scheme {
    owners: Owners::Slices,
    inner: &[
        InsideComponent::both(
            "direct",
            &reduce_scatter::direct::ALGORITHM,
            &all_gather::direct::ALGORITHM,
        ),
        InsideComponent::both(
            "ring",
            &reduce_scatter::ring::ALGORITHM,
            &all_gather::ring::ALGORITHM,
        ),
        InsideComponent::both(
            "halving-doubling",
            &reduce_scatter::halving::ALGORITHM,
            &all_gather::doubling::ALGORITHM,
        ),
        InsideComponent::both(
            "slice-reduce",
            &reduce_scatter::slice_reduce::ALGORITHM,
            &all_gather::mapped::ALGORITHM,
        ),
    ],
};

fn build(request: &ScheduleRequest) -> Schedule {
    hierarchy::build(request, SCHEME)
}
