//! What makes schedules run: rendezvous, groups, the executor, failure handling.
//!
//! The way of a call: [`Group::issue`] checks it (`issue`), an algorithm is chosen and compiled (`plan`), it gets a lane
//! (`operation`), `execute` runs its tiles, `engine` decides which thread does so, `failure` ends it if it must.

mod call;
mod catalog;
mod channel;
mod choice;
mod defaults;
mod domains;
mod endpoint;
mod engine;
mod error;
mod execute;
mod explain;
mod failure;
mod geometry;
mod group;
mod group_state;
mod incoming;
mod inline;
mod issue;
mod joining;
mod lines;
mod lowered;
mod mailbox;
mod memory;
mod message;
mod operation;
mod order;
mod own;
mod p2p;
mod place;
mod plan;
mod policy;
mod poller;
mod pool;
mod rendezvous;
mod setting;
mod spin;
mod state;
mod store;
mod store_tcp;
mod symmetric;
mod ways;
mod work;

pub use call::{Call, Counts, Op};
pub use domains::{Domain, Parts};
pub use endpoint::{Address, Endpoint, EndpointOptions, TransportAddress, TransportChoice};
pub use error::Error;
pub use explain::Explanation;
pub use group::{Group, GroupOptions, SplitOptions};
pub use own::OwnSchedule;
pub use policy::{Policy, Profile, Row, Schedules, Table, Tiling};
pub use pool::{Pool, PoolRange};
pub use rendezvous::{Meeting, Member, Terms, meet};
pub use store::{MemoryStore, PrefixStore, Store};
pub use store_tcp::{TcpStore, TcpStoreServer};
pub use symmetric::Symmetric;
pub use work::{Waited, Work};
