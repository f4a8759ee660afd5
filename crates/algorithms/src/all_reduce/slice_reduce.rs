//! Slice-reduce: a one-pass reduction of slice r of all ranks by rank r, by reads of their memory,
//! for ranks of one host.
//!
//! Symmetric memory: the result is written to all ranks' outputs in the same pass; nothing is
//! staged.
//!
//! Ordinary memory: the same on scratch memory, to which each rank first copies what the others
//! will read (all but its own slice), and from which it copies the results that the others have
//! written there. A result replaces its contribution, in cache lines that the reducing rank has
//! just fetched: cheaper than memory of its own, which all would have to fetch.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, Expr, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::tree_sum::Combine;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "slice-reduce",
    collective: "all-reduce",
    summary: "each rank reduces one slice straight from its peers' memory; for one host",
    about: About {
        how: "Rank r reduces slice r of all ranks in a single pass over their memory. With symmetric memory it \
              writes the result into all outputs in the same pass, between two rounds of signals: each byte \
              is read once and written once. With ordinary memory each rank first copies all slices but its own, which the others will read, to its scratch memory, and copies the results from there \
              at the end.",
        wins: "All but the smallest messages on one host.",
        source: "",
        quote: "a direct reduce-scatter and a direct all-gather, each (p - 1) n / p, through memory",
    },
    requires: Requirements::MAPPED_REPRODUCIBLE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    reducing(request, 1)
}

/// The formula where this share is combined.
pub(super) fn reducing(request: &ScheduleRequest, reduced: impl Into<Expr>) -> Formula {
    let staged = request.staged(OTHER_BLOCKS);
    let show = Rounds::signals(1).copying(staged);
    let pass = Rounds::exchange(1, OTHERS, BLOCK)
        .crossing(2.0 * crossing::all_pairs(request) * request.block_share())
        .reading(OTHER_BLOCKS)
        .reducing(reduced)
        .copying(staged);
    Formula::of([show, pass])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks > 1 {
        exchange(&mut b, ProgramBuilder::reduce_final);
    }
    b.build()
}

/// Lets each rank combine its slice of all ranks.
pub(super) fn exchange(b: &mut ProgramBuilder, combine: Combine) {
    match b.symmetric() {
        true => in_place(b, combine),
        false => staged(b, combine),
    }
}

fn in_place(b: &mut ProgramBuilder, combine: Combine) {
    let slices = || (0..b.ranks()).map(|rank| b.output_of(rank, block(b.rank())));
    let (dsts, srcs) = (slices().collect(), slices().collect());
    b.signal_all();
    b.wait_all();
    combine(b, dsts, srcs);
    b.signal_all();
    b.wait_all();
}

fn staged(b: &mut ProgramBuilder, combine: Combine) {
    let scratch = b.add_scratch(b.ranks());
    let own = block(b.rank());
    for others in b.all_but(b.rank()) {
        b.copy(vec![b.scratch(scratch, others.clone())], b.output(others));
    }
    b.signal_all();
    b.wait_all();
    let slices = || {
        b.in_rank_order(b.output(own.clone()), |b, peer| {
            b.scratch_of(peer, scratch, own.clone())
        })
    };
    let (dsts, srcs) = (slices(), slices());
    combine(b, dsts, srcs);
    b.signal_all();
    b.wait_all();
    for others in b.all_but(b.rank()) {
        b.copy(vec![b.output(others.clone())], b.scratch(scratch, others));
    }
}
