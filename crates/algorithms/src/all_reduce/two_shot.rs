//! Two-shot all-reduce: direct reduce-scatter, then direct all-gather.
//!
//! As few bytes as the ring in two latency steps, but every rank talks to all others at once: for
//! medium messages. Each block is combined in the order of ranks.
//!
//! A result needs a receive buffer of its own: its sender does not know whether the receiver has
//! consumed the contribution yet.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "two-shot",
    collective: "all-reduce",
    summary: "direct reduce-scatter, then direct all-gather; two steps, for medium messages",
    about: About {
        how: "Rank r receives block r of all ranks, reduces once, and sends the result to all: a direct \
              reduce-scatter, then a direct all-gather. As few bytes as the ring in two steps, but every \
              rank has P − 1 conversations at once. It is also the parameter server with a shard on every \
              worker.",
        wins: "Medium and large messages where the network bears many conversations at once; the reproducible \
              mode.",
        source: "",
        quote: "a direct reduce-scatter and a direct all-gather, each (p - 1) n / p",
    },
    requires: Requirements::REPRODUCIBLE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let exchange = Rounds::exchange(1, OTHERS, BLOCK)
        .crossing(crossing::all_pairs(request) * request.block_share());
    Formula::of([
        exchange.reducing(1),
        exchange.copying(request.staged(OTHER_BLOCKS)),
    ])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        return b.build();
    }
    let contributions = b.add_receive_buffer(1);
    let results = b.add_staging(1);
    let own = block(b.rank());

    for peer in b.peers() {
        let dst = b.outbox(peer, contributions, block(peer));
        b.copy(vec![dst], b.output(block(peer)));
        b.signal(peer);
    }
    b.wait_all();
    let srcs = b.in_rank_order(b.output(own.clone()), |b, peer| {
        b.inbox(peer, contributions, own.clone())
    });
    b.reduce_final(vec![b.output(own.clone())], srcs);

    // Every peer's contribution has arrived, so every peer has entered.
    let peers = b.peers().into_iter();
    let dsts = peers.map(|peer| b.destination(peer, results, own.clone()));
    b.copy(dsts.collect(), b.output(own));
    b.signal_all();
    for source in b.sources() {
        b.accept(source, results, block(source));
    }
    b.build()
}
