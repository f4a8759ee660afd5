//! Memory: the pool, the user's arrays, pieces of symmetric memory, and the one file that touches
//! message memory.

pub mod access;
mod bases;
mod pool;
mod region;
mod registered;
mod registrar;
mod registrations;
mod symmetric;

pub use pool::{Pool, PoolRange};

pub use bases::Bases;
pub use region::Region;
pub use registered::{RegisteredMemory, RegisteredPiece};
pub use registrar::{Outcome, TemporaryRegistration};
pub use registrations::Registrations;
pub use registrations::Unregistered;
pub use symmetric::{CELL_BYTES, OwnPart, PieceProgress, PieceSize, Pieces};
