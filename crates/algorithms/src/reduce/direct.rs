//! Direct reduce: sends of all vectors to the root, and one reduction there in the order of ranks.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{OTHERS, RANKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "reduce",
    summary: "every rank sends its vector to the root, which reduces once; one step, for small messages",
    about: About {
        how: "Every rank sends its vector to the root, which reduces once, in the order of ranks. The root \
              receives N (P − 1).",
        wins: "Small messages on few ranks; the reproducible mode.",
        source: "",
        quote: "all to one",
    },
    requires: Requirements::REPRODUCIBLE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let root = request.root();
    let to_root = request.others(root).map(|rank| (rank, root));
    let gather = Rounds::signals(1)
        .sending(1, 1)
        .receiving(OTHERS)
        .crossing(crossing::of(request, to_root))
        .reducing(RANKS);
    Formula::of([gather]).all_send(OTHERS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(1);
    let (root, vector) = (request.root(), b.everything());
    let own = b.output(vector.clone());
    if request.rank != root {
        b.copy(vec![b.outbox(root, receive, vector)], own);
        b.signal(root);
        return b.build();
    }
    b.wait_all();
    let srcs = b.in_rank_order(own.clone(), |b, peer| {
        b.inbox(peer, receive, vector.clone())
    });
    b.reduce_final(vec![own], srcs);
    b.build()
}
