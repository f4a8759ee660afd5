//! Recursive doubling: opposite ranks of two neighbouring groups exchange the blocks of their groups; then the two are one group.
//!
//! As few bytes as the ring in ⌈log2 P⌉ steps. Any number of ranks: see `halving.rs`.

use weft_schedule::{Grid, Schedule};

use crate::builder::{Builder, block};
use crate::cost::Cost;
use crate::halving::{cost_up, gather_up, open_up};
use crate::{Algorithm, Request, Requirements, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "doubling",
    collective: "all-gather",
    summary: "neighbours exchange blocks, then pairs, then fours ...; few steps and bytes, any transport",
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
