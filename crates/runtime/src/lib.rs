//! The runtime: algorithm selection, execution, point-to-point messages, progress, and groups.
//!
//! Folders are layers, from the public calls down: `group`, `progress`,
//! `execution`, `point_to_point` and `one_sided`, `selection`. Each imports
//! only those below it; `tests/unit/test_layers.py` checks that. Below them are crates.
#![warn(clippy::missing_errors_doc)]

mod execution;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod group;
mod lock;
mod one_sided;
mod point_to_point;
mod progress;
mod selection;
mod sync;

pub use group::{
    Counters, DeviceCollective, DeviceSteps, DeviceWord, Fetched, Group, GroupOptions, HostPart,
    LinkTraffic, MappedPart, OneSidedOptions, OperationTotals, Registration,
    Report as DeviceReport, SignalUpdate, SplitOptions, Symmetric, Waited, Work, close_endpoint,
    finish_all, interruptible, meet,
};
pub use one_sided::Compare;
pub use selection::{Choice, Explanation, Origin, UserScheduleText, untuned_preferences};
pub use weft_algorithms::MemoryClass;
pub use weft_bootstrap::{
    Domain, Endpoint, EndpointAddress, EndpointOptions, Formats, GroupTerms, HostParts,
    JobIdentity, Meeting, Member, MemoryStore, Policy, PrefixStore, Profile, ProfileRow,
    ProfileTable, Retry, Schedules, Secret, Store, StoreAccess, TcpStore, TcpStoreServer,
    TlsCredentials, TlsFiles, TransportAddress, TransportChoice, Unshared, fail_meeting,
};
pub use weft_call::{Call, Counts, Error, Op, Tiling};
pub use weft_channel::CellOp;
pub use weft_flight::records as flight_records;
pub use weft_flight::{Stage, StageOf, StageSpan};
pub use weft_memory::{Pool, PoolRange, Unregistered};
pub use weft_transport::{DmaBuf, fork::AboveStandardStreams};
pub use weft_transport_rdma::{Port as RdmaPort, ports as rdma_ports, try_device_memory};
pub use weft_transport_tcp::{Cipher, Encryption, Interface, NamedAddress, Resumption};
