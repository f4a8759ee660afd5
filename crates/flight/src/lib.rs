//! Flight recorder: the last operations of an endpoint, always recorded, and written as JSON when a
//! group fails, on request, or at a signal; and the stages of tiles, recorded while they are
//! traced.
//!
//! [Note: Cost of a record] A record is one cache line in a ring that is made with the endpoint. An
//! operation takes the next record, stores its description, and reads the clock when it is issued
//! and when it ends. There is no lock and no allocation, and nothing is formatted before a reader
//! asks for it.
#![warn(clippy::missing_errors_doc)]

mod activity;
mod directory;
mod group;
mod known;
mod layout;
mod local_socket;
mod recorder;
mod ring;
mod stages;
#[cfg(test)]
mod tests;

pub use activity::{Activity, GroupActivity, RecordedOperation, readable};
pub use recorder::records;
pub use stages::{Stage, StageOf, StageSpan};

pub use group::{GroupFlight, Recorded};
pub use known::{GroupInfo, ProcessInfo, RecordedJob};
pub use local_socket::LocalSocket;
pub use recorder::{FlightRecorder, write_on_signal};
pub use ring::{Entry, Kind, NO_RANK, OneSidedKind, short_plan};
pub use stages::{OpenStage, StageTrace};
