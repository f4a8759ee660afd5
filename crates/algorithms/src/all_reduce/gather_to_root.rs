//! Gather to root: everybody sends its vector to rank 0, which reduces all of them and sends the result to everybody.
//!
//! The naive way, kept as the baseline of comparisons: rank 0 moves P - 1 times the message in each direction. It combines in the
//! order of ranks.

use weft_schedule::{Grid, Rank, Schedule};

use crate::builder::Builder;
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

const ROOT: Rank = 0;

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "gather-to-root",
    collective: "all-reduce",
    summary: "rank 0 reduces all vectors and sends the result to all; a baseline",
    about: About {
        how: "Everybody sends everything to rank 0, which reduces once, in the order of ranks, and sends the \
              result to everybody.",
        formulas: &[Formula::any("2", "rank 0: N (P − 1)", "")],
        wins: "Nowhere: it is the naive baseline.",
        source: "",
    },
    requires: Requirements::REPRODUCIBLE,
    symmetry: Symmetry::None,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let others = request.ranks - 1;
    let exchange = Phase {
        crossing: crossing::of(request, request.others(ROOT).map(|rank| (rank, ROOT))),
        ..Phase::signals(1)
    };
    let gather = Phase {
        received: f64::from(others),
        reduced: f64::from(request.ranks),
        ..exchange
    };
    let give_back = Phase {
        messages: others,
        share: 1.0,
        copied: request.staged(1.0),
        ..exchange
    };
    Cost::of(request, [gather, give_back])
}

fn textbook(&Terms { p, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "all to one and back",
        steps: 2,
        sent: Volume::new((p - 1, 1), (2 * (p - 1), 1)),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let landing = b.add_landing(1);
    let results = (!b.symmetric()).then_some(landing);
    let vector = b.everything();
    let own = b.output(vector.clone());
    if request.rank != ROOT {
        b.copy(vec![b.outbox(ROOT, landing, vector.clone())], own);
        b.signal(ROOT);
        b.accept(ROOT, results, vector);
        return b.build();
    }
    b.wait_all();
    let srcs = b.in_rank_order(own.clone(), |b, peer| {
        b.inbox(peer, landing, vector.clone())
    });
    b.reduce_last(vec![own.clone()], srcs);
    let peers = b.peers().into_iter();
    let dsts = peers.map(|peer| b.destination(peer, results, vector.clone()));
    b.copy(dsts.collect(), own);
    b.signal_all();
    b.build()
}
