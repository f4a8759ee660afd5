//! Direct all-to-all: everybody sends to everybody at once, then takes what has come.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "all-to-all",
    summary: "everybody sends to everybody at once; one step, any transport, for small messages",
    about: About {
        how: "The exchanges of pairwise without waiting in between.",
        formulas: &[
            Formula::ordinary("1", "N (P − 1) / P", ""),
            Formula::symmetric("2", "N (P − 1) / P", ""),
        ],
        wins: "Small messages on few ranks.",
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
        b.deliver(peer, b.input(block(peer)), staging, own.clone());
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
