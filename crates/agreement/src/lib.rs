//! Agreement of a group's ranks on its survivors (Paxos): a deterministic state machine without
//! links, clocks or threads.
#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod agreement;
mod messages;

pub use agreement::{Agreement, Outbox};
pub use messages::{Ranks, ShrinkMessage, ShrinkStep, Survivors};
