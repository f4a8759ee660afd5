//! What every transport provides: one-sided access to a peer's pool, and ordered messages.
//!
//! An *endpoint* is one participant: usually a process, in tests a thread. It exposes one *pool* of memory. A *link* joins two
//! endpoints: it writes bytes into the peer's pool, followed by a *signal* (a 64-bit word stored in the peer's pool),
//! and carries control messages. Whoever waits for a signal reads a word of its own memory, whatever the transport.
//!
//! # Architecture invariant
//! A transport knows nothing of collectives, groups or algorithms.

mod error;
mod link;

pub use error::LinkError;
pub use link::{EndpointId, Inbox, Kind, Link, LinkEvents, PeerMemory, Progress, Signal, Transport};
