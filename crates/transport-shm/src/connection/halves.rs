//! The two halves of a connection, and the streams of their messages.

use std::collections::VecDeque;

use weft_transport::fork::Descriptor;
use weft_transport::ring::{Reader, Writer};
use weft_transport::{RegionKey, Signal};

use crate::rings::Ring;

/// The first byte of every packet.
pub(super) const TAG_MESSAGE: u8 = 0;
pub(super) const TAG_GOODBYE: u8 = 1;
/// A region's key: with the descriptor of its memory, the receiver may map it; without, it drops
/// its mapping.
pub(super) const TAG_REGION: u8 = 2;
/// Added to a tag: the next message is in the ring.
pub(super) const THEN_RING: u8 = 0x80;

/// See [Note: Two streams] in `mod.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageStream {
    Ring,
    Socket,
}

/// The receiving half. Locked while messages are received, so that they stay in order.
pub(super) struct ShmIncoming {
    pub(super) ring: Ring,
    pub(super) reader: Reader,
    /// The stream of the next message.
    pub(super) stream: MessageStream,
    pub(super) record: Vec<u8>,
    pub(super) packet: Vec<u8>,
}

impl ShmIncoming {
    pub(super) fn new(ring: Ring) -> ShmIncoming {
        ShmIncoming {
            ring,
            reader: Reader::default(),
            stream: MessageStream::Ring,
            record: Vec::new(),
            packet: Vec::new(),
        }
    }
}

/// The sending half.
pub(super) struct ShmOutgoing {
    pub(super) ring: Ring,
    pub(super) writer: Writer,
    /// The stream for the next message.
    pub(super) stream: MessageStream,
    /// Entries that wait for room in the socket. Empty while the ring is written.
    pub(super) queue: VecDeque<QueuedMessage>,
}

impl ShmOutgoing {
    pub(super) fn new(ring: Ring) -> ShmOutgoing {
        ShmOutgoing {
            ring,
            writer: Writer::default(),
            stream: MessageStream::Ring,
            queue: VecDeque::new(),
        }
    }
}

/// An entry that waits for its turn.
pub(super) enum QueuedMessage {
    Packet {
        tag: u8,
        bytes: Vec<u8>,
        descriptors: Vec<Descriptor>,
    },
    Inject {
        region: RegionKey,
        offset: u64,
        bytes: Vec<u8>,
        signal: Option<Signal>,
    },
}
