//! Slice-reduce to blocks: rank r reduces block r of all ranks in one pass, reading their memory. For ranks of one host.
//!
//! Symmetric memory: it reads its peers' inputs. Ordinary memory: each rank shows the blocks that others read in its scratch
//! memory. A rank ends when all have told that they read.

use weft_schedule::Schedule;

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "slice-reduce",
    collective: "reduce-scatter",
    summary: "each rank reduces its block straight from its peers' memory; for one host",
    about: About {
        how: "Rank r reduces block r straight from its peers' inputs (symmetric memory), or from their scratch \
              memory, where they show what others read.",
        formulas: &[Formula::any("2", "", "N (P − 1) / P")],
        wins: "All but the smallest messages on one host.",
        source: "",
    },
    requires: Requirements::MAPPED_REPRODUCIBLE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let others = request.others_share();
    let show = Phase {
        copied: request.staged(others),
        ..Phase::signals(1)
    };
    let reduction = Phase {
        crossing: crossing::all_pairs(request) * request.block_share(),
        read: others,
        reduced: 1.0,
        ..Phase::signals(1)
    };
    Cost::of(request, [show, reduction])
}

fn textbook(&Terms { p, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "one look at all",
        steps: 2,
        sent: Volume::NOTHING,
        read: Volume::all_but_one(p),
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, request.blocks());
    let own = block(b.rank());
    if request.ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let shown = (!b.symmetric()).then(|| b.add_scratch(request.ranks));
    if let Some(scratch) = shown {
        for others in b.all_but(b.rank()) {
            b.copy(vec![b.scratch(scratch, others.clone())], b.input(others));
        }
    }
    b.signal_all();
    b.wait_all();
    let srcs = b.in_rank_order(b.input(own.clone()), |b, peer| match shown {
        Some(scratch) => b.scratch_of(peer, scratch, own.clone()),
        None => b.input_of(peer, own.clone()),
    });
    b.reduce_last(vec![b.output(own)], srcs);
    b.signal_all();
    b.wait_all();
    b.build()
}
