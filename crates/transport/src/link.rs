//! The traits that transports implement.

use std::fmt;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use crate::LinkError;

/// Identifies an endpoint: random, never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(pub u128);

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

/// Which transport a link belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Endpoints within one process.
    Loopback,
    /// Shared memory between processes of one host.
    Shm,
    /// TCP.
    Tcp,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Loopback => "loopback",
            Kind::Shm => "shm",
            Kind::Tcp => "tcp",
        })
    }
}

/// A 64-bit word in the peer's pool and what to store there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signal {
    /// Byte offset in the peer's pool, a multiple of 8.
    pub offset: u64,
    /// The value to store.
    pub value: u64,
}

/// Whether a call has done what it was asked to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// All of it.
    Done,
    /// Not all of it: call again with the same arguments.
    Pending,
}

/// A peer's pool where loads and stores reach it. Valid while the link exists.
#[derive(Clone, Copy, Debug)]
pub struct PeerMemory {
    /// The pool's first byte, in this address space.
    pub base: NonNull<u8>,
    /// The pool's length in bytes.
    pub len: usize,
}

// SAFETY: a plain address; whoever dereferences it answers for the access.
unsafe impl Send for PeerMemory {}
// SAFETY: as above.
unsafe impl Sync for PeerMemory {}

/// Takes what arrives on a link.
pub trait Inbox {
    /// A control message, with the descriptors that came with it.
    fn message(&mut self, bytes: &[u8], descriptors: Vec<OwnedFd>);
}

/// A connection between two endpoints, usable from any thread.
///
/// Everything sent over one link (puts, signals, messages) takes effect at the peer in the order of the calls.
/// No call blocks.
pub trait Link: Send + Sync {
    /// The transport.
    fn kind(&self) -> Kind;

    /// The endpoint at the other end.
    fn peer(&self) -> EndpointId;

    /// The peer's pool, if loads and stores reach it.
    fn memory(&self) -> Option<PeerMemory>;

    /// Writes the pieces, one behind the other, into the peer's pool at `offset`, then stores the signal.
    ///
    /// On `Pending`, part of the bytes may be on their way: the caller keeps the pieces unchanged and calls again with the same arguments
    /// and the same `token`, or calls [`Link::abandon`]. Puts with other tokens are `Pending` meanwhile. A
    /// put of at most 256 bytes is copied and always `Done`, unless another put is under way.
    /// On `Done`, the pieces may be reused.
    fn put(
        &self,
        token: u64,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
    ) -> Result<Progress, LinkError>;

    /// Gives up a put that is under way: what is missing is sent as zeros, without its signal.
    fn abandon(&self, token: u64);

    /// Stores a signal in the peer's pool. Queued if another put is under way.
    fn signal(&self, signal: Signal) -> Result<(), LinkError>;

    /// Sends a control message of at most 64 KiB, and asks the peer to look at it. Queued if it cannot go at once.
    /// Descriptors can be passed only over shared-memory and loopback links.
    fn message(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError>;

    /// Sends a message as [`Link::message`] does, of these pieces, to a peer that asks for it: unless it sleeps on its bell, it is not
    /// told, but looks whether it [has mail](Link::has_mail) when it waits for some.
    fn mail(&self, pieces: &[&[u8]]) -> Result<(), LinkError> {
        self.message(&pieces.concat(), &[])
    }

    /// Whether mail lies in memory, for [`Link::take_mail`]. Costs a load.
    fn has_mail(&self) -> bool {
        false
    }

    /// Takes in the mail that lies in memory, and what was sent between. As [`Link::receive`], but the link's end may go unnoticed.
    fn take_mail(&self, _inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        Ok(())
    }

    /// Sends what is queued; `Pending` if some remains.
    fn flush(&self) -> Result<Progress, LinkError>;

    /// What to watch for readability (and, while [`Link::flush`] is `Pending`, for writability), if anything.
    fn descriptor(&self) -> Option<RawFd>;

    /// Takes in whatever has arrived, without blocking. An error means that the link is of no more use.
    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError>;

    /// Allows the peer to write to this range of the local pool.
    fn grant(&self, range: Range<u64>);

    /// Takes that back. A transport that checks writes drops later ones silently (they are late, not hostile)
    /// once the range has been granted before.
    fn revoke(&self, range: Range<u64>);

    /// Says goodbye and closes. Idempotent.
    fn close(&self);
}

/// Decides about incoming connections and takes the links that come of them.
pub trait LinkEvents: Send + Sync {
    /// Whether to accept a connection from this authenticated peer. `false` when this endpoint is connecting to the same
    /// peer at the same moment and its own attempt shall win, or has a link already.
    fn accept(&self, peer: EndpointId) -> bool;

    /// A connection that was accepted is ready.
    fn connected(&self, link: Arc<dyn Link>);
}

/// Makes links of one kind for one endpoint.
pub trait Transport: Send + Sync {
    /// The kind of links that it makes.
    fn kind(&self) -> Kind;

    /// What a peer needs in order to connect here: published at the rendezvous, opaque to everybody else.
    fn address(&self) -> Vec<u8>;

    /// Starts taking in connections, on a thread of its own, until [`Transport::close`].
    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError>;

    /// Connects to the endpoint with this address. Blocks until done, refused, past the deadline, or cancelled (noticed within 50 ms).
    /// `Ok(None)`: the peer answered that its own attempt to connect here shall win; wait for it.
    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError>;

    /// Stops listening. Links stay as they are.
    fn close(&self);
}
