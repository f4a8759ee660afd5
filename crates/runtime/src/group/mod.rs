//! Groups: collectives, point-to-point messages, symmetric memory, user schedules, explanations and
//! counters.

mod call_off;
mod counters;
mod explain;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
#[expect(
    clippy::module_inception,
    reason = "the type that gives the folder its name"
)]
mod group;
mod interruption;
mod issue;
mod joining;
mod messages;
mod schedules;
mod shrink;
mod symmetric;
#[cfg(test)]
mod tests;
mod work;

pub use crate::progress::Waited;
pub use counters::{Counters, LinkTraffic, OperationTotals};
pub use group::{Group, GroupOptions, SplitOptions, meet};
pub use interruption::interruptible;
pub use symmetric::Symmetric;
pub use work::Work;

use group::closed;
