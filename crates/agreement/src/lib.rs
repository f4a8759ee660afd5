//! Agreement of a group's ranks on its survivors: a deterministic machine without links, clocks or
//! threads.
#![forbid(unsafe_code)]

mod agreement;
mod words;

pub use agreement::{Agreement, Words};
pub use words::{Ranks, ShrinkStep, ShrinkWord};
