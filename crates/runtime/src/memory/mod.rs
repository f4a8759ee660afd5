//! Memory: the pool, the user's arrays, pieces of symmetric memory, and the one file that touches
//! message memory.

pub(crate) mod access;
mod bases;
mod pool;
mod region;
mod registered;
mod registrar;
mod registrations;
mod symmetric;

pub use pool::{Pool, PoolRange};

pub(crate) use bases::Bases;
pub(crate) use region::Region;
pub(crate) use registered::{RegisteredMemory, RegisteredPiece};
pub(crate) use registrar::{Outcome, TemporaryRegistration};
pub(crate) use registrations::Registrations;
pub use registrations::Unregistered;
pub(crate) use symmetric::{CELL_BYTES, OwnPart, PieceProgress, PieceSize, Pieces};
