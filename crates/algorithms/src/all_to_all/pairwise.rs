//! Pairwise all-to-all: in round k rank r sends to rank r + k and takes what comes from rank r - k.
//!
//! Each rank sends one block and receives one block at a time, so that no receiver is flooded.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "pairwise",
    collective: "all-to-all",
    summary: "in round k to rank r + k, from rank r - k; any transport, for large messages",
    about: About {
        how: "In round k rank r sends to rank r + k and waits for rank r − k. Every rank receives from one \
              other at a time, so no link is flooded.",
        formulas: &[
            Formula::ordinary("P − 1", "N (P − 1) / P", ""),
            Formula::symmetric("P", "N (P − 1) / P", ""),
        ],
        wins: "Large messages; with a size per pair.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.3",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let rounds = request.ranks - 1;
    let (share, others) = (request.block_share(), request.others_share());
    let exchange = Phase {
        crossing: crossing::all_pairs(request) * share / f64::from(rounds),
        copied: (share + request.staged(others)) / f64::from(rounds),
        ..Phase::exchange(rounds, 1, share)
    };
    Cost::of(request, [request.entry(), exchange])
}

fn textbook(&Terms { p, entry, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.3: p - 1 rounds, (p - 1) n / p",
        steps: p - 1 + entry,
        sent: Volume::all_but_one(p),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, request.blocks());
    let staging = b.add_staging(1);
    let own = block(b.rank());
    for source in b.sources() {
        b.open_to(source);
    }
    b.copy(vec![b.output(own.clone())], b.input(own.clone()));
    for peer in b.peers() {
        b.await_open(peer);
    }
    for (to, from) in b.peers().into_iter().zip(b.sources()) {
        b.deliver(to, b.input(block(to)), staging, own.clone());
        b.accept(from, staging, block(from));
    }
    b.build()
}
