//! Trace of events with their times, for drawings.

use serde::{Deserialize, Serialize};
use weft_schedule::Rank;

/// The activity of a span.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpanKind {
    /// The rank's thread copies.
    Copy,
    /// The rank's thread reduces.
    Reduce,
    /// The rank's thread hands a message to a link.
    Send,
    /// A message is on its way, from when the link has it until the receiver can see it.
    Transfer,
    /// A signal without bytes is on its way.
    Signal,
    /// The rank's thread takes a message in.
    Receive,
    /// A tile waits for a signal.
    Wait,
}

/// Something that took time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceSpan {
    /// The rank of the thread or tile; of a transfer or signal, the sender.
    pub rank: Rank,
    /// The step of its schedule. `None` where the executor does it by itself, or where one message
    /// carries several.
    pub step: Option<u32>,
    /// The activity.
    pub what: SpanKind,
    /// When it began, in seconds.
    pub start: f64,
    /// When it ended, in seconds.
    pub end: f64,
    /// The other rank, if one takes part.
    pub peer: Option<Rank>,
    /// The tile. `None` where the executor does it by itself.
    pub tile: Option<u64>,
}
