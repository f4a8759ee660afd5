//! Direct barrier: everybody tells everybody, then waits for everybody.

use weft_schedule::{Grid, Schedule};

use crate::builder::Builder;
use crate::expression::OTHERS;
use crate::formula::Rounds;
use crate::{About, Algorithm, Costs, Formula, Request, Requirements, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "barrier",
    summary: "everybody signals everybody; one step, for few ranks of one host",
    about: About {
        how: "Every rank signals all others, then waits for the signals of all others.",
        wins: "Few ranks that map each other's memory: there a signal costs a store.",
        source: "",
        quote: "all signal all",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(_: &Request) -> Formula {
    Formula::of([Rounds::signals(1).sending(OTHERS, 0)])
}

fn build(request: &Request) -> Schedule {
    let mut b = Builder::new(request, Grid::Equal(1));
    b.signal_all();
    b.wait_all();
    b.build()
}
