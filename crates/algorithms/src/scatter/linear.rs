//! Linear scatter: a send of each rank's block from the root.
//!
//! Symmetric memory: the ranks read their blocks from the root's input, all in one step; the root
//! ends when all have signalled that they have read.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collective: "scatter",
    summary: "the root sends every rank its block; one step, any transport",
    about: About {
        how: "The root sends every rank its block. With symmetric memory they read from the root's input, all in one \
              step.",
        wins: "Large blocks; with a size per rank.",
        source: "",
        quote: "one to all; with symmetric memory all look at one",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let root = request.root();
    let from_root = request.others(root).map(|rank| (root, rank));
    let pass = Rounds::signals(1)
        .crossing(crossing::of(request, from_root) * request.block_share())
        .copying(BLOCK);
    if request.symmetric() {
        let phases = [Rounds::signals(1), pass.reading(BLOCK)];
        return Formula::of(phases).all_read(OTHER_BLOCKS);
    }
    Formula::of([pass.sending(OTHERS, BLOCK).receiving(BLOCK)])
        .all_send(OTHER_BLOCKS)
        .sent_described("root: {}")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    if b.symmetric() {
        in_place(&mut b, request.root());
    } else {
        staged(&mut b, request.root());
    }
    b.build()
}

fn in_place(b: &mut ProgramBuilder, root: u32) {
    let own = block(b.rank());
    if b.rank() == root {
        b.signal_all();
        b.copy(vec![b.output(own.clone())], b.input(own));
        b.wait_all();
    } else {
        b.wait(root);
        b.copy(vec![b.output(own.clone())], b.input_of(root, own));
        b.signal(root);
    }
}

fn staged(b: &mut ProgramBuilder, root: u32) {
    let staging = b.add_staging(1);
    let own = block(b.rank());
    if b.rank() != root {
        b.accept(root, staging, own);
        return;
    }
    for peer in b.peers() {
        b.deliver(peer, b.input(block(peer)), staging, block(peer));
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
}
