//! Selections: algorithms with their components chosen.

mod choice;
mod shifts;

pub use choice::{Selection, family, select};
pub use shifts::Shifts;
