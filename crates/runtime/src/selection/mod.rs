//! Algorithm selection: what users ask for, the candidates that a group has, and the decision about a
//! call.

mod calling_thread;
mod candidates;
mod catalog;
mod decision;
mod defaults;
mod explain;
mod policy;
mod selector;
mod size_table;
mod traits;
mod user_schedules;

pub use explain::Explanation;
pub use user_schedules::OwnSchedule;

pub(crate) use calling_thread::{Choice, Chosen, Mapped, ProgramTables};
pub(crate) use decision::{Decision, agreement_call};
pub(crate) use policy::inherited;
pub(crate) use selector::Chooser;
pub(crate) use user_schedules::Own;

#[cfg(test)]
pub(crate) use {
    calling_thread::NAMED,
    traits::{Setting, Site},
};
