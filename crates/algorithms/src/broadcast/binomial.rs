//! Binomial-tree broadcast.
//!
//! A rank sends to the largest subtree first. With ordinary memory it forwards out of the receive
//! buffer before it copies to its own output.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{Expr, FLOOR_LOG, OTHERS};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::tree::Binomial;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collective: "broadcast",
    summary: "along a binomial tree; fewest steps, any transport",
    about: About {
        how: "The binomial tree over ranks counted from the root, downwards, the largest subtree first. With \
              ordinary memory a rank forwards out of its receive buffer, then copies to its own output.",
        wins: "Small messages on any transport: fewest steps.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.2",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.2: ⌈log2 p⌉ rounds of n",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let copied = request.staged(Expr::from(1)) / FLOOR_LOG;
    let [first, rest] = tree(request)
        .phases(request)
        .map(|phase| phase.copying(copied));
    Formula::of([request.entering(), first, rest])
        .all_send(OTHERS)
        .sent_described("root: {}")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    let staging = b.add_staging(1);
    let vector = b.everything();
    let tree = tree(request);
    let mut held = b.output(vector.clone());
    if let Some(parent) = tree.parent(request.rank) {
        b.open_to(parent);
        b.wait(parent);
        if let Some(area) = staging {
            held = b.inbox(parent, area, vector.clone());
        }
    }
    for child in tree.children(request.rank).into_iter().rev() {
        b.await_open(child);
        b.deliver(child, held.clone(), staging, vector.clone());
    }
    let output = b.output(vector);
    if held != output {
        b.copy(vec![output], held);
    }
    b.build()
}

fn tree(request: &ScheduleRequest) -> Binomial {
    Binomial {
        ranks: request.ranks,
        root: request.root(),
    }
}
