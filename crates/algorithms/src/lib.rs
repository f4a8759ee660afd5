//! Collective algorithms as pure functions from a [`ScheduleRequest`] to a
//! [`Schedule`](weft_schedule::Schedule).
//!
//! One file per algorithm, and one line in its collective's `mod.rs`, from which the [`registry`]
//! is made. Nothing here does I/O, owns memory or knows a transport.
//! `docs/explanation/algorithms.md` lists the steps, the bytes and the latency of each.
#![forbid(unsafe_code)]

mod algorithm;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod composition;
mod cost;
mod gather;
mod patterns;
mod reduce;
mod reduce_scatter;
mod registry;
mod request;
mod scatter;
mod selection;

pub use algorithm::{
    About, Algorithm, Conditions, Costs, FormulaText, InsideComponent, Parts, Reach, Refusal,
    Requirements, Symmetry,
};
pub use cost::{Cost, Formula, Phase, Textbook, Volume};
pub use patterns::{Owners, on_wire};
pub use registry::{find, registry};
pub use request::{MemoryClass, Part, ScheduleRequest, Sizes, Topology};
pub use selection::{Selection, Shifts, family, select};
