//! Direct all-to-all: sends from every rank to all others at the same time, then the receives.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "all-to-all",
    summary: "every rank sends to all others; one step, any transport, for small messages",
    about: About {
        how: "The exchanges of pairwise without waiting in between.",
        wins: "Small messages on few ranks.",
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
        b.deliver(peer, b.input(block(peer)), staging, own.clone());
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
