//! Double-tree reduce (Sanders, Speck and Träff 2009), up a separate binary tree to the root for
//! each half of the message.
//!
//! Every rank combines in one tree at most, so when tiles follow each other each sends and receives
//! the message once, in a number of steps that grows with the logarithm of the ranks. An inner node
//! combines what its children send with its own vector in one pass, in the order of ranks counted
//! from the root.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{FLOOR_LOG_OTHERS, OTHERS};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::two_trees::{Halves, go_up};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "double-tree",
    collective: "reduce",
    summary: "each half up a binary tree of its own; few steps, few bytes when pipelined, any transport",
    about: About {
        how: "Two binary trees over all ranks but the root, each for half of the message. Every rank sends N, \
              and none receives more.",
        wins: "Large messages.",
        source: "Sanders, Speck and Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and \
              scan\", 2009",
        quote: "Sanders, Speck and Träff 2009, section 3: one step below the root, then two trees over the \
              others",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Counted(cost, formula),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    if request.ranks == 1 {
        return Cost::default();
    }
    let halves = Halves::rooted(request.ranks, request.root());
    let rounds = halves.rounds(request);
    let of_role = |(parents, children): (u32, u32)| {
        let reductions = match (parents, children) {
            (_, 0) => 0,
            (0, _) => 2, // The root, one of each tree.
            _ => 1,
        };
        let reduced = 0.5 * f64::from(children + reductions);
        rounds.spread(parents, children, Phase { reduced, ..rounds })
    };
    Cost::of_busiest(request, halves.roles().into_iter().map(of_role))
}

fn formula(_: &ScheduleRequest) -> Formula {
    Formula::sum(FLOOR_LOG_OTHERS + 1, 1).all_send(OTHERS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(2));
    if request.ranks == 1 {
        return b.build();
    }
    let halves = Halves::rooted(request.ranks, request.root());
    // Two ranks are each other's neighbours in both trees; others in one.
    let receive = b.add_receive_buffer(if request.ranks == 2 { 2 } else { 1 });
    let partial = b.add_scratch(1);
    for tree in halves.upwards(request.rank) {
        go_up(&mut b, halves, tree, receive, Some(partial));
    }
    b.build()
}
