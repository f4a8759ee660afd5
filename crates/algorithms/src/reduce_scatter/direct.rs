//! Direct reduce-scatter: sends of block r from all ranks to rank r, and one reduction there in the
//! order of ranks.
//!
//! Symmetric memory: it reads the blocks in its peers' inputs; a rank ends when all have signalled
//! that they have read.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "reduce-scatter",
    summary: "every rank sends each block to its owner, which reduces once; one step, any transport",
    about: About {
        how: "Rank r receives block r of all ranks, or reads it in their inputs (symmetric memory), and reduces \
              once.",
        wins: "Small and medium messages; with a size per rank; the reproducible mode.",
        source: "",
        quote: "one exchange between all; with symmetric memory a look at all",
    },
    requires: Requirements::REPRODUCIBLE_ANY_SIZES,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let crossing = crossing::all_pairs(request) * request.block_share();
    if request.symmetric() {
        let pass = Rounds::signals(1).reading(OTHER_BLOCKS);
        let pass = pass.crossing(crossing).reducing(1);
        return Formula::of([Rounds::signals(1), pass]);
    }
    let exchange = Rounds::exchange(1, OTHERS, BLOCK);
    Formula::of([exchange.crossing(crossing).reducing(1)])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    if request.ranks == 1 {
        b.copy(vec![b.output(0..1)], b.input(0..1));
    } else if b.symmetric() {
        in_place(&mut b);
    } else {
        staged(&mut b);
    }
    b.build()
}

fn in_place(b: &mut ProgramBuilder) {
    let own = block(b.rank());
    b.signal_all();
    b.wait_all();
    let srcs = b.in_rank_order(b.input(own.clone()), |b, peer| {
        b.input_of(peer, own.clone())
    });
    b.reduce_final(vec![b.output(own)], srcs);
    b.signal_all();
    b.wait_all();
}

fn staged(b: &mut ProgramBuilder) {
    let receive = b.add_receive_buffer(1);
    let own = block(b.rank());
    for peer in b.peers() {
        let dst = b.outbox(peer, receive, block(peer));
        b.copy(vec![dst], b.input(block(peer)));
        b.signal(peer);
    }
    b.wait_all();
    let srcs = b.in_rank_order(b.input(own.clone()), |b, peer| {
        b.inbox(peer, receive, own.clone())
    });
    b.reduce_final(vec![b.output(own)], srcs);
}
