//! Gather-to-root all-reduce: sends of all vectors to rank 0, their reduction there, and sends of
//! the result to all ranks.
//!
//! The naive way, kept as the baseline of comparisons: rank 0 moves P - 1 times the message in each
//! direction. It combines in the order of ranks.

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::expression::{OTHERS, RANKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

const ROOT: Rank = 0;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "gather-to-root",
    collective: "all-reduce",
    summary: "rank 0 reduces all vectors and sends the result to all; a baseline",
    about: About {
        how: "Every rank sends everything to rank 0, which reduces once, in the order of ranks, and sends the result \
              to all.",
        wins: "Nowhere: it is the naive baseline.",
        source: "",
        quote: "all to one and back",
    },
    requires: Requirements::REPRODUCIBLE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let edges = request.others(ROOT).map(|rank| (rank, ROOT));
    let exchange = Rounds::signals(1).crossing(crossing::of(request, edges));
    let gather = exchange.receiving(OTHERS).reducing(RANKS);
    let give_back = exchange.sending(OTHERS, 1).copying(request.staged(1));
    Formula::of([gather, give_back])
        .all_send(OTHERS * 2)
        .sent_described("rank 0: {}")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(1);
    let results = (!b.symmetric()).then_some(receive);
    let vector = b.everything();
    let own = b.output(vector.clone());
    if request.rank != ROOT {
        b.copy(vec![b.outbox(ROOT, receive, vector.clone())], own);
        b.signal(ROOT);
        b.accept(ROOT, results, vector);
        return b.build();
    }
    b.wait_all();
    let srcs = b.in_rank_order(own.clone(), |b, peer| {
        b.inbox(peer, receive, vector.clone())
    });
    b.reduce_final(vec![own.clone()], srcs);
    let peers = b.peers().into_iter();
    let dsts = peers.map(|peer| b.destination(peer, results, vector.clone()));
    b.copy(dsts.collect(), own);
    b.signal_all();
    b.build()
}
