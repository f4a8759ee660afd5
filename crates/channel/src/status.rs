//! The state of a rank at one moment, as ranks report it to those who watch a job.

use serde::{Deserialize, Serialize};
use weft_flight::GroupActivity;

/// The most links that a rank reports, so that a status fits a message.
pub const STATUS_LINKS_MAX: usize = 64;
/// The most groups that a rank reports.
pub const STATUS_GROUPS_MAX: usize = 32;

/// A rank's present operations, and its counts so far.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RankStatus {
    /// Its number in the group that was asked.
    pub rank: u32,
    /// Its number in the world.
    pub global_rank: u32,
    /// The name of its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When this was the case, on the monotonic clock of its host, in microseconds.
    pub at_us: u64,
    /// The processor time that its process has taken, in microseconds.
    pub processor_us: u64,
    /// How long its threads have waited for operations since somebody watches, in microseconds.
    pub waited_us: u64,
    /// Steps that its training has taken, where the program counts them.
    pub steps: u64,
    /// Operations that it has called.
    pub operations: u64,
    /// The time since it last called or ended an operation, in microseconds.
    pub quiet_us: u64,
    /// The bytes of its pool that are in use, and how many it has.
    pub pool_bytes: [u64; 2],
    /// Its groups that are open, those with the latest calls first.
    pub groups: Vec<GroupActivity>,
    /// The oldest operation that has not ended.
    pub current: Option<OngoingOperation>,
    /// Its links, where their transports count, those with the most bytes first.
    pub links: Vec<LinkCounts>,
}

/// An operation that has not ended.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OngoingOperation {
    /// The identity of its group.
    pub group: u64,
    /// The number among the collectives of the group; None for messages and one-sided operations.
    pub sequence: Option<u64>,
    /// "all_reduce of 4 MiB".
    pub text: String,
    /// The time since the call, in microseconds.
    pub age_us: u64,
    /// The peer that it waits for, where that is known.
    pub waits_for: Option<AwaitedPeer>,
}

/// A peer that an operation waits for.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AwaitedPeer {
    /// The other rank, by its number in the world.
    pub global_rank: u32,
    /// Whether the link to it takes no more bytes for now.
    pub sends: bool,
}

/// The traffic of a link, for all groups.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkCounts {
    /// The other rank, by its number in the world.
    pub global_rank: u32,
    /// The kind of transport.
    pub kind: String,
    /// Bytes that the peer's host has acknowledged.
    pub sent_bytes: u64,
    /// Bytes that were received.
    pub received_bytes: u64,
    /// Packets that were sent again.
    pub retransmissions: u64,
    /// Bytes that wait to be sent, or to be acknowledged.
    pub queued_bytes: u64,
    /// The time since bytes last came from the other rank, in microseconds.
    pub quiet_us: u64,
}
