//! Progress: who drives the operations of an endpoint's groups, what arrives on links, and what ends
//! groups.

mod dispatch;
mod engine;
mod failure;
mod group_state;
mod poller;
mod state;

pub use engine::Waited;

pub(crate) use engine::Engine;
pub(crate) use group_state::{GroupState, Issued};
