//! Ring all-gather, with a send of block r - k from rank r to rank r + 1 in step k.
//!
//! Each rank talks to its neighbours only. With ordinary memory a block is forwarded and copied out
//! of the receive buffer in one pass.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, OTHER_BLOCKS, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::ring::{ReceiveWindow, pass_around};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collective: "all-gather",
    summary: "blocks travel around a ring; any transport, for large messages",
    about: About {
        how: "In step k rank r sends block r − k to rank r + 1. With ordinary memory a block is forwarded and \
              copied out in one pass.",
        wins: "Large messages over a network.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.1",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.1: p - 1 rounds, (p - 1) n / p",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let pass = Rounds::exchange(OTHERS, 1, BLOCK)
        .crossing(crossing::shift(request, 1) * request.block_share())
        .copying((request.staged(OTHER_BLOCKS) + BLOCK) / OTHERS);
    Formula::of([request.entering(), pass])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    let own = block(b.rank());
    if request.ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let window = (!b.symmetric()).then(|| ReceiveWindow::new(&mut b, request.ranks - 1));
    let (left, right) = (b.before(1), b.after(1));
    b.open_to(left);
    b.await_open(right);
    let place = window.as_ref().map(|window| window.place(0));
    let first = b.destination(right, place, own.clone());
    b.copy(vec![first, b.output(own.clone())], b.input(own));
    b.signal(right);
    pass_around(&mut b, window.as_ref());
    b.build()
}
