//! Bootstrap: stores, the rendezvous of a new group's ranks, endpoints, and the parts of a host.
#![warn(clippy::missing_errors_doc)]

mod domains;
mod endpoint;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group_terms;
mod lock;
mod rendezvous;
mod round_trip;
mod secret;
mod store;
mod store_tcp;
mod sync;
mod tls;

pub use domains::{Domain, HostParts};
pub use endpoint::{
    Endpoint, EndpointAddress, EndpointOptions, MakeTransports, TransportAddress, TransportChoice,
};
pub use group_terms::{
    Formats, GroupTerms, JobIdentity, Policy, Profile, ProfileRow, ProfileTable, Schedules,
};
pub use rendezvous::meet;
pub use rendezvous::{Meeting, Member, Unshared, fail_meeting};
pub use round_trip::is_delayed;
pub use secret::Secret;
pub use store::{MemoryStore, PrefixStore, StatusReport, Store};
pub use store_tcp::{Retry, StoreAccess, TcpStore, TcpStoreServer};
pub use tls::{TlsCredentials, TlsFiles};
