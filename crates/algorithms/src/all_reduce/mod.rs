//! Every rank gets the reduction of all ranks' vectors.

pub(crate) mod bidirectional_ring;
pub(crate) mod binomial;
pub(crate) mod direct;
pub(crate) mod double_tree;
pub(crate) mod gather_to_root;
pub(crate) mod halving_doubling;
pub(crate) mod halving_doubling_blocks;
pub(crate) mod leaders;
pub(crate) mod multi_rail;
pub(crate) mod parameter_server;
pub(crate) mod recursive_doubling;
pub(crate) mod ring;
pub(crate) mod slice_reduce;
pub(crate) mod torus;
pub(crate) mod two_shot;
