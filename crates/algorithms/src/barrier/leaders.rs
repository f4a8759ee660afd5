//! Barrier by leaders: signals to one leader of each unit, dissemination among the leaders, signals
//! back.

use weft_schedule::{Grid, Schedule};

use crate::cost::Phase;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::rails::{Rails, largest_unit, units};
use crate::{About, Algorithm, Cost, Costs, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "barrier",
    summary: "inside each unit to its leader, dissemination among leaders, and back; fewest messages between units",
    about: About {
        how: "The ranks of a unit (a host, say) signal its leader, the leaders pass a dissemination barrier, and \
              signal the ranks of their units.",
        wins: "Several hosts with several ranks each.",
        source: "Hensgen, Finkel and Manber, \"Two algorithms for barrier synchronization\", 1988, among leaders",
        quote: "Hensgen, Finkel and Manber 1988 among leaders",
    },
    requires: Requirements::UNITS,
    symmetry: Symmetry::None,
    costs: Costs::OfUnits(cost, ["⌈log₂ H⌉ + 2 for H units", "", ""]),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let inside = u32::from(largest_unit(request) > 1);
    let leaders = units(request).len() as u32;
    let between = leaders.next_power_of_two().ilog2();
    let inside = Phase {
        inside: true,
        ..Phase::signals(inside)
    };
    Cost::of(request, [inside, Phase::signals(between), inside])
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    let rails = Rails::new(request);
    let leader = rails.members()[0];
    if request.rank != leader {
        b.signal(leader);
        b.wait(leader);
        return b.build();
    }
    for (_, peer) in rails.peers() {
        b.wait(peer);
    }
    let units = units(request);
    let own = rails.unit();
    let mut distance = 1;
    while distance < units.len() {
        b.signal(units[(own + distance) % units.len()][0]);
        b.wait(units[(own + units.len() - distance) % units.len()][0]);
        distance *= 2;
    }
    for (_, peer) in rails.peers() {
        b.signal(peer);
    }
    b.build()
}
