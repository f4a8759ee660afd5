//! Direct reduce-scatter: rank r gets block r from everybody and reduces once, in the order of ranks.
//!
//! Symmetric memory: it reads the blocks in its peers' inputs; a rank ends when all have told that they read.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "reduce-scatter",
    summary: "everybody sends everybody its block, which reduces once; one step, any transport",
    about: About {
        how: "Rank r receives block r of everybody, or reads it in their inputs (symmetric memory), and reduces \
              once.",
        formulas: &[
            Formula::ordinary("1", "N (P − 1) / P", ""),
            Formula::symmetric("2", "", "N (P − 1) / P"),
        ],
        wins: "Small and medium messages; with a size per rank; the reproducible mode.",
        source: "",
    },
    requires: Requirements::REPRODUCIBLE_ANY_SIZES,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let share = request.block_share();
    if request.symmetric() {
        let pass = Phase {
            crossing: crossing::all_pairs(request) * share,
            read: request.others_share(),
            reduced: 1.0,
            ..Phase::signals(1)
        };
        return Cost::of(request, [Phase::signals(1), pass]);
    }
    let exchange = Phase {
        crossing: crossing::all_pairs(request) * share,
        reduced: 1.0,
        ..Phase::exchange(1, request.ranks - 1, share)
    };
    Cost::of(request, [exchange])
}

fn textbook(&Terms { p, symmetric, .. }: &Terms) -> Textbook {
    let (sent, read) = match symmetric {
        true => (Volume::NOTHING, Volume::all_but_one(p)),
        false => (Volume::all_but_one(p), Volume::NOTHING),
    };
    Textbook {
        quote: "one exchange between all; with symmetric memory a look at all",
        steps: if symmetric { 2 } else { 1 },
        sent,
        read,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, request.blocks());
    if request.ranks == 1 {
        b.copy(vec![b.output(0..1)], b.input(0..1));
    } else if b.symmetric() {
        in_place(&mut b);
    } else {
        staged(&mut b);
    }
    b.build()
}

fn in_place(b: &mut Builder) {
    let own = block(b.rank());
    b.signal_all();
    b.wait_all();
    let srcs = b.in_rank_order(b.input(own.clone()), |b, peer| {
        b.input_of(peer, own.clone())
    });
    b.reduce_last(vec![b.output(own)], srcs);
    b.signal_all();
    b.wait_all();
}

fn staged(b: &mut Builder) {
    let landing = b.add_landing(1);
    let own = block(b.rank());
    for peer in b.peers() {
        let dst = b.outbox(peer, landing, block(peer));
        b.copy(vec![dst], b.input(block(peer)));
        b.signal(peer);
    }
    b.wait_all();
    let srcs = b.in_rank_order(b.input(own.clone()), |b, peer| {
        b.inbox(peer, landing, own.clone())
    });
    b.reduce_last(vec![b.output(own)], srcs);
}
