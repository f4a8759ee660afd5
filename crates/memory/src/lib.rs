//! Memory: the pool, registered and symmetric memory, and all access to message memory.
#![warn(clippy::missing_errors_doc)]

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
pub use registrar::{RegistrationOutcome, TemporaryRegistration};
pub use registrations::Registrations;
pub use registrations::Unregistered;
pub use symmetric::{CELL_BYTES, OwnPart, PieceProgress, PieceSize, Pieces};
