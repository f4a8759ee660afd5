//! Dissemination barrier (Hensgen, Finkel, Manber 1988).
//!
//! In round k every rank signals the one 2^k after it. After ⌈log2 P⌉ rounds each rank has received
//! a signal, directly or through others, from all.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::CEIL_LOG;
use crate::cost::formula::Rounds;
use crate::patterns::builder::ProgramBuilder;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "dissemination",
    collective: "barrier",
    summary: "rank r signals r + 1, 2, 4 ...; any transport",
    about: About {
        how: "In round k every rank signals the rank 2^k after it and waits for the one 2^k before it. After the \
              last round it has received a signal, directly or through others, from all.",
        wins: "Always.",
        source: "Hensgen, Finkel and Manber, \"Two algorithms for barrier synchronization\", 1988",
        quote: "Hensgen, Finkel and Manber 1988: ⌈log2 p⌉ rounds",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Phases(formula),
    build,
};

fn formula(_: &ScheduleRequest) -> Formula {
    Formula::of([Rounds::signals(CEIL_LOG)])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    let mut distance = 1;
    while distance < request.ranks {
        b.signal(b.after(distance));
        b.wait(b.before(distance));
        distance *= 2;
    }
    b.build()
}
