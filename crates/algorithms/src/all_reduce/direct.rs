//! Direct ("one-shot") all-reduce: an exchange of the vectors between all ranks, and a reduction of
//! all of them on every rank.
//!
//! One latency step, at the price of P - 1 times the message: for small messages.
//! Every rank combines in the order of ranks, so all get the same bits.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{OTHERS, RANKS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "all-reduce",
    summary: "every rank sends all others its vector and reduces all; one step, for small messages",
    about: About {
        how: "Every rank sends its vector to all others and reduces all P of them. Also known as one-shot.",
        wins: "Small messages on few ranks: one step, but the bytes grow with P.",
        source: "",
        quote: "one exchange of everything between all",
    },
    requires: Requirements::REPRODUCIBLE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    Formula::of([Rounds::exchange(1, OTHERS, 1)
        .crossing(crossing::all_pairs(request))
        .reducing(RANKS)])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(1);
    let vector = b.everything();
    let peers = b.peers().into_iter();
    let outboxes = peers.map(|peer| b.outbox(peer, receive, vector.clone()));
    b.copy(outboxes.collect(), b.output(vector.clone()));
    b.signal_all();
    b.wait_all();
    let contributions = b.in_rank_order(b.output(vector.clone()), |b, peer| {
        b.inbox(peer, receive, vector.clone())
    });
    b.reduce_final(vec![b.output(vector)], contributions);
    b.build()
}
