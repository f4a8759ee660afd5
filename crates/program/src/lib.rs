//! Programs: schedules compiled for the links of a group, and the positions of their operands.
#![warn(clippy::missing_errors_doc)]

mod arrivals;
mod compile;
mod geometry;
mod in_step;
mod instruction;
mod plan;

pub use arrivals::Arrival;
pub use geometry::Geometry;
pub use instruction::{Instruction, Kernel, LocalStep, Location, Operand, Program};
pub use plan::Plan;
