//! Ring reduce-scatter, with a send of the partial sum of block r - 1 - k from rank r to rank r + 1
//! in step k.
//!
//! Inputs stay as they are: partial sums are kept in scratch memory until they are sent.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::ring::ReceiveWindow;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collective: "reduce-scatter",
    summary: "partial sums travel around a ring; any transport, for large messages",
    about: About {
        how: "The first half of the ring all-reduce. Partial sums are kept in scratch memory, since inputs are \
              not written.",
        wins: "Large messages over a network.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, practice, \
              and experience\", 2007",
        quote: "Chan et al. 2007, bucket reduce-scatter: p - 1 rounds, (p - 1) n / p",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let pass = Rounds::exchange(OTHERS, 1, BLOCK)
        .crossing(crossing::shift(request, 1) * request.block_share())
        .reducing(BLOCK * 2);
    Formula::of([pass])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        b.copy(vec![b.output(0..1)], b.input(0..1));
        return b.build();
    }
    let partial = b.add_scratch(1);
    let turn = request.ranks - 1;
    let window = ReceiveWindow::new(&mut b, turn);
    let (left, right) = (b.before(1), b.after(1));
    let mut to_send = b.input(block(left));
    for step in 0..turn {
        window.reserve(&mut b, step);
        let dst = b.outbox(right, window.place(step), to_send.chunks.clone());
        b.copy(vec![dst], to_send);
        b.signal(right);

        let received = block(b.before(step + 2));
        b.wait(left);
        let srcs = vec![
            b.inbox(left, window.place(step), received.clone()),
            b.input(received.clone()),
        ];
        to_send = b.scratch(partial, received.clone());
        if step + 1 == turn {
            b.reduce_final(vec![b.output(received)], srcs);
        } else {
            b.reduce(to_send.clone(), srcs);
        }
        window.release(&mut b, step);
    }
    b.build()
}
