//! Tests and doubles of transports: the conformance suite, the strict loopback, device memory.
//!
//! Crates use it as a dev-dependency only.
#![warn(clippy::missing_errors_doc)]

pub mod conformance;
mod device;
pub mod limits;
mod network;
mod resets;
mod strict;

pub use device::{DeviceMemory, must_take_device_memory};
pub use network::{Networks, enter_network, set_loopback};
pub use resets::{reset, reset_socket};
pub use strict::{StrictTransport, strict};
