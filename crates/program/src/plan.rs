//! Plans: compiled programs with their memory class, tile limits and hash.

use weft_algorithms::MemoryClass;
use weft_schedule::Encoding;

use super::Program;

/// The plan of an operation in a lane.
#[derive(Debug)]
pub struct Plan {
    /// The compiled schedule.
    pub program: Program,
    /// The class of memory that it is for.
    pub memory: MemoryClass,
    /// The plan's hash in fingerprints, the same on all ranks with this plan. Never 0.
    pub identity: u64,
    /// Bytes of the largest chunk that one tile covers; as many as fit if `None`.
    pub tile_bytes: Option<u64>,
    /// The encoding of elements on the wire.
    pub wire: Encoding,
    /// The most concurrent tiles.
    pub tiles_in_flight: usize,
}
