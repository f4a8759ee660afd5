//! Binomial-tree reduce.
//!
//! A rank combines its own vector and its whole subtrees in one pass, in the order of ranks counted
//! from the root.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{CEIL_LOG, FLOOR_LOG, OTHERS};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::tree::Binomial;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "binomial",
    collective: "reduce",
    summary: "along a binomial tree; fewest steps, any transport",
    about: About {
        how: "The binomial tree over ranks counted from the root: the parent of a position is the position with the \
              lowest bit cleared. Each inner rank waits for its subtrees and combines them in one \
              pass with its own vector. Outputs of other ranks than the root are not changed.",
        wins: "Small and medium messages on any transport.",
        source: "Chan, Heimlich, Purkayastha and van de Geijn, \"Collective communication: theory, practice, \
              and experience\", 2007",
        quote: "Chan et al. 2007, minimum spanning tree reduce: ⌈log2 p⌉ rounds of n",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Phases(formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    let reduced = (CEIL_LOG + 1) / FLOOR_LOG;
    let hub_receives = tree(request).phases(request);
    let phases = hub_receives.map(|phase| phase.turned().reducing(reduced));
    Formula::of(phases).all_send(OTHERS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(1);
    let partial = b.add_scratch(1);
    let vector = b.everything();
    let tree = tree(request);
    let mut srcs = vec![b.output(vector.clone())];
    for child in tree.children(request.rank) {
        b.wait(child);
        srcs.push(b.inbox(child, receive, vector.clone()));
    }
    let Some(parent) = tree.parent(request.rank) else {
        b.reduce_final(vec![b.output(vector)], srcs);
        return b.build();
    };
    let mut subtree = b.output(vector.clone());
    if srcs.len() > 1 {
        subtree = b.scratch(partial, vector.clone());
        b.reduce(subtree.clone(), srcs);
    }
    b.copy(vec![b.outbox(parent, receive, vector)], subtree);
    b.signal(parent);
    b.build()
}

fn tree(request: &ScheduleRequest) -> Binomial {
    Binomial {
        ranks: request.ranks,
        root: request.root(),
    }
}
