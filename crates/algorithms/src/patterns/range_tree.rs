//! Trees in which the ranks below a rank are neighbours (Chan, Heimlich, Purkayastha and van de
//! Geijn 2007 call them minimum spanning trees).
//!
//! The range of all ranks is halved. The root stays in the larger half; the rank of the other half
//! that is nearest to it leads that one; and so on in both.

use std::ops::Range;

use weft_schedule::Rank;

use crate::ScheduleRequest;
use crate::cost::Phase;
use crate::cost::expression::Expr;
use crate::patterns::crossing;

/// A rank's place in the tree.
pub(crate) struct TreePosition {
    /// The rank above, or `None` at the root.
    pub(crate) parent: Option<Rank>,
    /// The rank and all below it.
    pub(crate) range: Range<Rank>,
    /// The ranks next below, each with its range, largest first.
    pub(crate) children: Vec<(Rank, Range<Rank>)>,
}

impl TreePosition {
    /// Where a rank stands in the tree with this root.
    pub(crate) fn of(ranks: u32, root: Rank, rank: Rank) -> TreePosition {
        let mut leader = root;
        let mut undivided = 0..ranks;
        let mut place = TreePosition {
            parent: None,
            range: 0..ranks,
            children: Vec::new(),
        };
        while undivided.len() > 1 {
            let larger = (undivided.len() as u32).div_ceil(2);
            let (with_leader, other, other_leader) = if leader < undivided.start + larger {
                let middle = undivided.start + larger;
                (undivided.start..middle, middle..undivided.end, middle)
            } else {
                let middle = undivided.end - larger;
                (middle..undivided.end, undivided.start..middle, middle - 1)
            };
            undivided = with_leader;
            if rank == leader {
                place.children.push((other_leader, other));
            } else if other.contains(&rank) {
                place = TreePosition {
                    parent: Some(leader),
                    range: other.clone(),
                    children: Vec::new(),
                };
                (leader, undivided) = (other_leader, other);
            }
        }
        place
    }
}

/// The number of edges on the longest way down.
pub(crate) fn depth(ranks: u32) -> u32 {
    ranks.ilog2()
}

/// The share of the message that passes the busiest border when every rank's block goes along the
/// tree, in either direction.
pub(crate) fn crossing(request: &ScheduleRequest, root: Rank) -> f64 {
    let edges = (0..request.ranks).filter_map(|rank| {
        let place = TreePosition::of(request.ranks, root, rank);
        Some((place.parent?, rank, place.range.len() as u64))
    });
    crossing::of_blocks(request, edges) * request.block_share()
}

/// The rounds in which the root's blocks are handed down the tree, all ranks' but its own through
/// its hands. A rank also copies the share `copied` of the message.
pub(crate) fn scattering(request: &ScheduleRequest, copied: f64) -> Vec<Phase> {
    let rounds = depth(request.ranks);
    let children = request.ranks.next_power_of_two().ilog2();
    let level = Phase {
        share: request.others_share() / f64::from(children),
        crossing: crossing(request, request.root()) / f64::from(rounds),
        ..Phase::signals(rounds)
    };
    let mut phases = level.spread(children, 0, Phase { copied, ..level });
    if let Some(first) = phases.first_mut() {
        first.received = f64::from(request.ranks / 2) * request.block_share();
    }
    phases
}

/// The share of the message that passes all edges when a range of ranks is halved again and again,
/// and one half's blocks go to or come from the other.
pub(crate) fn along_ranges(ranks: u32) -> Expr {
    fn blocks(ranks: u64) -> u64 {
        match ranks {
            1 => 0,
            _ => ranks / 2 + blocks(ranks / 2) + blocks(ranks.div_ceil(2)),
        }
    }
    Expr::parts(blocks(ranks.into()), ranks.into())
}

#[cfg(test)]
mod tests {
    use super::{TreePosition, depth};

    #[test]
    fn parents_and_children_agree() {
        for ranks in 1..40 {
            for root in 0..ranks {
                for rank in 0..ranks {
                    let place = TreePosition::of(ranks, root, rank);
                    let mut covered = 1;
                    for (child, range) in &place.children {
                        let below = TreePosition::of(ranks, root, *child);
                        assert_eq!((below.parent, &below.range), (Some(rank), range));
                        covered += range.len();
                    }
                    assert_eq!(covered, place.range.len());
                    let above = |rank: &u32| TreePosition::of(ranks, root, *rank).parent;
                    let way = std::iter::successors(Some(rank), above);
                    assert!(
                        way.count() as u32 <= depth(ranks) + 1,
                        "{ranks} ranks, root {root}"
                    );
                }
            }
        }
    }
}
