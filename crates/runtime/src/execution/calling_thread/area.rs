//! The memory of a group that the calling-thread path works in.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use weft_schedule::Rank;
use weft_transport::{Link, Segment};

use weft_memory::Pieces;

/// What all operations of one group share.
pub(super) struct InlineMemory {
    pub(super) rank: Rank,
    pub(super) ranks: u32,
    pub(super) pool: Arc<Segment>,
    pub(super) pieces: Arc<Pieces>,
    /// How many operations have run on symmetric memory.
    pub(super) symmetric_operations: AtomicU64,
}

/// The slots of one size.
pub(super) struct Area {
    /// Where this rank's temporary memory begins in its pool.
    pub(super) scratch: u64,
    /// By rank.
    pub(super) peers: Vec<Option<PeerSlots>>,
}

/// How to reach a peer's slots.
pub(super) struct PeerSlots {
    pub(super) link: Arc<dyn Link>,
    pub(super) pool: Arc<Segment>,
    /// Where this rank's slots begin in the peer's pool, and those with the flags.
    pub(super) theirs: u64,
    pub(super) their_flags: u64,
    /// Where the peer's slots begin in this rank's pool, and those with the flags.
    pub(super) mine: u64,
    pub(super) my_flags: u64,
    /// Where the peer's temporary memory begins in its pool.
    pub(super) scratch: u64,
}
