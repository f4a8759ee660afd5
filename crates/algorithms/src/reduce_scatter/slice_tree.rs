//! Slice-tree to blocks: slice-reduce in the order of a binary tree over the ranks, for sums with
//! the bits of any number of ranks.

use weft_schedule::Schedule;

use super::slice_reduce;
use crate::cost::expression::OTHER_BLOCKS;
use crate::patterns::tree_sum::add_in_tree;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "slice-tree",
    collective: "reduce-scatter",
    summary: "slice-reduce that adds pair by pair, in a binary tree over the ranks; for one host",
    about: About {
        how: "As slice-reduce, but rank r adds block r of neighbouring ranks first, then of neighbouring pairs, \
              and so on, through memory of its own: in the order of the all-reduce slice-tree.",
        wins: "Never by its time: divided updates with virtual ranks take it for its order.",
        source: "",
        quote: "one look at all",
    },
    requires: Requirements::MAPPED_ANY_SIZES,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    slice_reduce::reducing(request, OTHER_BLOCKS * 2)
}

fn build(request: &ScheduleRequest) -> Schedule {
    slice_reduce::exchange(request, add_in_tree)
}
