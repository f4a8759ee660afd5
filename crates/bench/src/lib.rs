//! Measurement core of `weft bench`: one timing loop for every library, and the floors that a
//! library cannot go below.
//!
//! The processes that measure share a page ([`ControlBlock`]): a start barrier on bare flags, and
//! the times of all ranks. Between the barrier and the reading of the clock there is nothing but
//! the [`TimedOperation`]: a call of weft's own runtime, of a C function of another library, or a
//! floor. Nothing here knows which library it times.

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
