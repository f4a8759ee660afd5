//! Algorithms that are composed of others, level by level of units.

pub(crate) mod hierarchy;
pub(crate) mod hierarchy_cost;
mod textbook_composed;
