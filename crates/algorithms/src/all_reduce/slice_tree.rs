//! Slice-tree: slice-reduce in the order of a binary tree over the ranks, for sums with the bits of
//! any number of ranks.
//!
//! Neighbours' contributions are added first, then neighbouring pairs', and so on; what is left
//! over at the right end takes part at the next level. On a power of two of ranks, this is the
//! order of halving-doubling.

use weft_schedule::{Grid, Schedule};

use super::slice_reduce;
use crate::cost::expression::OTHER_BLOCKS;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::tree_sum::add_in_tree;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "slice-tree",
    collective: "all-reduce",
    summary: "slice-reduce that adds pair by pair, in a binary tree over the ranks; for one host",
    about: About {
        how: "As slice-reduce, but rank r adds slice r of neighbouring ranks first, then of neighbouring pairs, \
              and so on, through memory of its own. So the order of the sums is that of a binary tree, which \
              more ranks with fewer contributions each, or fewer with more, can have as well.",
        wins: "Never by its time: virtual ranks of torch's wrapper take it for its order.",
        source: "",
        quote: "a direct reduce-scatter and a direct all-gather, each (p - 1) n / p, through memory",
    },
    requires: Requirements::MAPPED,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    slice_reduce::reducing(request, OTHER_BLOCKS * 2)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks > 1 {
        slice_reduce::exchange(&mut b, add_in_tree);
    }
    b.build()
}
