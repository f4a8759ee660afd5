//! Two binary trees over the same ranks, in which every rank is an inner node of one at most
//! (Sanders, Speck and Träff 2009).
//!
//! In a tree the positions 1, 2 ... are in order: everything to the left of a position is before
//! it. The height of a position is the number of times that 2 divides it, so odd positions are
//! leaves. The two trees place the ranks so that odd and even ones exchange roles: by mirroring
//! where their number is even, by shifting them where it is odd.

use std::collections::BTreeSet;

use weft_schedule::Rank;

use crate::ScheduleRequest;
use crate::cost::Phase;
use crate::patterns::builder::{Area, ProgramBuilder, block};
use crate::patterns::crossing;

/// Two trees over all ranks, for a half of the message each.
#[derive(Clone, Copy)]
pub(crate) struct Halves {
    ranks: u32,
    /// The rank above the tops of both trees, which are then over the other ranks, counted from it.
    root: Option<Rank>,
}

impl Halves {
    /// Trees whose tops are ranks of their own.
    pub(crate) fn unrooted(ranks: u32) -> Self {
        Halves { ranks, root: None }
    }

    /// Trees below a root. There are at least two ranks.
    pub(crate) fn rooted(ranks: u32, root: Rank) -> Self {
        let root = Some(root);
        Halves { ranks, root }
    }

    fn trees(self) -> TwoTrees {
        TwoTrees {
            nodes: self.ranks - u32::from(self.root.is_some()),
        }
    }

    fn rank(self, node: u32) -> Rank {
        self.root
            .map_or(node, |root| (root + 1 + node) % self.ranks)
    }

    fn node(self, rank: Rank) -> u32 {
        self.root
            .map_or(rank, |root| (rank + self.ranks - root - 1) % self.ranks)
    }

    /// The rank above in a tree, or `None` for the uppermost one.
    pub(crate) fn parent(self, tree: u32, rank: Rank) -> Option<Rank> {
        if self.root == Some(rank) {
            return None;
        }
        let above = self.trees().parent(tree, self.node(rank));
        above.map(|node| self.rank(node)).or(self.root)
    }

    /// The ranks below in a tree that are before and behind it in the order of the tree. The root
    /// is before all others.
    pub(crate) fn children(self, tree: u32, rank: Rank) -> [Option<Rank>; 2] {
        if self.root == Some(rank) {
            return [None, Some(self.rank(self.trees().top(tree)))];
        }
        let below = self.trees().children(tree, self.node(rank));
        below.map(|node| node.map(|node| self.rank(node)))
    }

    /// The trees in the order of a rank's upward steps: first the one in which it is a leaf, which
    /// has nothing to wait for. Downwards, where a leaf has nothing to forward, the order is
    /// reversed. The root uses the order of a leaf of both.
    pub(crate) fn upwards(self, rank: Rank) -> [u32; 2] {
        let inner_of_second = self.root != Some(rank) && self.children(1, rank) != [None, None];
        let inner = u32::from(inner_of_second);
        [1 - inner, inner]
    }

    /// The number of edges on the longest way down.
    fn depth(self) -> u32 {
        self.trees().depth() + u32::from(self.root.is_some())
    }

    /// The rounds of going up or down.
    pub(crate) fn rounds(self, request: &ScheduleRequest) -> Phase {
        let edges = (0..2).flat_map(|tree| {
            let edge = move |rank| Some((rank, self.parent(tree, rank)?));
            (0..self.ranks).filter_map(edge)
        });
        Phase {
            share: 0.5,
            crossing: crossing::of(request, edges) / 2.0 / f64::from(self.depth()),
            ..Phase::signals(self.depth())
        }
    }

    /// How many parents and children ranks have in both trees together, each combination once.
    pub(crate) fn roles(self) -> BTreeSet<(u32, u32)> {
        let role = |rank| {
            let parents = (0..2).filter_map(|tree| self.parent(tree, rank));
            let children = (0..2).flat_map(|tree| self.children(tree, rank).into_iter().flatten());
            (parents.count() as u32, children.count() as u32)
        };
        (0..self.ranks).map(role).collect()
    }
}

