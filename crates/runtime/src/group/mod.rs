//! Groups: collectives, point-to-point messages, symmetric memory and one-sided operations on it,
//! user schedules, explanations and counters.

mod counters;
mod device_steps;
#[cfg(test)]
mod device_steps_tests;
mod explain;
#[cfg(test)]
mod failure_order_tests;
mod finish;
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
mod one_sided;
mod registration;
mod schedules;
mod setup_failure;
mod shrink;
mod stages;
mod symmetric;
#[cfg(test)]
pub(crate) mod tests;
mod traffic;
mod window;
mod work;

pub use crate::progress::Waited;
pub use counters::{Counters, OperationTotals};
pub use device_steps::{DeviceCollective, DeviceSteps, DeviceWord, HostPart, Report};
pub use finish::{close_endpoint, finish_all};
pub use group::{Group, GroupOptions, SplitOptions, meet};
pub use interruption::interruptible;
pub use one_sided::{Fetched, MappedPart, OneSidedOptions, SignalUpdate};
pub use registration::Registration;
pub use symmetric::Symmetric;
pub use traffic::LinkTraffic;
pub use work::Work;

use group::closed;
