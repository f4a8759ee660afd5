//! Rank r gets the reduction of all ranks' block r.

pub(crate) mod direct;
pub(crate) mod halving;
pub(crate) mod ring;
pub(crate) mod slice_reduce;
