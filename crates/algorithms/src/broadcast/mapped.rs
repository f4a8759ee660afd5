//! Broadcast by reading: every rank copies the vector straight out of the root's memory. For ranks of one host.
//!
//! Symmetric memory: out of its output. Ordinary memory: the root shows the vector in its scratch memory.
//! The root ends when all have told that they read.

use weft_schedule::{Grid, Schedule};

use crate::builder::Builder;
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "mapped",
    collective: "broadcast",
    summary: "everybody reads the vector from the root's memory; for one host",
    about: About {
        how: "The root shows the vector (in its output with symmetric memory, else in its scratch memory), \
              everybody copies it from there.",
        formulas: &[Formula::any("2", "", "N")],
        wins: "All but the smallest messages on one host.",
        source: "",
    },
    requires: Requirements::MAPPED,
    symmetry: Symmetry::None,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let show = Phase {
        copied: request.staged(1.0),
        ..Phase::signals(1)
    };
    let root = request.root();
    let collect = Phase {
        crossing: crossing::of(request, request.others(root).map(|rank| (root, rank))),
        read: 1.0,
        ..Phase::signals(1)
    };
    Cost::of(request, [show, collect])
}

fn textbook(&Terms { p, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "all look at one",
        steps: 2,
        sent: Volume::NOTHING,
        read: Volume::new((1, 1), (p - 1, 1)),
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(1));
    let root = request.root();
    let vector = b.everything();
    let shown = match (!b.symmetric()).then(|| b.add_scratch(1)) {
        Some(scratch) => b.scratch_of(root, scratch, vector.clone()),
        None => b.output_of(root, vector.clone()),
    };
    let output = b.output(vector);
    if request.ranks == 1 {
        return b.build();
    }
    if request.rank == root {
        if shown != output {
            b.copy(vec![shown], output);
        }
        b.signal_all();
        b.wait_all();
    } else {
        b.wait(root);
        b.copy(vec![output], shown);
        b.signal(root);
    }
    b.build()
}
