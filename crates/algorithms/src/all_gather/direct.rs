//! Direct all-gather: everybody sends its block to everybody, in one pass over it.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "all-gather",
    summary: "everybody sends everybody its block; one step, any transport",
    about: About {
        how: "Everybody writes its block to everybody, in one pass over it.",
        formulas: &[
            Formula::ordinary("1", "N (P − 1) / P", ""),
            Formula::symmetric("2", "N (P − 1) / P", ""),
        ],
        wins: "Small messages; with a size per rank.",
        source: "",
    },
    requires: Requirements::NONE_ANY_SIZES,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let share = request.block_share();
    let exchange = Phase {
        crossing: crossing::all_pairs(request) * share,
        copied: share + request.staged(request.others_share()),
        ..Phase::exchange(1, request.ranks - 1, share)
    };
    Cost::of(request, [request.entry(), exchange])
}

fn textbook(&Terms { p, entry, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "one exchange between all",
        steps: 1 + entry,
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
    for peer in b.peers() {
        b.await_open(peer);
    }
    let peers = b.peers().into_iter();
    let mut dsts: Vec<_> = peers
        .map(|peer| b.destination(peer, staging, own.clone()))
        .collect();
    dsts.push(b.output(own.clone()));
    b.copy(dsts, b.input(own));
    b.signal_all();
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
