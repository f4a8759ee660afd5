//! The runtime: bootstrap, algorithm selection, compiled programs, execution, point-to-point
//! messages, progress, and groups.
//!
//! Folders are layers, from what users call down to what the others stand on: `group`, `progress`,
//! `execution` and `point_to_point`, `selection`, `program`, `channel`, `bootstrap`, `memory`,
//! `call`. Each imports only those below it; `tests/layering.rs` checks that.

mod bootstrap;
mod call;
mod channel;
mod error;
mod execution;
mod group;
mod memory;
mod point_to_point;
mod program;
mod progress;
mod selection;

pub use bootstrap::{
    Domain, Endpoint, EndpointAddress, EndpointOptions, HostParts, Meeting, Member, MemoryStore,
    Policy, PrefixStore, Profile, ProfileRow, ProfileTable, Schedules, Store, TcpStore,
    TcpStoreServer, Terms, TransportAddress, TransportChoice, meet,
};
pub use call::{Call, Counts, Op, Tiling};
pub use error::Error;
pub use group::{Group, GroupOptions, SplitOptions, Symmetric, Waited, Work};
pub use memory::{Pool, PoolRange};
pub use selection::{Explanation, UserScheduleText};
pub use weft_algorithms::MemoryClass;
