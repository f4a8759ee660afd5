//! Patterns that algorithms share: builders of programs, trees, rings, units, wire formats.

pub(crate) mod builder;
pub(crate) mod compose;
pub(crate) mod crossing;
pub(crate) mod cuts;
pub(crate) mod halving;
pub(crate) mod rail_cost;
pub(crate) mod rails;
pub(crate) mod range_tree;
pub(crate) mod ring;
pub(crate) mod tree;
pub(crate) mod tree_sum;
pub(crate) mod two_trees;
pub(crate) mod units;
pub(crate) mod wire;

pub use units::Owners;
pub use wire::on_wire;
