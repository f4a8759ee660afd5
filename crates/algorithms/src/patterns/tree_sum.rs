//! Sums in the order of a binary tree over the ranks.

use weft_schedule::Slice;

use crate::patterns::builder::{ProgramBuilder, block};

/// Combines the slices of all ranks, the second argument in their order, into the first.
pub(crate) type Combine = fn(&mut ProgramBuilder, Vec<Slice>, Vec<Slice>);

/// Adds this rank's slices of all ranks: neighbours' first, then neighbouring pairs', and so on,
/// through memory of its own.
pub(crate) fn add_in_tree(b: &mut ProgramBuilder, dsts: Vec<Slice>, mut srcs: Vec<Slice>) {
    let own = block(b.rank());
    let sums: Vec<_> = (0..srcs.len() / 2).map(|_| b.add_scratch(1)).collect();
    while srcs.len() > 2 {
        let pairs: Vec<Vec<Slice>> = srcs.chunks(2).map(<[Slice]>::to_vec).collect();
        srcs = (pairs.into_iter().zip(0..))
            .map(|(pair, number): (Vec<Slice>, usize)| match pair.len() {
                1 => pair[0].clone(),
                _ => {
                    let sum = b.scratch(sums[number], own.clone());
                    b.reduce(sum.clone(), pair);
                    sum
                }
            })
            .collect();
    }
    b.reduce_final(dsts, srcs);
}
