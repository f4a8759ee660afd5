//! Direct reduce: everybody sends its vector to the root, which reduces once, in the order of ranks.

use weft_schedule::{Grid, Schedule};

use crate::builder::Builder;
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "reduce",
    summary: "everybody sends the root its vector, which reduces once; one step, for small messages",
    about: About {
        how: "Everybody sends its vector to the root, which reduces once, in the order of ranks. The root \
              receives N (P − 1).",
        formulas: &[Formula::any("1", "N", "")],
        wins: "Small messages on few ranks; the reproducible mode.",
        source: "",
    },
    requires: Requirements::REPRODUCIBLE,
    symmetry: Symmetry::None,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let root = request.root();
    let gather = Phase {
        rounds: 1,
        messages: 1,
        share: 1.0,
        received: f64::from(request.ranks - 1),
        crossing: crossing::of(request, request.others(root).map(|rank| (rank, root))),
        reduced: f64::from(request.ranks),
        ..Phase::default()
    };
    Cost::of(request, [gather])
}

fn textbook(&Terms { p, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "all to one",
        steps: 1,
        sent: Volume::new((1, 1), (p - 1, 1)),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let landing = b.add_landing(1);
    let (root, vector) = (request.root(), b.everything());
    let own = b.output(vector.clone());
    if request.rank != root {
        b.copy(vec![b.outbox(root, landing, vector)], own);
        b.signal(root);
        return b.build();
    }
    b.wait_all();
    let srcs = b.in_rank_order(own.clone(), |b, peer| {
        b.inbox(peer, landing, vector.clone())
    });
    b.reduce_last(vec![own], srcs);
    b.build()
}
