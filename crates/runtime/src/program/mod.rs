//! Programs: schedules compiled for the links of a group, and the position of their operands.

mod arrivals;
mod compile;
mod geometry;
mod in_step;
mod instruction;
mod plan;

pub(crate) use arrivals::Arrival;
pub(crate) use geometry::Geometry;
pub(crate) use instruction::{Instruction, Kernel, LocalStep, Location, Operand, Program};
pub(crate) use plan::Plan;
