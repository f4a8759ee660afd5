//! Costs of algorithms: phases, formulas, and the figures of the literature.

pub(crate) mod expression;
pub(crate) mod formula;
pub(crate) mod latency;
pub(crate) mod moved;
mod phases;
mod shares;
mod textbook;

pub use formula::Formula;
pub use phases::{Cost, Phase};
pub use textbook::{Textbook, Volume};
