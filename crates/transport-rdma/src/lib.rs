//! RDMA verbs, over RoCE and InfiniBand.
//!
//! A link consists of an authenticated connection over TCP, over which its ends set it up, exchange
//! keys and detect each other's end; and of one queue pair or several (*rails*), which carry all
//! else. libibverbs is loaded on first use: weft builds and runs without it, and [`ports`] returns
//! what is missing.
#![warn(clippy::missing_errors_doc)]

mod closing;
mod control;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod keys;
mod link;
mod lock;
mod rail;
mod registered;
mod ring;
mod setup;
mod transport;
mod verbs;

pub use transport::{RdmaOptions, RdmaTransport};
pub use verbs::{Port, ports, try_device_memory};
