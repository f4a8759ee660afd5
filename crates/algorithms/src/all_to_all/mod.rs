//! Rank j gets chunk j of every rank.

pub(crate) mod bruck;
pub(crate) mod direct;
pub(crate) mod pairwise;
