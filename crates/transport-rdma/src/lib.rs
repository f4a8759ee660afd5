//! RDMA verbs, over RoCE and InfiniBand.
//!
//! A link stands on an authenticated connection over TCP, by which its ends meet, exchange keys
//! and see each other's end; and on one queue pair or several (*rails*), which carry all else.
//! libibverbs is loaded when it is asked for: without it weft is built and runs, and [`ports`] says
//! what is missing.

mod closing;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod keys;
mod link;
mod lock;
mod meeting;
mod news;
mod rail;
mod registered;
mod ring;
mod transport;
mod verbs;

pub use transport::{RdmaOptions, RdmaTransport};
pub use verbs::{Port, ports, try_device_memory};
