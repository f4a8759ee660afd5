//! Linear scatter: the root sends every rank its block.
//!
//! Symmetric memory: the ranks read their blocks from the root's input, all at once; the root ends when all have told that they read.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collective: "scatter",
    summary: "the root sends every rank its block; one step, any transport",
    about: About {
        how: "The root sends every rank its block. With symmetric memory they read from the root's input, all \
              at once.",
        formulas: &[
            Formula::ordinary("1", "root: N (P − 1) / P", ""),
            Formula::symmetric("2", "", "N / P"),
        ],
        wins: "Large blocks; with a size per rank.",
        source: "",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::None,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let (share, root) = (request.block_share(), request.root());
    let from_root = request.others(root).map(|rank| (root, rank));
    let crossing = crossing::of(request, from_root) * share;
    if request.symmetric() {
        let pass = Phase {
            crossing,
            read: share,
            copied: share,
            ..Phase::signals(1)
        };
        return Cost::of(request, [Phase::signals(1), pass]);
    }
    let exchange = Phase {
        rounds: 1,
        messages: request.ranks - 1,
        received: share,
        share,
        crossing,
        copied: share,
        ..Phase::default()
    };
    Cost::of(request, [exchange])
}

fn textbook(&Terms { p, symmetric, .. }: &Terms) -> Textbook {
    let (sent, read) = match symmetric {
        true => (Volume::NOTHING, Volume::new((1, p), (p - 1, p))),
        false => (Volume::new((p - 1, p), (p - 1, p)), Volume::NOTHING),
    };
    Textbook {
        quote: "one to all; with symmetric memory all look at one",
        steps: if symmetric { 2 } else { 1 },
        sent,
        read,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, request.blocks());
    if b.symmetric() {
        in_place(&mut b, request.root());
    } else {
        staged(&mut b, request.root());
    }
    b.build()
}

fn in_place(b: &mut Builder, root: u32) {
    let own = block(b.rank());
    if b.rank() == root {
        b.signal_all();
        b.copy(vec![b.output(own.clone())], b.input(own));
        b.wait_all();
    } else {
        b.wait(root);
        b.copy(vec![b.output(own.clone())], b.input_of(root, own));
        b.signal(root);
    }
}

fn staged(b: &mut Builder, root: u32) {
    let staging = b.add_staging(1);
    let own = block(b.rank());
    if b.rank() != root {
        b.accept(root, staging, own);
        return;
    }
    for peer in b.peers() {
        b.deliver(peer, b.input(block(peer)), staging, block(peer));
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
}
