//! One-sided operations on symmetric memory that need the engine: waits for signals, and operations
//! on ranks whose memory is not mapped here.
//!
//! [Note: Cells] A 64-bit cell is changed in its owner's memory: by the processor of a rank that
//! maps it, and for all other ranks by the owner's progress thread, which receives their requests
//! over links. Both use atomic instructions on the same word, so a group may mix them.
//!
//! [Note: Puts over links] A short put is sent in one message with its change of a cell. A long put
//! is a put of the link into the region that the peer has granted. Its change follows in a message,
//! which the link delivers after earlier puts. If the link needs registered memory, a put from
//! memory that is not registered is sent in messages.

mod cell;
mod operations;
mod peer;
mod serve;
mod serve_queue;
mod state;

pub use cell::Compare;
pub(crate) use cell::{apply, cell_of};
pub(crate) use operations::OperationDescription;
pub(crate) use state::{OneSided, RemotePut, SignalWait};
