//! Direct barrier: everybody tells everybody, then waits for everybody.

use weft_schedule::{Grid, Schedule};

use crate::builder::Builder;
use crate::cost::{Cost, Phase};
use crate::{About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "barrier",
    summary: "everybody signals everybody; one step, for few ranks of one host",
    about: About {
        how: "Every rank signals all others, then waits for the signals of all others.",
        formulas: &[Formula::any("1", "", "")],
        wins: "Few ranks that map each other's memory: there a signal costs a store.",
        source: "",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

fn cost(request: &Request) -> Cost {
    let signals = Phase {
        messages: request.ranks - 1,
        ..Phase::signals(1)
    };
    Cost::of(request, [signals])
}

fn textbook(_: &Terms) -> Textbook {
    Textbook {
        quote: "all signal all",
        steps: 1,
        sent: Volume::NOTHING,
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(1));
    b.signal_all();
    b.wait_all();
    b.build()
}
