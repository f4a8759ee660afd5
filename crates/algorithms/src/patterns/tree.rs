//! Binomial trees.

use weft_schedule::Rank;

use crate::ScheduleRequest;
use crate::cost::expression::{CEIL_LOG, FLOOR_LOG};
use crate::cost::formula::Rounds;
use crate::patterns::crossing;

/// The binomial tree over all ranks, counted from the root: the parent of a rank is its number with
/// the lowest bit cleared.
#[derive(Clone, Copy)]
pub(crate) struct Binomial {
    pub(crate) ranks: u32,
    pub(crate) root: Rank,
}

impl Binomial {
    /// The rank above, or `None` at the root.
    pub(crate) fn parent(self, rank: Rank) -> Option<Rank> {
        let position = self.position(rank);
        (position != 0).then(|| self.rank_at(position & (position - 1)))
    }

    /// The ranks below, smallest subtree first: at a distance of 1, 2, 4 ... from the rank.
    pub(crate) fn children(self, rank: Rank) -> Vec<Rank> {
        let position = self.position(rank);
        let mut children = Vec::new();
        let mut distance = 1;
        while position & distance == 0 && position + distance < self.ranks {
            children.push(self.rank_at(position + distance));
            distance *= 2;
        }
        children
    }

    /// The rounds of a whole message that goes down the tree: the root has a child for each bit of
    /// the greatest position, so one more than rounds unless the number of ranks is a power of two.
    pub(crate) fn phases(self, request: &ScheduleRequest) -> [Rounds; 2] {
        let edges = (0..self.ranks).filter_map(|rank| Some((self.parent(rank)?, rank)));
        let crossing = crossing::of(request, edges) / f64::from(self.ranks.ilog2());
        let rest = Rounds::signals(FLOOR_LOG - 1)
            .sending(1, 1)
            .crossing(crossing);
        let first = rest
            .lasting(1)
            .sending(CEIL_LOG - FLOOR_LOG + 1, 1)
            .receiving(1);
        [first, rest]
    }

    fn position(self, rank: Rank) -> u32 {
        (rank + self.ranks - self.root) % self.ranks
    }

    fn rank_at(self, position: u32) -> Rank {
        (position + self.root) % self.ranks
    }
}

#[cfg(test)]
mod tests {
    use super::Binomial;

    #[test]
    fn parents_and_children_agree() {
        for ranks in 1..40 {
            for root in 0..ranks.min(5) {
                let tree = Binomial { ranks, root };
                let edges: usize = (0..ranks).map(|rank| tree.children(rank).len()).sum();
                assert_eq!(edges as u32, ranks - 1, "{ranks} ranks, root {root}");
                for rank in 0..ranks {
                    for child in tree.children(rank) {
                        assert_eq!(tree.parent(child), Some(rank));
                    }
                }
                assert_eq!(tree.parent(root), None);
            }
        }
    }
}
