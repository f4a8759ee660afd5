//! Ring all-reduce (Patarasuk and Yuan 2009): reduce-scatter around the ring, then all-gather.
//!
//! In step k rank r sends block r - 1 - k to rank r + 1. In the first P - 1 steps it is a partial
//! sum that the receiver adds its own block to; rank r completes block r. In the other P - 1 steps
//! it is a result.
//!
//! Bandwidth is optimal: each rank sends 2 (P - 1) / P of the message.
//!
//! Every rank is known to have entered when the first result is sent: a partial sum that it
//! contributed to has led to it.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, OTHERS};
use crate::cost::formula::Rounds;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::ring::{ReceiveWindow, pass_around};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collective: "all-reduce",
    summary: "blocks travel around a ring twice; fewest bytes, any transport, for large messages",
    about: About {
        how: "Reduce-scatter around a ring, then all-gather around the same ring. In step k rank r sends block \
              r − 1 − k to rank r + 1; in the first P − 1 steps it is a partial sum to which the receiver \
              adds its own block, then it is a result. Every rank talks to two others only. Up to eight ranks each \
              block has its own place in the receive buffer, used twice: the second time it carries the block's \
              result, which was computed from the former content. More ranks use eight places in turn, and \
              a rank notifies its neighbour when four of them are free.",
        wins: "Large messages over a network on few ranks: fewest bytes, no link is shared.",
        source: "Patarasuk and Yuan, \"Bandwidth optimal all-reduce algorithms for clusters of workstations\", \
              2009",
        quote: "Patarasuk and Yuan 2009, section 3: 2 (p - 1) steps, 2 (p - 1) n / p",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let step = Rounds::exchange(OTHERS, 1, BLOCK)
        .crossing(crossing::shift(request, 1) * request.block_share());
    Formula::of([
        step.reducing(BLOCK * 2),
        step.copying(request.staged(BLOCK)),
    ])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        return b.build();
    }
    let turn = request.ranks - 1;
    // In symmetric memory results land in the output.
    let window = match b.symmetric() {
        true => ReceiveWindow::new(&mut b, turn),
        false => ReceiveWindow::new(&mut b, 2 * turn),
    };
    reduce_scatter(&mut b, &window);

    let (own, right) = (block(b.rank()), b.after(1));
    let results = (!b.symmetric()).then_some(&window);
    if results.is_some() {
        window.reserve(&mut b, turn);
    }
    let place = results.map(|window| window.place(turn));
    b.deliver(right, b.output(own.clone()), place, own);
    pass_around(&mut b, results);
    b.build()
}

/// Leaves the result of block r in rank r's output.
fn reduce_scatter(b: &mut ProgramBuilder, window: &ReceiveWindow) {
    let (left, right) = (b.before(1), b.after(1));
    let turn = b.ranks() - 1;
    for step in 0..turn {
        let sent = block(b.before(step + 1));
        window.reserve(b, step);
        let dst = b.outbox(right, window.place(step), sent.clone());
        b.copy(vec![dst], b.output(sent));
        b.signal(right);

        let received = block(b.before(step + 2));
        b.wait(left);
        let own = b.output(received.clone());
        let srcs = vec![b.inbox(left, window.place(step), received), own.clone()];
        if step + 1 == turn {
            b.reduce_final(vec![own], srcs);
        } else {
            b.reduce(own, srcs);
        }
        window.release(b, step);
    }
}
