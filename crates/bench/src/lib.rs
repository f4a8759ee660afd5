//! What `weft bench` times with: one loop for every library, and the floors that a library cannot go below.
//!
//! The processes that measure share a page ([`Board`]): a start barrier on bare flags, and the times of all ranks. Between
//! the barrier and the reading of the clock there is nothing but the [`Operation`]: a call of weft's own runtime, of a
//! C function of another library, or a floor. Nothing here knows which library it times.

mod board;
mod floors;
mod mapping;
mod operation;
mod prototype;

pub use board::{Board, Rewrite, SAMPLES_MAX};
pub use floors::{Add, Copy};
pub use mapping::Mapping;
pub use operation::{Function, GroupCall, LibraryCall, Operation, PingPong};
pub use prototype::Prototype;
