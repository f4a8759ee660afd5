//! Direct barrier: signals from every rank to all others, then waits for the signals of all others.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::OTHERS;
use crate::cost::formula::Rounds;
use crate::patterns::builder::ProgramBuilder;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "direct",
    collective: "barrier",
    summary: "every rank signals all others; one step, for few ranks of one host",
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

fn formula(_: &ScheduleRequest) -> Formula {
    Formula::of([Rounds::signals(1).sending(OTHERS, 0)])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    b.signal_all();
    b.wait_all();
    b.build()
}
