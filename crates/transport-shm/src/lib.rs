//! Shared memory between processes of one host.
//!
//! Each endpoint passes its pool (a sealed memory file) and its doorbell to the peer over a unix
//! socket. From then on a put is a copy into the peer's pool and a signal is a store there;
//! messages that the peer waits for are sent through a ring in memory, one each way; the socket
//! carries the other control messages, and its end reports the peer's death. That two processes
//! share a host is never guessed: the link exists if and only if passing the memory worked.
//!
//! # Architecture invariant
//! Nothing has a name in any file system: the socket's name is in the abstract namespace, the
//! memory has none. So nothing is left behind when a process dies in any way.
#![warn(clippy::missing_errors_doc)]

mod accept_queue;
mod address;
mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod link;
mod process;
mod rings;
mod socket;
mod transport;
mod watch;

pub use transport::ShmTransport;
