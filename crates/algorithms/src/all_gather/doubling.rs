//! Recursive doubling: opposite ranks of two neighbouring groups exchange the blocks of their groups; then the two are one group.
//!
//! As few bytes as the ring in ⌈log2 P⌉ steps. Any number of ranks: see `halving.rs`.

use weft_schedule::{Grid, Schedule};

use crate::builder::{Builder, block};
use crate::cost::Cost;
use crate::halving::{cost_up, gather_up, open_up};
use crate::{About, Algorithm, Formula, Request, Requirements, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "doubling",
    collective: "all-gather",
    summary: "neighbours exchange blocks, then pairs, then fours ...; few steps and bytes, any transport",
    about: About {
        how: "Two neighbours exchange their blocks, two neighbouring pairs exchange theirs, and so on: opposite \
              ranks of two groups exchange what the groups have. Where a group has one rank more than the \
              other, one of the other's ranks sends twice; up to 5/4 of a power of two that costs no step.",
        formulas: &[
            Formula::ordinary(
                "⌈log₂ P⌉ for powers of two, else at most as many",
                "N (P − 1) / P for powers of two, else more",
                "",
            ),
            Formula::symmetric(
                "1 + ⌈log₂ P⌉ for powers of two, else at most as many",
                "N (P − 1) / P for powers of two, else more",
                "",
            ),
        ],
        wins: "Small and medium messages on many ranks.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.1, for powers of two",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Exclusive,
    cost,
    build,
};

fn cost(request: &Request) -> Cost {
    let mut cost = cost_up(request);
    if let Some(first) = cost.phases.first_mut() {
        first.copied += request.block_share();
    }
    let entry = Cost::of(request, [request.entry()]);
    Cost {
        phases: [entry.phases, cost.phases].concat(),
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(request.ranks));
    let staging = b.add_staging(request.ranks.div_ceil(2));
    let own = block(b.rank());
    b.copy(vec![b.output(own.clone())], b.input(own));
    open_up(&mut b);
    gather_up(&mut b, staging, true);
    b.build()
}
