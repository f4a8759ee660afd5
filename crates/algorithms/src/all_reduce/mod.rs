//! Every rank gets the reduction of all ranks' vectors.

pub(crate) mod direct;
pub(crate) mod leaders;
pub(crate) mod multi_rail;
pub(crate) mod ring;
pub(crate) mod slice_reduce;
pub(crate) mod two_shot;
