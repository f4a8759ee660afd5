//! Plans: compiled programs with their memory class, tile limits and identifying hash.

use weft_algorithms::MemoryClass;
use weft_schedule::Encoding;

use super::Program;

/// What an operation in a lane runs by.
#[derive(Debug)]
pub struct Plan {
    /// The compiled schedule.
    pub program: Program,
    /// The memory that it is for.
    pub memory: MemoryClass,
    /// The part of a fingerprint that names it: a hash, the same on all ranks that mean the same.
    /// Never 0.
    pub identity: u64,
    /// The part of the largest chunk that one tile takes, in bytes, if it shall be less than fits.
    pub tile_bytes: Option<u64>,
    /// The encoding in which elements travel.
    pub wire: Encoding,
    /// The most tiles that may be under way.
    pub tiles_in_flight: usize,
}
