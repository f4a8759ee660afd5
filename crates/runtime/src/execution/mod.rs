//! Execution: a group's unfinished operations, and the two drivers of their programs.

mod arrivals;
mod budget;
mod calling_thread;
mod executor;
mod interpret;
mod operation;
mod puts;
mod spin_policy;
mod strips;
mod tiles;

pub(crate) use budget::Budget;
pub(crate) use calling_thread::{Attempt, CallingThread, Entered};
pub(crate) use executor::Executor;
pub(crate) use interpret::{Blocked, GroupFailure};
pub(crate) use operation::Operation;
pub(crate) use spin_policy::SpinPolicy;
