//! Ring all-gather: in step k rank r sends block r - k to rank r + 1.
//!
//! Each rank talks to its neighbours only. With ordinary memory a block is forwarded and copied out of the
//! landing memory in one pass.

use weft_schedule::{Grid, Schedule};

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::ring::{Window, pass_around};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "ring",
    collective: "all-gather",
    summary: "blocks travel around a ring; any transport, for large messages",
    about: About {
        how: "In step k rank r sends block r − k to rank r + 1. With ordinary memory a block is forwarded and \
              copied out in one pass.",
        formulas: &[
            Formula::ordinary("P − 1", "N (P − 1) / P", ""),
            Formula::symmetric("P", "N (P − 1) / P", ""),
        ],
        wins: "Large messages over a network.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.1",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let rounds = request.ranks - 1;
    let (share, others) = (request.block_share(), request.others_share());
    let pass = Phase {
        crossing: crossing::shift(request, 1) * share,
        copied: (share + request.staged(others)) / f64::from(rounds),
        ..Phase::exchange(rounds, 1, share)
    };
    Cost::of(request, [request.entry(), pass])
}

fn textbook(&Terms { p, entry, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.1: p - 1 rounds, (p - 1) n / p",
        steps: p - 1 + entry,
        sent: Volume::all_but_one(p),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(request.ranks));
    let own = block(b.rank());
    if request.ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let window = (!b.symmetric()).then(|| Window::new(&mut b, request.ranks - 1));
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
