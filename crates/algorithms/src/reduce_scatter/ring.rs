//! Ring reduce-scatter: in step k rank r sends the partial sum of block r - 1 - k to rank r + 1.
//!
//! Inputs stay as they are: partial sums are kept in scratch memory until they are sent.

use weft_schedule::{Grid, Schedule};

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::ring::Window;
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collective: "reduce-scatter",
    summary: "partial sums travel around a ring; any transport, for large messages",
    about: About {
        how: "The first half of the ring all-reduce. Partial sums are kept in scratch memory, since inputs are \
              not written.",
        formulas: &[Formula::any("P − 1", "N (P − 1) / P", "")],
        wins: "Large messages over a network.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, practice, \
              and experience\", 2007",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let share = request.block_share();
    let pass = Phase {
        crossing: crossing::shift(request, 1) * share,
        reduced: 2.0 * share,
        ..Phase::exchange(request.ranks - 1, 1, share)
    };
    Cost::of(request, [pass])
}

fn textbook(&Terms { p, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "Chan et al. 2007, bucket reduce-scatter: p - 1 rounds, (p - 1) n / p",
        steps: p - 1,
        sent: Volume::all_but_one(p),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(request.ranks));
    if request.ranks == 1 {
        b.copy(vec![b.output(0..1)], b.input(0..1));
        return b.build();
    }
    let partial = b.add_scratch(1);
    let turn = request.ranks - 1;
    let window = Window::new(&mut b, turn);
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
            b.reduce_last(vec![b.output(received)], srcs);
        } else {
            b.reduce(to_send.clone(), srcs);
        }
        window.release(&mut b, step);
    }
    b.build()
}
