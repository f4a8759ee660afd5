//! The state that a link keeps per connection.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use weft_transport::Regions;

use crate::incoming::TcpIncoming;
use crate::outgoing::{CLASSES, TcpOutgoing};

/// One connection of a link.
pub(crate) struct Carrier {
    pub(crate) outgoing: Mutex<TcpOutgoing>,
    /// Bytes that are not sent yet.
    pub(crate) waiting: AtomicU64,
    /// By class: the lowest ticket that is under way, or the next one to be issued.
    pub(crate) first_under_way: [AtomicU64; CLASSES.len()],
    /// The position up to which the last fence for this connection holds messages back.
    pub(crate) fenced: AtomicU64,
    pub(crate) incoming: Mutex<TcpIncoming>,
    /// The position up to which received bytes are parsed.
    pub(crate) arrived: AtomicU64,
    /// The peer has sent its goodbye on this connection.
    pub(crate) left: AtomicBool,
    /// Whether the socket is watched for writability.
    pub(crate) writing: AtomicBool,
}

impl Carrier {
    pub(crate) fn new(number: usize, connections: usize, regions: Arc<Regions>) -> Self {
        let others = if number == 0 { connections - 1 } else { 0 };
        Self {
            outgoing: Mutex::new(TcpOutgoing::of(number)),
            waiting: AtomicU64::new(0),
            first_under_way: CLASSES.map(|class| AtomicU64::new(class.ticket(number, 1).0)),
            fenced: AtomicU64::new(0),
            incoming: Mutex::new(TcpIncoming::new(regions, others)),
            arrived: AtomicU64::new(0),
            left: AtomicBool::new(false),
            writing: AtomicBool::new(false),
        }
    }

    /// Whether nothing more arrives on it.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}
