//! Slice-reduce to one root: a one-pass reduction of slice r of all ranks by rank r, by reads of
//! their memory, for ranks of one host.
//!
//! Symmetric memory: each rank writes its slice of the result into the root's output.
//!
//! Ordinary memory: each rank first copies the slices that the others will read to its scratch
//! memory, where its slice of the result appears too; the root collects the slices. A rank ends
//! when all have signalled that they have read.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, RANKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "slice-reduce",
    collective: "reduce",
    summary: "each rank reduces one slice straight from its peers' memory; for one host",
    about: About {
        how: "As for all-reduce, except that only the root receives the slices of the result: written by their \
              owners with symmetric memory, collected by the root otherwise.",
        wins: "All but the smallest messages on one host.",
        source: "",
        quote: "a direct reduce-scatter, (p - 1) n / p, through memory; then the root alone collects",
    },
    requires: Requirements::MAPPED_REPRODUCIBLE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let (root, share) = (request.root(), request.block_share());
    let to_root = request.others(root).map(|rank| (rank, root));
    let collected = crossing::of(request, to_root) * share;
    let slices = crossing::all_pairs(request) * share;
    let reduction = Rounds::signals(1).reading(OTHER_BLOCKS).reducing(1);
    if request.symmetric() {
        let pass = reduction
            .sending(1, BLOCK)
            .receiving(OTHER_BLOCKS)
            .crossing(slices + collected);
        return Formula::of([Rounds::signals(1), pass]).all_send(OTHER_BLOCKS);
    }
    let show = Rounds::signals(1).copying(OTHER_BLOCKS);
    let collect = Rounds::signals(1).crossing(collected).reading(OTHER_BLOCKS);
    Formula::of([show, reduction.crossing(slices), collect])
        .all_read((RANKS + 1) * OTHER_BLOCKS)
        .read_described("root: {}")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        return b.build();
    }
    if b.symmetric() {
        in_place(&mut b, request.root());
    } else {
        staged(&mut b, request.root());
    }
    b.build()
}

fn in_place(b: &mut ProgramBuilder, root: u32) {
    let own = block(b.rank());
    b.signal_all();
    b.wait_all();
    let srcs = b.in_rank_order(b.output(own.clone()), |b, peer| {
        b.output_of(peer, own.clone())
    });
    b.reduce_final(vec![b.output_of(root, own)], srcs);
    b.signal_all();
    b.wait_all();
}

fn staged(b: &mut ProgramBuilder, root: u32) {
    let scratch = b.add_scratch(b.ranks());
    let own = block(b.rank());
    for others in b.all_but(b.rank()) {
        b.copy(vec![b.scratch(scratch, others.clone())], b.output(others));
    }
    b.signal_all();

    b.wait_all();
    let srcs = b.in_rank_order(b.output(own.clone()), |b, peer| {
        b.scratch_of(peer, scratch, own.clone())
    });
    let result = if b.rank() == root {
        b.output(own)
    } else {
        b.scratch(scratch, own)
    };
    b.reduce_final(vec![result], srcs);
    // The reduction is done, hence everything that this rank reads of its peers, unless it is the
    // root.
    b.signal_all();

    if b.rank() != root {
        b.wait_all();
        b.wait(root);
        return;
    }
    for owner in b.sources() {
        b.wait(owner);
        let slice = b.scratch_of(owner, scratch, block(owner));
        b.copy(vec![b.output(block(owner))], slice);
        b.signal(owner);
    }
}
