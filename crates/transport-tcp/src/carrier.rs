//! What a link keeps of each of its connections.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use weft_transport::Regions;

use crate::incoming::TcpIncoming;
use crate::outgoing::{CLASSES, TcpOutgoing};

/// One connection's share of a link.
pub(crate) struct Carrier {
    pub(crate) outgoing: Mutex<TcpOutgoing>,
    /// Bytes that have not left.
    pub(crate) waiting: AtomicU64,
    /// By class: the lowest ticket that is under way, or the next one there will be.
    pub(crate) first_under_way: [AtomicU64; CLASSES.len()],
    /// Up to where the last fence for this connection holds messages.
    pub(crate) fenced: AtomicU64,
    pub(crate) incoming: Mutex<TcpIncoming>,
    /// How far everything that came is understood, in bytes.
    pub(crate) arrived: AtomicU64,
    /// The peer has said goodbye here.
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

    /// Nothing more comes by it.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }
}
