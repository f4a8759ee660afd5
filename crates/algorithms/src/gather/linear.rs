//! Linear gather: a send of every rank's block to the root.

use weft_schedule::Schedule;

use crate::cost::expression::{BLOCK, OTHER_BLOCKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collective: "gather",
    summary: "every rank sends its block to the root; one step, any transport",
    about: About {
        how: "Every rank sends its block to the root. With symmetric memory they write into the root's output, all \
              in one step.",
        wins: "Large blocks; with a size per rank.",
        source: "",
        quote: "all to one",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let root = request.root();
    let to_root = request.others(root).map(|rank| (rank, root));
    let exchange = Rounds::signals(1)
        .sending(1, BLOCK)
        .receiving(OTHER_BLOCKS)
        .crossing(crossing::of(request, to_root) * request.block_share())
        .copying(request.staged(OTHER_BLOCKS) + BLOCK);
    Formula::of([request.entering(), exchange]).all_send(OTHER_BLOCKS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let staging = b.add_staging(1);
    let root = request.root();
    let own = block(b.rank());
    if request.rank != root {
        b.await_open(root);
        b.deliver(root, b.input(own.clone()), staging, own);
        return b.build();
    }
    for source in b.sources() {
        b.open_to(source);
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
