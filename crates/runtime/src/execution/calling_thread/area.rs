//! Memory of a group for the calling-thread path.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_schedule::Rank;
use weft_transport::{Link, Segment};

use weft_memory::Pieces;

/// The state that all operations of one group share.
pub(super) struct InlineMemory {
    pub(super) rank: Rank,
    pub(super) ranks: u32,
    pub(super) pool: Arc<Segment>,
    pub(super) pieces: Arc<Pieces>,
    /// The number of operations that ran on symmetric memory.
    pub(super) symmetric_operations: AtomicU64,
}

/// The slots of one size.
pub(super) struct InlineArea {
    /// The offset of this rank's temporary memory in its pool.
    pub(super) scratch: u64,
    /// The peers' slots, by rank.
    pub(super) peers: Vec<Option<PeerSlots>>,
}

/// Access to a peer's slots.
pub(super) struct PeerSlots {
    pub(super) link: Arc<dyn Link>,
    pub(super) pool: Arc<Segment>,
    /// The offsets of this rank's slots in the peer's pool, and of those with the flags.
    pub(super) theirs: u64,
    pub(super) their_flags: u64,
    /// The offsets of the peer's slots in this rank's pool, and of those with the flags.
    pub(super) mine: u64,
    pub(super) my_flags: u64,
    /// The offset of the peer's temporary memory in its pool.
    pub(super) scratch: u64,
}
