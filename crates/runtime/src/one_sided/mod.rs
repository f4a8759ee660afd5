//! One-sided operations on symmetric memory: signals that are waited for, and what goes over links
//! to ranks whose memory is not mapped here.
//!
//! [Note: Cells] A 64-bit cell is changed in its owner's memory: by the processor of whoever maps
//! it, and for everybody else by the owner, whose progress thread takes their requests from links.
//! Both are atomic instructions on the same word, so a group may mix them.
//!
//! [Note: Puts over links] A short put travels in a message with its change of a cell. A long one
//! is a put of the link's into the region that the peer has granted, and the change follows in a
//! message, which a link never gives out before what was called earlier. Memory that is not
//! registered, where the link needs that, travels in messages of its own.

mod cell;
mod operations;
mod peer;
mod serve;
mod serve_queue;
mod state;

pub use cell::Compare;
pub(crate) use cell::{apply, cell_of};
pub(crate) use operations::Described;
pub(crate) use state::{OneSided, RemotePut, Wait};
