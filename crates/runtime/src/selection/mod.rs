//! Algorithm selection: user policies, the candidates of a group, and the decision about a call.

mod calling_thread;
mod calling_thread_programs;
mod candidates;
mod catalog;
mod decision;
mod defaults;
mod explain;
mod lines;
mod policy;
mod selector;
mod size_table;
#[cfg(test)]
mod tests;
mod traits;
mod untuned;
mod user_schedules;

pub use explain::{Choice, Explanation};
pub use size_table::Origin;
pub use untuned::untuned_preferences;
pub use user_schedules::UserScheduleText;

pub(crate) use calling_thread::{InlineChoice, InlineProgram, MappedProgram, ProgramTables};
pub(crate) use decision::{Decision, agreement_call};
pub(crate) use policy::inherited;
pub(crate) use selector::Selector;
pub(crate) use user_schedules::UserSchedule;

#[cfg(test)]
pub(crate) use {
    calling_thread_programs::NAMED,
    traits::{GroupTraits, Site},
};
