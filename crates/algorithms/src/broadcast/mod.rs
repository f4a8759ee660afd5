//! Every rank gets the root's vector.

pub(crate) mod binomial;
pub(crate) mod double_tree;
pub(crate) mod leaders;
pub(crate) mod mapped;
pub(crate) mod scatter_all_gather;
