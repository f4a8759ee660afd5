//! Progress: the engine that drives the operations of an endpoint's groups, the handling of
//! received messages, and failures of groups.

mod breaking;
mod control_messages;
mod dispatch;
mod early;
mod early_messages;
mod engine;
mod failure;
mod group_name;
mod group_state;
mod hand_over;
mod poller;
mod quarantine;
mod questions;
mod received;
mod shrink_state;
mod shrinking;
mod silence;
mod split_calls;
mod splits;
mod stalls;
mod state;
mod status;
mod suspicion;
mod wait_causes;
mod wait_chain;
mod wind_down;

pub use engine::Waited;
#[cfg(feature = "fuzzing")]
pub(crate) use received::ReceivedMessage;

pub(crate) use breaking::NO_OPERATION;
pub(crate) use engine::{Engine, INTERRUPT_POLL};
pub(crate) use group_name::GroupName;
pub(crate) use group_state::{GroupState, Issued};
pub(crate) use shrink_state::{DialOutcome, ShrinkStage};
