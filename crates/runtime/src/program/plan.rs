//! Plans: compiled programs with their memory class, tile limits and identifying hash.

use weft_algorithms::MemoryClass;
use weft_schedule::Encoding;

use super::Program;

/// What an operation in a lane runs by.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) program: Program,
    /// The memory that it is for.
    pub(crate) memory: MemoryClass,
    /// The part of a fingerprint that names it: a hash, the same on all ranks that mean the same.
    /// Never 0.
    pub(crate) identity: u64,
    /// The part of the largest chunk that one tile takes, in bytes, if it shall be less than fits.
    pub(crate) tile_bytes: Option<u64>,
    /// The encoding in which elements travel.
    pub(crate) wire: Encoding,
    /// The most tiles that may be under way.
    pub(crate) tiles_in_flight: usize,
}
