//! Memory: the pool, the user's arrays, pieces of symmetric memory, and the one file that touches
//! message memory.

pub(crate) mod access;
mod bases;
mod pool;
mod region;
mod registrar;
mod registrations;
mod symmetric;

pub use pool::{Pool, PoolRange};

pub(crate) use bases::Bases;
pub(crate) use region::Region;
pub(crate) use registrar::{Outcome, Registrar, TemporaryRegistration};
pub use registrations::Unregistered;
pub(crate) use registrations::{RegisteredMemory, RegisteredPiece, Registrations};
pub(crate) use symmetric::{CELL_BYTES, OwnPart, PieceProgress, PieceSize, Pieces};
