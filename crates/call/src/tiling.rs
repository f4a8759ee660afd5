//! Tiling of a message: the size of tiles and the number of tiles in flight.

use serde::{Deserialize, Serialize};

/// Settings for the division of a message into tiles. Must be the same on all ranks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Tiling {
    /// Bytes of the largest chunk that one tile covers; limited by the size of a slot.
    pub tile_bytes: Option<u64>,
    /// The number of concurrent tiles, limited by the number of slots.
    pub tiles_in_flight: Option<u32>,
}
