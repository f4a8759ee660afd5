//! The connection of one link: the mapped pool, the ring and the socket, and the order between
//! them.
//!
//! [Note: Two streams] Messages are one sequence, of which parts are sent through the ring and
//! parts through the socket. Each stream marks where the sequence changes to the other: the ring by
//! a diversion, the socket by a packet with [`THEN_RING`]. The writer diverts for operations that
//! only the socket can do (passing regions' descriptors, waking a peer that makes no calls) and
//! when the ring is full; it returns to the ring with the first packet behind which nothing waits,
//! once half of the ring is free.

mod halves;
mod incoming;
mod outgoing;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use weft_transport::fork::Descriptor;
use weft_transport::ring::Breach;
use weft_transport::{EndpointId, FlushState, LinkError, MappedPeer, RegionKey, Segment};

use crate::process::PeerProcess;
use crate::rings::Rings;
use crate::watch::{ConnectionWatcher, Watched};
use halves::{ShmIncoming, ShmOutgoing, TAG_GOODBYE, TAG_REGION};

/// How long the proof of a process's end may lag behind the end of its socket.
const PROOF_TIMEOUT: Duration = Duration::from_millis(20);

/// The states of a connection.
const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const LEFT: u8 = 2;
const GONE: u8 = 3;
const BROKEN: u8 = 4;

/// A connected peer.
///
/// Puts and signals are written directly to the peer's regions, unless messages wait for room in
/// the socket: then everything queues behind them, so that it takes effect in the order of the
/// calls.
pub(crate) struct ShmConnection {
    id: EndpointId,
    /// This connection's key in the watching thread.
    key: u64,
    peer: MappedPeer,
    process: PeerProcess,
    socket: Descriptor,
    watch: Arc<ConnectionWatcher<ShmConnection>>,
    state: AtomicU8,
    /// Whether the queue holds anything. Changed under the queue's lock; cleared after the last
    /// entry took effect.
    backlog: AtomicBool,
    outgoing: Mutex<ShmOutgoing>,
    /// Locked while messages are received, so that they stay in order.
    incoming: Mutex<ShmIncoming>,
    /// The regions beside the pool that the peer may map.
    granted: Mutex<BTreeSet<RegionKey>>,
    /// The peer's protocol violation, if any.
    breach: OnceLock<Breach>,
}

impl ShmConnection {
    pub(crate) fn new(
        id: EndpointId,
        peer: MappedPeer,
        rings: Rings,
        socket: Descriptor,
        watch: Arc<ConnectionWatcher<ShmConnection>>,
    ) -> io::Result<ShmConnection> {
        Ok(ShmConnection {
            id,
            key: watch.new_key(),
            peer,
            process: PeerProcess::behind(socket.as_fd())?,
            socket,
            watch,
            state: AtomicU8::new(OPEN),
            backlog: AtomicBool::new(false),
            outgoing: Mutex::new(ShmOutgoing::new(rings.outgoing)),
            incoming: Mutex::new(ShmIncoming::new(rings.incoming)),
            granted: Mutex::default(),
            breach: OnceLock::new(),
        })
    }

    pub(crate) fn id(&self) -> EndpointId {
        self.id
    }

    pub(crate) fn peer(&self) -> &MappedPeer {
        &self.peer
    }

    pub(crate) fn watch(&self) -> &ConnectionWatcher<ShmConnection> {
        &self.watch
    }

    /// Whether a put or a signal must queue behind messages.
    #[inline]
    pub(crate) fn has_backlog(&self) -> bool {
        self.backlog.load(Ordering::Acquire)
    }

    /// Whether everything sent before has taken effect, so that the peer's memory can be read in
    /// order.
    pub(crate) fn is_clear(&self) -> Result<bool, LinkError> {
        self.check_open()?;
        Ok(!self.has_backlog() || self.flush()? == FlushState::Done)
    }

    /// Fails if the link has ended, or if this process is a forked child.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<(), LinkError> {
        match self.state.load(Ordering::Acquire) {
            OPEN => Ok(()),
            ended => Err(self.end(ended)),
        }
    }

    #[cold]
    fn end(&self, state: u8) -> LinkError {
        match state {
            GONE => LinkError::Gone(self.loss()),
            BROKEN => LinkError::Protocol(self.breach.get().cloned().unwrap_or_default()),
            _ => LinkError::Left,
        }
    }

    fn loss(&self) -> String {
        // A process in another PID namespace has no number here.
        let process = match self.process.number() {
            0 => "its process (in another PID namespace)".into(),
            number => format!("process {number}"),
        };
        match self.peer_has_ended() {
            true => format!("{process} ended"),
            false => format!("the connection to {process} ended without a goodbye"),
        }
    }

    /// Whether the kernel has reported the end of the peer's process.
    pub(crate) fn peer_has_ended(&self) -> bool {
        self.peer.check_generation().is_ok() && self.process.has_ended(Duration::ZERO)
    }

    /// Handles the end of the peer's socket. If its process is ending, the proof follows a moment
    /// later.
    #[cold]
    fn socket_ended(&self) {
        self.process.has_ended(PROOF_TIMEOUT);
        self.ended(GONE);
    }

    /// Grants the peer a region, which it maps.
    pub(crate) fn grant(&self, key: RegionKey, segment: &Segment) -> Result<(), LinkError> {
        if !self.locked_granted().insert(key) {
            return Ok(());
        }
        self.send_region(key, &[segment.descriptor()])
    }

    /// Makes the peer drop its mapping of a region.
    pub(crate) fn withdraw(&self, key: RegionKey) {
        if self.locked_granted().remove(&key) {
            // A failure means that the link has ended.
            let _ = self.send_region(key, &[]);
        }
    }

    fn send_region(&self, key: RegionKey, with: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.check_generation()?;
        let (mut outgoing, bytes) = (self.locked_outgoing(), key.0.to_le_bytes());
        self.send_packet(&mut outgoing, TAG_REGION, &bytes, with)
    }

    fn locked_granted(&self) -> MutexGuard<'_, BTreeSet<RegionKey>> {
        self.granted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a goodbye. True if it was sent, false if it waits in the queue.
    pub(crate) fn close(&self) -> bool {
        if self.peer.check_generation().is_err() || !self.ended_now(CLOSED) {
            return true;
        }
        // A failure means that the peer has ended too, and needs no goodbye.
        let _ = self.send_packet(&mut self.locked_outgoing(), TAG_GOODBYE, &[], &[]);
        !self.has_backlog()
    }

    fn ended(&self, state: u8) {
        self.ended_now(state);
    }

    #[cold]
    fn broken(&self, breach: Breach) {
        // Set before the state. Only the first violation counts.
        let _ = self.breach.set(breach);
        self.ended(BROKEN);
    }

    /// The result, or the end of the link if the peer has violated the ring's protocol.
    #[inline]
    fn checked<T>(&self, result: Result<T, Breach>) -> Result<T, LinkError> {
        result.map_err(|breach| {
            self.broken(breach.clone());
            LinkError::Protocol(breach)
        })
    }

    fn ended_now(&self, state: u8) -> bool {
        self.state
            .compare_exchange(OPEN, state, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl Watched for ShmConnection {
    fn key(&self) -> u64 {
        self.key
    }

    fn raw_socket(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn flush(&self) -> Result<FlushState, LinkError> {
        ShmConnection::flush(self)
    }
}

#[cfg(test)]
mod tests;
