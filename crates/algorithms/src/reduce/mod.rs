//! The root gets the reduction of all ranks' vectors.

pub(crate) mod binomial;
pub(crate) mod direct;
pub(crate) mod double_tree;
pub(crate) mod leaders;
pub(crate) mod slice_reduce;
