//! Linear gather: every rank sends its block to the root.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "linear",
    collective: "gather",
    summary: "everybody sends its block to the root; one step, any transport",
    about: About {
        how: "Every rank sends its block to the root. With symmetric memory they write into the root's output, \
              all at once.",
        formulas: &[
            Formula::ordinary("1", "N / P", ""),
            Formula::symmetric("2", "N / P", ""),
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
    let exchange = Phase {
        rounds: 1,
        messages: 1,
        received: request.others_share(),
        share,
        crossing: crossing::of(request, request.others(root).map(|rank| (rank, root))) * share,
        copied: share + request.staged(request.others_share()),
        ..Phase::default()
    };
    Cost::of(request, [request.entry(), exchange])
}

fn textbook(&Terms { p, entry, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "all to one",
        steps: 1 + entry,
        sent: Volume::new((1, p), (p - 1, p)),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, request.blocks());
    let staging = b.add_staging(1);
    let root = request.root();
    let own = block(b.rank());
    if request.rank != root {
        b.await_open(root);
        b.deliver(root, b.input(own.clone()), staging, own);
        return b.build();
    }
    for source in b.sources() {
        b.open_to(source);
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
    for source in b.sources() {
        b.accept(source, staging, block(source));
    }
    b.build()
}
