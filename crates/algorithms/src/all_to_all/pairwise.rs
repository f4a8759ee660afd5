//! Pairwise all-to-all, with a send from rank r to rank r + k and a receive from rank r - k in
//! round k.
//!
//! Each rank sends one block and receives one block at a time, so that no receiver is flooded.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "pairwise",
    collective: "all-to-all",
    summary: "in round k to rank r + k, from rank r - k; any transport, for large messages",
    about: About {
        how: "In round k rank r sends to rank r + k and waits for rank r − k. Every rank receives from one \
              other at a time, so no link is flooded.",
        wins: "Large messages; with a size per pair.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.3",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.3: p - 1 rounds, (p - 1) n / p",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let crossing = crossing::all_pairs(request) * request.block_share();
    let exchange = Rounds::exchange(OTHERS, 1, BLOCK)
        .crossing(crossing / f64::from(request.ranks - 1))
        .copying((request.staged(OTHER_BLOCKS) + BLOCK) / OTHERS);
    Formula::of([request.entering(), exchange])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let staging = b.add_staging(1);
    let own = block(b.rank());
    for source in b.sources() {
        b.open_to(source);
    }
    b.copy(vec![b.output(own.clone())], b.input(own.clone()));
    for peer in b.peers() {
        b.await_open(peer);
    }
    for (to, from) in b.peers().into_iter().zip(b.sources()) {
        b.deliver(to, b.input(block(to)), staging, own.clone());
        b.accept(from, staging, block(from));
    }
    b.build()
}
