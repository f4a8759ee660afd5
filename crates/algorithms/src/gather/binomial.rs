//! Binomial gather, with the blocks of the ranks below a rank collected there and sent on together.
//!
//! The ranks below a rank are its neighbours, so their blocks are side by side: one message. Few
//! messages for the root, at the price of handing blocks on: for small blocks of equal size.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, Expr, FLOOR_LOG, OTHER_BLOCKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::range_tree::{TreePosition, along_ranges, crossing, depth};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collective: "gather",
    summary: "blocks are collected along a tree; few messages, any transport, for small blocks",
    about: About {
        how: "Each rank collects the blocks of the ranks below it in a tree, which are its neighbours, and \
              sends them on as one message. The root receives ⌈log₂ P⌉ messages. Equal counts.",
        wins: "Small blocks on many ranks.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, \
              practice, and experience\", 2007",
        quote: "Chan et al. 2007, minimum spanning tree gather: ⌈log2 p⌉ rounds, (p - 1) n / p to the root",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let rounds = f64::from(depth(request.ranks));
    let rest = Rounds::signals(FLOOR_LOG - 1)
        .receiving(OTHER_BLOCKS / FLOOR_LOG)
        .crossing(crossing(request, request.root()) / rounds)
        .copying(Expr::from(1) / FLOOR_LOG);
    // Each rank sends once; most, the one with half of the ranks below it.
    let first = rest.lasting(1).sending(1, BLOCK * (request.ranks / 2));
    Formula::of([first, rest])
        .all_send(along_ranges(request.ranks))
        .sent_described("about N / 2 (the root receives N (P − 1) / P)")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let ranks = request.ranks;
    let mut b = ProgramBuilder::new(request, Grid::Equal(ranks));
    let own = block(b.rank());
    if ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let receive = b.add_receive_buffer(ranks / 2);
    let collected = b.add_scratch(ranks / 2);
    let TreePosition {
        parent,
        range,
        children,
    } = TreePosition::of(ranks, request.root(), request.rank);
    let collected = collected.starting_at(range.start);
    if let (Some(parent), true) = (parent, children.is_empty()) {
        b.copy(vec![b.outbox(parent, receive, own.clone())], b.input(own));
        b.signal(parent);
        return b.build();
    }
    let place = |b: &ProgramBuilder, chunks| match parent {
        Some(_) => b.scratch(collected, chunks),
        None => b.output(chunks),
    };
    b.copy(vec![place(&b, own.clone())], b.input(own));
    // The smallest subtree is the first to be complete.
    for (child, blocks) in children.into_iter().rev() {
        b.wait(child);
        let landed = b.inbox(child, receive, blocks.clone());
        b.copy(vec![place(&b, blocks)], landed);
    }
    if let Some(parent) = parent {
        b.copy(
            vec![b.outbox(parent, receive, range.clone())],
            b.scratch(collected, range),
        );
        b.signal(parent);
    }
    b.build()
}
