//! Broadcast by reads: copies of the vector straight out of the root's memory, for ranks of one
//! host.
//!
//! Symmetric memory: out of its output. Ordinary memory: the root shows the vector in its scratch
//! memory. The root ends when all have signalled that they have read.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::OTHERS;
use crate::cost::formula::Rounds;
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "mapped",
    collective: "broadcast",
    summary: "every rank reads the vector from the root's memory; for one host",
    about: About {
        how: "The root shows the vector (in its output with symmetric memory, else in its scratch memory), \
              all ranks copy it from there.",
        wins: "All but the smallest messages on one host.",
        source: "",
        quote: "all look at one",
    },
    requires: Requirements::MAPPED,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let root = request.root();
    let from_root = request.others(root).map(|rank| (root, rank));
    let show = Rounds::signals(1).copying(request.staged(1));
    let collect = Rounds::signals(1)
        .crossing(crossing::of(request, from_root))
        .reading(1);
    Formula::of([show, collect]).all_read(OTHERS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
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
