//! Binomial all-reduce: along a binomial tree to rank 0, which has the result, and back.
//!
//! A rank combines its own vector and its whole subtrees in one pass, in the order of ranks. Downwards each edge of the tree uses the
//! landing memory of the other direction.

use weft_schedule::{Grid, Schedule};

use crate::builder::Builder;
use crate::cost::{Cost, Phase};
use crate::tree::Binomial;
use crate::{About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collective: "all-reduce",
    summary: "along a binomial tree to rank 0 and back; few messages, any transport",
    about: About {
        how: "A binomial reduce to rank 0, then a binomial broadcast from it.",
        formulas: &[Formula::any("2 ⌊log₂ P⌋", "rank 0: N ⌈log₂ P⌉", "")],
        wins: "Small messages where every message costs a lot: only 2 (P − 1) altogether.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, practice, \
              and experience\", 2007",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let tree = tree(request);
    let depth = f64::from(tree.depth());
    let reduced = f64::from(tree.children(tree.root).len() as u32 + 1) / depth;
    let [first, rest] = tree.phases(request);
    // The root moves most: downwards it sends, upwards it receives.
    let down = [first, rest].map(|phase| Phase {
        received: 0.0,
        copied: request.staged(1.0) / depth,
        ..phase
    });
    let up = [first, rest].map(|phase| Phase {
        messages: 0,
        received: phase.sent(),
        reduced,
        ..phase
    });
    Cost::of(request, up.into_iter().chain(down))
}

fn textbook(
    &Terms {
        p,
        floor_log,
        ceil_log,
        ..
    }: &Terms,
) -> Textbook {
    Textbook {
        quote: "Chan et al. 2007, minimum spanning tree reduce and broadcast: ⌈log2 p⌉ rounds of n each",
        steps: 2 * floor_log,
        sent: Volume::new((ceil_log, 1), (2 * (p - 1), 1)),
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
    let tree = tree(request);
    let children = tree.children(request.rank);
    let own = b.output(vector.clone());
    let mut srcs = vec![own.clone()];
    for &child in &children {
        b.wait(child);
        srcs.push(b.inbox(child, landing, vector.clone()));
    }
    let mut held = own.clone();
    if let Some(parent) = tree.parent(request.rank) {
        if srcs.len() > 1 {
            b.reduce(own.clone(), srcs);
        }
        b.copy(vec![b.outbox(parent, landing, vector.clone())], own.clone());
        b.signal(parent);
        b.wait(parent);
        if let Some(area) = results {
            held = b.inbox(parent, area, vector.clone());
        }
    } else {
        b.reduce_last(vec![own.clone()], srcs);
    }
    for child in children.into_iter().rev() {
        b.deliver(child, held.clone(), results, vector.clone());
    }
    if held != own {
        b.copy(vec![own], held);
    }
    b.build()
}

fn tree(request: &Request) -> Binomial {
    Binomial {
        ranks: request.ranks,
        root: 0,
    }
}
