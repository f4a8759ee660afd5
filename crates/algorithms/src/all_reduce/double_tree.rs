//! Double-binary-tree all-reduce (Sanders, Speck and Träff 2009), up and down a separate tree for
//! each half of the message.
//!
//! Every rank is an inner node of one tree at most, so when tiles follow each other each rank sends
//! and receives no more than twice the message, in a number of steps that grows with the logarithm
//! of the ranks. An inner node combines what its children send with its own vector in one pass, in
//! the order of the tree.
//!
//! One rank may be another's child in the one tree and its parent in the other, so each half has
//! its own place in the receive buffer; downward data of a tree use the place of the opposite
//! direction.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{Expr, FLOOR_LOG, OTHERS};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::ProgramBuilder;
use crate::patterns::two_trees::{Halves, come_down, go_up};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "double-tree",
    collective: "all-reduce",
    summary: "each half up and down a binary tree of its own; few steps, few bytes when pipelined, any transport",
    about: About {
        how: "Each half of the message goes up a binary tree of its own and back down. Every rank is an inner \
              node of one tree at most, so with tiles in flight all links are busy in both directions.",
        wins: "Medium and large messages on many ranks: nearly the bytes of the ring in few steps.",
        source: "Sanders, Speck and Träff, \"Two-tree algorithms for full bandwidth broadcast, reduction and \
              scan\", 2009",
        quote: "Sanders, Speck and Träff 2009, section 3: two trees of depth log2 p, each for n / 2; an inner \
              node of one and leaf of the other sends (1 + 2 + 1) n / 2",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Counted(cost, formula),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let halves = Halves::unrooted(request.ranks);
    let rounds = halves.rounds(request);
    let of_role = |(parents, children): (u32, u32)| {
        let copied = request.staged(0.5 * f64::from(parents));
        // A rank with children reduces in one tree; in the other it is a leaf.
        let reduced = if children == 0 {
            0.0
        } else {
            0.5 * f64::from(children + 1)
        };
        let up = rounds.spread(parents, children, Phase { reduced, ..rounds });
        let down = rounds.spread(children, parents, Phase { copied, ..rounds });
        up.into_iter().chain(down).collect()
    };
    Cost::of_busiest(request, halves.roles().into_iter().map(of_role))
}

fn formula(request: &ScheduleRequest) -> Formula {
    // With a top or fewer children, less.
    let halves = if request.ranks > 3 { 4 } else { request.ranks };
    Formula::sum(FLOOR_LOG * 2, Expr::parts(halves.into(), 2))
        .all_send(OTHERS * 2)
        .sent_described("at most 2 N")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(2));
    if request.ranks == 1 {
        return b.build();
    }
    let receive = b.add_receive_buffer(2);
    let results = (!b.symmetric()).then_some(receive);
    let halves = Halves::unrooted(request.ranks);
    let upwards = halves.upwards(request.rank);
    for tree in upwards {
        go_up(&mut b, halves, tree, receive, None);
    }
    for tree in upwards.into_iter().rev() {
        come_down(&mut b, halves, tree, results, false);
    }
    b.build()
}