/// Combines a half of the message with the data from below in its tree and sends it up, or
/// completes it at the top. Sums go to `partial`, or to the output if there is none.
pub(crate) fn go_up(
    b: &mut ProgramBuilder,
    halves: Halves,
    tree: u32,
    receive: Area,
    partial: Option<Area>,
) {
    let half = block(tree);
    let own = b.output(half.clone());
    let [before, behind] = halves.children(tree, b.rank());
    for child in [before, behind].into_iter().flatten() {
        b.wait(child);
    }
    let landed = |child| b.inbox(child, receive, half.clone());
    let all = [before.map(landed), Some(own.clone()), behind.map(landed)];
    let srcs: Vec<_> = all.into_iter().flatten().collect();
    let Some(parent) = halves.parent(tree, b.rank()) else {
        b.reduce_final(vec![own], srcs);
        return;
    };
    let mut sent = own;
    if srcs.len() > 1 {
        if let Some(area) = partial {
            sent = b.scratch(area, half.clone());
        }
        b.reduce(sent.clone(), srcs);
    }
    b.copy(vec![b.outbox(parent, receive, half)], sent);
    b.signal(parent);
}

/// Takes a half of the message from above in its tree and hands it down. `open`: peers first signal
/// that they may be written to.
pub(crate) fn come_down(
    b: &mut ProgramBuilder,
    halves: Halves,
    tree: u32,
    results: Option<Area>,
    open: bool,
) {
    let half = block(tree);
    let own = b.output(half.clone());
    let mut held = own.clone();
    if let Some(parent) = halves.parent(tree, b.rank()) {
        b.wait(parent);
        if let Some(area) = results {
            held = b.inbox(parent, area, half.clone());
        }
    }
    for child in halves.children(tree, b.rank()).into_iter().flatten() {
        if open {
            b.await_open(child);
        }
        b.deliver(child, held.clone(), results, half.clone());
    }
    if held != own {
        b.copy(vec![own], held);
    }
}

/// The two trees over nodes 0, 1 ...; each is of depth ⌊log2 nodes⌋.
#[derive(Clone, Copy)]
struct TwoTrees {
    nodes: u32,
}

impl TwoTrees {
    /// The number of edges on the longest way down.
    fn depth(self) -> u32 {
        self.nodes.ilog2()
    }

    /// The node at the top of a tree.
    fn top(self, tree: u32) -> u32 {
        self.node(tree, 1 << self.depth())
    }

    /// The node above, or `None` at the top.
    fn parent(self, tree: u32, node: u32) -> Option<u32> {
        let position = self.position(tree, node);
        let lowest_bit = position & position.wrapping_neg();
        let without = position ^ lowest_bit;
        let above = match without | lowest_bit << 1 {
            above if above <= self.nodes => above,
            _ => without,
        };
        (above != 0 && position != 1 << self.depth()).then(|| self.node(tree, above))
    }

    /// The nodes below, before and behind it.
    fn children(self, tree: u32, node: u32) -> [Option<u32>; 2] {
        let position = self.position(tree, node);
        let mut distance = (position & position.wrapping_neg()) / 2;
        let before = (distance > 0).then(|| self.node(tree, position - distance));
        while position + distance > self.nodes {
            distance /= 2;
        }
        let behind = (distance > 0).then(|| self.node(tree, position + distance));
        [before, behind]
    }

    fn position(self, tree: u32, node: u32) -> u32 {
        match tree {
            0 => node + 1,
            _ if self.nodes.is_multiple_of(2) => self.nodes - node,
            _ => (node + 1) % self.nodes + 1,
        }
    }

    fn node(self, tree: u32, position: u32) -> u32 {
        match tree {
            0 => position - 1,
            _ if self.nodes.is_multiple_of(2) => self.nodes - position,
            _ => (position + self.nodes - 2) % self.nodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TwoTrees;

    #[test]
    fn nodes_are_inner_in_one_tree_at_most() {
        for nodes in 1..130 {
            let trees = TwoTrees { nodes };
            for node in 0..nodes {
                let inner = |tree| trees.children(tree, node) != [None, None];
                assert!(!(inner(0) && inner(1)), "node {node} of {nodes}");
            }
        }
    }

    #[test]
    fn nodes_are_below_top_and_not_too_deep() {
        for nodes in 1..130 {
            let trees = TwoTrees { nodes };
            for tree in 0..2 {
                for node in 0..nodes {
                    for child in trees.children(tree, node).into_iter().flatten() {
                        assert_eq!(trees.parent(tree, child), Some(node), "{nodes} nodes");
                    }
                    let above = |node: &u32| trees.parent(tree, *node);
                    let way: Vec<u32> = std::iter::successors(Some(node), above).collect();
                    assert_eq!(way.last(), Some(&trees.top(tree)));
                    assert!(way.len() as u32 <= trees.depth() + 1);
                }
            }
        }
    }
}
