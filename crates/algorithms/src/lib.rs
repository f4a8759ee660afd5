//! Collective algorithms as pure functions from a [`ScheduleRequest`] to a
//! [`Schedule`](weft_schedule::Schedule).
//!
//! One file per algorithm, and one line in its collective's `mod.rs`, from which the [`registry`]
//! is made. Nothing here does I/O, owns memory or knows a transport.
//! `docs/explanation/algorithms.md` tells the steps, the bytes and the latency of each.
#![forbid(unsafe_code)]

mod about;
mod all_gather;
mod all_reduce;
mod all_to_all;
mod barrier;
mod broadcast;
mod builder;
mod compose;
mod cost;
mod crossing;
mod cuts;
mod expression;
mod formula;
mod gather;
mod halving;
mod hierarchy;
mod hierarchy_cost;
mod latency;
mod memory_class;
mod moved;
mod rail_cost;
mod rails;
mod range_tree;
mod reduce;
mod reduce_scatter;
mod refusal;
mod registry;
mod request;
mod ring;
mod scatter;
mod selection;
mod shifts;
mod textbook;
mod textbook_composed;
mod topology;
mod tree;
mod two_trees;
mod units;
mod wire;

pub use about::{About, FormulaText};
pub use cost::{Cost, Phase};
pub use formula::Formula;
pub use hierarchy::InsideComponent;
pub use memory_class::MemoryClass;
pub use refusal::{Conditions, Refusal};
pub use registry::{Algorithm, Costs, Parts, Reach, Requirements, Symmetry, find, registry};
pub use request::{ScheduleRequest, Sizes};
pub use selection::{Part, Selection, family, select};
pub use shifts::Shifts;
pub use textbook::{Textbook, Volume};
pub use topology::Topology;
pub use units::Owners;
pub use wire::on_wire;
