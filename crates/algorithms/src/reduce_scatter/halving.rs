//! Recursive-halving reduce-scatter: an exchange of blocks between opposite ranks of two halves,
//! then the same within each half.
//!
//! As few bytes as the ring in ⌈log2 P⌉ steps. Any number of ranks: see `halving.rs`. Partial sums
//! are kept in scratch memory, since inputs are not written.

use weft_schedule::{Grid, Schedule};

use crate::cost::Cost;
use crate::cost::expression::OTHER_BLOCKS;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::halving::{cost_down, divisions, steps};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "halving",
    collective: "reduce-scatter",
    summary: "halves of the ranks exchange the blocks of each other, then quarters ...; few steps and bytes, any \
              transport",
    about: About {
        how: "The ranks are divided into two halves; each rank sends the other half's blocks to its partner there \
              and reduces the received ones; then the same within each half. Where a half has one rank more, that rank \
              sends to one that has a partner already; up to 81/64 of a power of two that costs no step.",
        wins: "Small and medium messages on many ranks.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.4, for powers of two",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.4: log2 p rounds, (p - 1) n / p, for a power \
              of two; as many bytes for others",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Exclusive,
    costs: Costs::Counted(cost, formula),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    cost_down(request)
}

fn formula(request: &ScheduleRequest) -> Formula {
    Formula::sum(steps(request.ranks), OTHER_BLOCKS)
        .steps_described("⌈log₂ P⌉ for powers of two, else at most as many")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        b.copy(vec![b.output(0..1)], b.input(0..1));
        return b.build();
    }
    let half = request.ranks.div_ceil(2);
    let receive = b.add_receive_buffer(half);
    let partial = b.add_scratch(half);
    let divisions = divisions(request.ranks, request.rank);
    let partial = partial.starting_at(divisions[0].own.start);
    let mut in_input = true;
    for division in divisions {
        let (kept, sent) = (division.own, division.other);
        let src = match in_input {
            true => b.input(sent.clone()),
            false => b.scratch(partial, sent.clone()),
        };
        b.copy(vec![b.outbox(division.facing, receive, sent)], src);
        b.signal(division.facing);
        if division.faced_by.is_empty() {
            continue;
        }
        let own = match in_input {
            true => b.input(kept.clone()),
            false => b.scratch(partial, kept.clone()),
        };
        let mut srcs = vec![(b.rank(), own)];
        for peer in division.faced_by {
            b.wait(peer);
            srcs.push((peer, b.inbox(peer, receive, kept.clone())));
        }
        srcs.sort_by_key(|(rank, _)| *rank);
        let srcs = srcs.into_iter().map(|(_, slice)| slice).collect();
        if kept.len() == 1 {
            b.reduce_final(vec![b.output(kept)], srcs);
        } else {
            b.reduce(b.scratch(partial, kept), srcs);
            in_input = false;
        }
    }
    b.build()
}
