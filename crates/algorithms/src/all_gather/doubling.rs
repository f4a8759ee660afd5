//! Recursive-doubling all-gather: exchanges between opposite ranks of two neighbouring groups,
//! which are merged afterwards.
//!
//! As few bytes as the ring in ⌈log2 P⌉ steps. Any number of ranks: see `halving.rs`.

use weft_schedule::{Grid, Schedule};

use crate::cost::Cost;
use crate::cost::expression::{Expr, OTHERS};
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::halving::{cost_up, gather_up, open_up, steps};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "doubling",
    collective: "all-gather",
    summary: "neighbours exchange blocks, then pairs, then fours ...; few steps and bytes, any transport",
    about: About {
        how: "Two neighbours exchange their blocks, two neighbouring pairs exchange theirs, and so on: opposite \
              ranks of two groups exchange the groups' blocks. Where a group has one rank more than the \
              other, one of the other's ranks sends twice; up to 81/64 of a power of two that costs no step.",
        wins: "Small and medium messages on many ranks.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.1, for powers of two",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.1: log2 p rounds, (p - 1) n / p, for a power \
              of two; for others the first rank of an upper half sends its half's blocks twice, once",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Exclusive,
    costs: Costs::Counted(cost, formula),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let mut cost = cost_up(request);
    if let Some(first) = cost.phases.first_mut() {
        first.copied += request.block_share();
    }
    let entry = Cost::of(request, [request.entry()]);
    Cost {
        phases: [entry.phases, cost.phases].concat(),
    }
}

fn formula(request: &ScheduleRequest) -> Formula {
    let ranks = request.ranks.into();
    let steps = steps(request.ranks) + request.entries();
    Formula::sum(steps, Expr::parts(most_blocks(ranks), ranks))
        .all_send(OTHERS)
        .steps_described(match request.symmetric() {
            true => "1 + ⌈log₂ P⌉ for powers of two, else at most as many",
            false => "⌈log₂ P⌉ for powers of two, else at most as many",
        })
        .sent_described("N (P − 1) / P for powers of two, else more")
}

/// The blocks that the busiest rank of `p` sends in a recursive doubling.
fn most_blocks(p: u64) -> u64 {
    if p == 1 {
        return 0;
    }
    let (lower, upper) = (p.div_ceil(2), p / 2);
    // A rank's sends within its half do not depend on its partner in the other one.
    let first = |half: u64| {
        std::iter::successors(Some(half), |n| Some(n.div_ceil(2)))
            .take_while(|n| *n > 1)
            .map(|n| n.div_ceil(2))
            .sum::<u64>()
    };
    let twice = if lower > upper { 2 * upper } else { upper };
    (lower + most_blocks(lower))
        .max(upper + most_blocks(upper))
        .max(twice + first(upper))
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    let staging = b.add_staging(request.ranks.div_ceil(2));
    let own = block(b.rank());
    b.copy(vec![b.output(own.clone())], b.input(own));
    open_up(&mut b);
    gather_up(&mut b, staging, true);
    b.build()
}
