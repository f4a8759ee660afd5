//! Measurement core of `weft bench`: one timing loop for all libraries, and floors (lower bounds)
//! for their times.
//!
//! The measuring processes share a page ([`ControlBlock`]) with a start barrier on bare flags and
//! the times of all ranks. Only the [`TimedOperation`] runs between the barrier and the reading of
//! the clock: a call of weft's runtime, of a C function of another library, or a floor. The loop
//! does not depend on the library.
#![warn(clippy::missing_errors_doc)]

mod control_block;
mod floors;
mod mapping;
mod operation;
mod processor;
mod prototype;
mod streams;
mod tcp_floors;

pub use control_block::{ControlBlock, Rewrite, SAMPLES_MAX};
pub use floors::{Add, Copy};
pub use mapping::Mapping;
pub use operation::{Function, GroupCall, LibraryCall, PingPong, TimedOperation};
pub use processor::ProcessorCost;
pub use prototype::Prototype;
pub use streams::Streams;
pub use tcp_floors::{OneStream, TcpRoundTrip};
