//! Tiling of a message: the size of tiles and the number of tiles in flight.

use serde::{Deserialize, Serialize};

/// How a message is cut, where the default is not wanted. The same on all ranks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Tiling {
    /// The part of the largest chunk that one tile takes, in bytes; what fits into a slot if that
    /// is less.
    pub tile_bytes: Option<u64>,
    /// How many tiles may be under way at once: at most as many as there are slots.
    pub tiles_in_flight: Option<u32>,
}
