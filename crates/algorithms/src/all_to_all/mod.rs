//! Rank j gets chunk j of every rank.

pub(crate) mod direct;
pub(crate) mod pairwise;
