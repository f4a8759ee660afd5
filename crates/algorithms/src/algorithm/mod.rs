//! Algorithms: their definition, their documentation and the conditions of their use.

mod about;
mod definition;
mod refusal;

pub use about::{About, FormulaText};
pub use definition::{Algorithm, Costs, InsideComponent, Parts, Reach, Requirements, Symmetry};
pub use refusal::{Conditions, Refusal};
