//! The interface of all transports: one-sided access to a peer's regions, and ordered messages.
//!
//! An *endpoint* is one participant: usually a process, in tests a thread. It exposes *regions* of
//! memory, of which the first is its *pool*. A *link* joins two endpoints: it writes bytes into the
//! peer's regions, followed by a *signal* (a 64-bit word stored in the peer's pool), and carries
//! control messages. A rank that waits for a signal reads a word of its own memory, over every
//! transport.
//!
//! # Architecture invariant
//! A transport knows nothing of collectives, groups or algorithms.
#![warn(clippy::missing_errors_doc)]

// Under loom only the protocols are compiled: the models check those.
#[cfg_attr(loom, allow(dead_code, unreachable_pub))]
pub mod claim;
#[cfg(not(loom))]
mod clock;
#[cfg(not(loom))]
mod doorbell;
#[cfg(not(loom))]
mod error;
mod flag;
#[cfg(not(loom))]
pub mod fork;
#[cfg(all(feature = "fuzzing", not(loom)))]
pub mod fuzzing;
#[cfg_attr(loom, allow(dead_code, unreachable_pub))]
mod gate;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
pub mod loopback;
#[cfg(not(loom))]
mod mapped;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
mod per_process;
#[cfg(not(loom))]
mod posix_signal;
#[cfg(not(loom))]
mod presence;
#[cfg_attr(loom, allow(dead_code, unreachable_pub))]
pub mod protocol;
#[cfg(not(loom))]
mod random;
#[cfg(not(loom))]
mod ranges;
#[cfg(not(loom))]
mod regions;
#[cfg_attr(loom, allow(dead_code, unreachable_pub))]
pub mod ring;
#[cfg(not(loom))]
mod segment;
#[cfg(not(loom))]
mod standard_streams;
mod sync;
#[cfg(not(loom))]
mod system_call;
#[cfg(not(loom))]
mod user;
#[cfg(not(loom))]
mod watch;

pub use flag::{flag_value, has_reached};

#[cfg(not(loom))]
pub use {
    clock::{Moment, TickClock, Timeline, process_time, thread_time},
    doorbell::{Doorbell, POOL_HEADER, POOL_LABEL, PeerDoorbell, Sleep},
    error::{LinkError, Shortage, is_own_limit},
    link::{
        AtomicOp, Capabilities, DmaBuf, EndpointId, FlushState, INJECT_BYTES_MAX, Inbox, Iovec,
        IovecMut, Link, LinkEvents, LinkStatus, MESSAGE_BYTES_MAX, MemoryRegistration,
        PolledMessages, Redirection, Redirections, RemoteAtomics, RemoteReads, Signal, Standing,
        Stream, Submission, Ticket, TrafficClass, TrafficCounts, Transport, TransportKind,
    },
    local::Local,
    loopback::LoopbackTransport,
    mapped::MappedPeer,
    per_process::PerProcess,
    posix_signal::on_posix_signal,
    presence::{Presence, PresenceGuard, current_core},
    protocol::Woken,
    random::{random, random_endpoint_id},
    regions::{Grants, RegionKey, Regions, RegistrationKey},
    segment::Segment,
    system_call::{checked, failed, last_failure, os_code},
    user::{effective_user, peer_credentials},
    watch::WatchedDescriptors,
};
