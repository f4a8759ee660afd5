//! Direct all-gather: puts of every rank's block to all other ranks, in one pass over the block.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "all-gather",
    summary: "every rank sends all others its block; one step, any transport",
    about: About {
        how: "Every rank writes its block to all others, in one pass over it.",
        wins: "Small messages; with a size per rank.",
        source: "",
        quote: "one exchange between all",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let exchange = Rounds::exchange(1, OTHERS, BLOCK)
        .crossing(crossing::all_pairs(request) * request.block_share())
        .copying(request.staged(OTHER_BLOCKS) + BLOCK);
    Formula::of([request.entering(), exchange])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let staging = b.add_staging(1);
    let own = block(b.rank());
    for source in b.sources() {
        b.open_to(source);
    }
    for peer in b.peers() {
        b.await_open(peer);
    }
    let peers = b.peers().into_iter();
    let mut dsts: Vec<_> = peers
        .map(|peer| b.destination(peer, staging, own.clone()))
        .collect();
    dsts.push(b.output(own.clone()));
    b.copy(dsts, b.input(own));
    b.signal_all();
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
