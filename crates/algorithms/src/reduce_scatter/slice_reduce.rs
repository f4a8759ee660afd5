//! Slice-reduce to blocks: a one-pass reduction of block r of all ranks by rank r, by reads of
//! their memory, for ranks of one host.
//!
//! Symmetric memory: it reads its peers' inputs. Ordinary memory: each rank shows the blocks that
//! others read in its scratch memory. A rank ends when all have signalled that they have read.

use weft_schedule::Schedule;

use crate::cost::expression::{Expr, OTHER_BLOCKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::tree_sum::Combine;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "slice-reduce",
    collective: "reduce-scatter",
    summary: "each rank reduces its block straight from its peers' memory; for one host",
    about: About {
        how: "Rank r reduces block r straight from its peers' inputs (symmetric memory), or from their scratch \
              memory, to which they copy the blocks of others.",
        wins: "All but the smallest messages on one host.",
        source: "",
        quote: "one look at all",
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
    let show = Rounds::signals(1).copying(request.staged(OTHER_BLOCKS));
    let reduction = Rounds::signals(1)
        .crossing(crossing::all_pairs(request) * request.block_share())
        .reading(OTHER_BLOCKS)
        .reducing(reduced);
    Formula::of([show, reduction])
}

fn build(request: &ScheduleRequest) -> Schedule {
    exchange(request, ProgramBuilder::reduce_final)
}

/// Lets each rank combine its block of all ranks.
pub(super) fn exchange(request: &ScheduleRequest, combine: Combine) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let own = block(b.rank());
    if request.ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let shown = (!b.symmetric()).then(|| b.add_scratch(request.ranks));
    if let Some(scratch) = shown {
        for others in b.all_but(b.rank()) {
            b.copy(vec![b.scratch(scratch, others.clone())], b.input(others));
        }
    }
    b.signal_all();
    b.wait_all();
    let srcs = b.in_rank_order(b.input(own.clone()), |b, peer| match shown {
        Some(scratch) => b.scratch_of(peer, scratch, own.clone()),
        None => b.input_of(peer, own.clone()),
    });
    let dsts = vec![b.output(own)];
    combine(&mut b, dsts, srcs);
    b.signal_all();
    b.wait_all();
    b.build()
}
