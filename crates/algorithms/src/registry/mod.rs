//! The table of all algorithms, assembled from the lists in the `mod.rs` of each collective.

use crate::{
    Algorithm, all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce,
    reduce_scatter, scatter,
};

/// Registers the algorithms of one collective, one line each: the line declares the algorithm's
/// module, and puts its `ALGORITHM` into the collective's table.
macro_rules! algorithms {
    ($($name:ident,)+) => {
        $(pub(crate) mod $name;)+

        pub(crate) static ALGORITHMS: &[crate::Algorithm] = &[$($name::ALGORITHM,)+];
    };
}
pub(crate) use algorithms;

static COLLECTIVES: &[&[Algorithm]] = &[
    all_reduce::ALGORITHMS,
    reduce::ALGORITHMS,
    broadcast::ALGORITHMS,
    all_gather::ALGORITHMS,
    reduce_scatter::ALGORITHMS,
    all_to_all::ALGORITHMS,
    gather::ALGORITHMS,
    scatter::ALGORITHMS,
    barrier::ALGORITHMS,
];

/// All algorithms by collective, the collective's general-purpose one first.
pub fn registry() -> impl Iterator<Item = &'static Algorithm> + Clone {
    COLLECTIVES.iter().copied().flatten()
}

/// The algorithm of this name for the collective of this name.
pub fn find(collective: &str, algorithm: &str) -> Option<&'static Algorithm> {
    registry().find(|candidate| candidate.collective == collective && candidate.name == algorithm)
}

#[cfg(test)]
mod tests {
    use super::registry;

    #[test]
    fn formulas_have_one_text_for_all_sizes() {
        for algorithm in registry() {
            for ranks in [3, 8, 12, 61, 64] {
                let texts = algorithm.formulas_of(ranks);
                assert_eq!(texts, algorithm.formulas(), "{algorithm:?}");
            }
        }
    }
}
