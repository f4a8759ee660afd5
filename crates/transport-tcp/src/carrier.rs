//! The state that a link keeps per connection.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use weft_transport::{Regions, TrafficCounts};

use crate::broken::{broken_by, is_given_up};
use crate::class::CLASSES;
use crate::incoming::TcpIncoming;
use crate::outgoing::TcpOutgoing;
use crate::resumption::Resumption;

/// One connection of a link, over all sockets that it has had.
#[derive(Debug)]
pub(crate) struct Carrier {
    pub(crate) outgoing: Mutex<TcpOutgoing>,
    /// Bytes that are not sent yet.
    pub(crate) waiting: AtomicU64,
    /// By class: the lowest ticket that is not sent, or the next one to be issued.
    pub(crate) first_under_way: [AtomicU64; CLASSES.len()],
    /// By class: the lowest ticket whose memory is still read, or the next one to be issued.
    pub(crate) first_lent: [AtomicU64; CLASSES.len()],
    /// The position up to which the last fence for this connection holds messages back.
    pub(crate) fenced: AtomicU64,
    pub(crate) incoming: Mutex<TcpIncoming>,
    /// The position up to which received bytes are parsed.
    pub(crate) arrived: AtomicU64,
    /// The position up to which the peer has confirmed what was sent.
    pub(crate) taken: AtomicU64,
    /// The peer has sent its goodbye on this connection.
    pub(crate) left: AtomicBool,
    /// Whether the socket is watched for writability.
    pub(crate) writing: AtomicBool,
    /// The socket is not used: it broke.
    pub(crate) broken: AtomicBool,
    pub(crate) line: Mutex<Line>,
    /// Notified when the connection is whole again, and when the link ends.
    pub(crate) repaired: Condvar,
}

/// The sockets of a connection, one after the other.
#[derive(Default, Debug)]
pub(crate) struct Line {
    /// The number of the call that made the current one: the first is 0.
    pub(crate) epoch: u32,
    /// The last number that this end has used for a call.
    pub(crate) called: u32,
    /// Since when and why there is no current one.
    pub(crate) broken: Option<Break>,
    /// It is closed.
    pub(crate) aside: bool,
    /// A thread makes a new one.
    pub(crate) renewing: bool,
    /// The traffic of the former ones.
    pub(crate) past: Option<TrafficCounts>,
    /// How many were replaced.
    pub(crate) renewals: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct Break {
    pub(crate) why: String,
    pub(crate) since: Instant,
}

impl Break {
    pub(crate) fn now(why: String) -> Self {
        Self {
            why,
            since: Instant::now(),
        }
    }

    /// By an error of a socket on which nothing has arrived for this time: where TCP has given up
    /// the peer, that is how long it has been silent.
    pub(crate) fn by(error: &io::Error, quiet: Option<Duration>) -> Self {
        let silence = quiet.filter(|_| is_given_up(error)).unwrap_or_default();
        let now = Instant::now();
        Self {
            why: broken_by(error),
            since: now.checked_sub(silence).unwrap_or(now),
        }
    }
}

impl Line {
    /// Adds the traffic of a socket that is closed.
    pub(crate) fn count(&mut self, traffic: Option<TrafficCounts>) {
        self.past = match (self.past, traffic) {
            (Some(past), Some(traffic)) => Some(past.plus(traffic)),
            (past, traffic) => past.or(traffic),
        };
    }
}

impl Carrier {
    pub(crate) fn new(
        number: usize,
        connections: usize,
        regions: Arc<Regions>,
        resumption: Resumption,
    ) -> Self {
        let others = if number == 0 { connections - 1 } else { 0 };
        let first = || CLASSES.map(|class| AtomicU64::new(class.ticket(number, 1).0));
        Self {
            outgoing: Mutex::new(TcpOutgoing::of(number, resumption)),
            waiting: AtomicU64::new(0),
            first_under_way: first(),
            first_lent: first(),
            fenced: AtomicU64::new(0),
            incoming: Mutex::new(TcpIncoming::new(regions, others)),
            arrived: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            left: AtomicBool::new(false),
            writing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            line: Mutex::default(),
            repaired: Condvar::new(),
        }
    }

    /// Whether nothing more arrives on it.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    /// Publishes the state of its sending half, for threads that do not lock it.
    pub(crate) fn publish(&self, outgoing: &TcpOutgoing) {
        for class in CLASSES {
            let (sent, lent) = (outgoing.first_under_way(class), outgoing.first_lent(class));
            // In this order: a put whose memory is not read any more is sent.
            self.first_under_way[class as usize].store(sent.0, Ordering::Release);
            self.first_lent[class as usize].store(lent.0, Ordering::Release);
        }
        self.waiting.store(outgoing.waiting(), Ordering::Relaxed);
    }

    /// Publishes the state of its receiving half.
    pub(crate) fn note_received(&self, incoming: &TcpIncoming) {
        self.arrived.store(incoming.position(), Ordering::Release);
        self.taken.store(incoming.confirmed, Ordering::Release);
    }
}
