//! Shared memory between processes of one host.
//!
//! Each endpoint passes its pool (a sealed memory file) and its doorbell to the peer over a unix
//! socket. From then on a put is a copy into the peer's pool and a signal is a store there;
//! messages that the peer waits for go through a ring in memory, one each way; the socket carries
//! the other control messages, and its end tells of the peer's death. That two processes share a
//! host is never guessed: the link exists if and only if the passing worked.
//!
//! # Architecture invariant
//! Nothing has a name in any file system: the socket's name is in the abstract namespace, the
//! memory has none. So nothing is left behind, however a process dies.

mod address;
mod answers;
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
