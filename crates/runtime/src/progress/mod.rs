//! Progress: the driver of the operations of an endpoint's groups, dispatch of arrivals on links,
//! and failures of groups.

mod agreement;
mod breaking;
mod dispatch;
mod early;
mod engine;
mod failure;
mod group_name;
mod group_state;
mod hand_over;
mod poller;
mod quarantine;
mod shrinking;
mod splits;
mod stalls;
mod state;

#[cfg(feature = "fuzzing")]
pub(crate) use dispatch::ReceivedMessage;
pub use engine::Waited;

pub(crate) use engine::Engine;
pub(crate) use group_name::GroupName;
pub(crate) use group_state::{GroupState, Issued};
pub(crate) use shrinking::{Dial, ShrinkStage};
