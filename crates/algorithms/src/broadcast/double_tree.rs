//! Double-tree broadcast (Sanders, Speck and Träff 2009), down a separate binary tree below the
//! root for each half of the message.
//!
//! Every rank hands on in one tree at most, so when tiles follow each other each sends and receives
//! the message once, in a number of steps that grows with the logarithm of the ranks.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{FLOOR_LOG_OTHERS, OTHERS};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::two_trees::{Halves, come_down};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "double-tree",
    collective: "broadcast",
    summary: "each half down a binary tree of its own; few steps, few bytes when pipelined, any transport",
    about: About {
        how: "Two binary trees over all ranks but the root, each for half of the message. N is received by all, \
              and sent by none more than once.",
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
        let copied = request.staged(0.5 * f64::from(parents));
        let down = rounds.spread(children, parents, Phase { copied, ..rounds });
        [request.entry()].into_iter().chain(down).collect()
    };
    Cost::of_busiest(request, halves.roles().into_iter().map(of_role))
}

fn formula(request: &ScheduleRequest) -> Formula {
    Formula::sum(FLOOR_LOG_OTHERS + 1 + request.entries(), 1).all_send(OTHERS)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(2));
    if request.ranks == 1 {
        return b.build();
    }
    let halves = Halves::rooted(request.ranks, request.root());
    // Two ranks are each other's neighbours in both trees; others in one.
    let staging = b.add_staging(if request.ranks == 2 { 2 } else { 1 });
    let downwards = || halves.upwards(request.rank).into_iter().rev();
    for tree in downwards() {
        if let Some(parent) = halves.parent(tree, request.rank) {
            b.open_to(parent);
        }
    }
    for tree in downwards() {
        come_down(&mut b, halves, tree, staging, true);
    }
    b.build()
}
