//! Links between endpoints of one process: for tests, and for ranks that are threads.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::{
    EndpointId, Inbox, Kind, Link, LinkError, LinkEvents, Local, MappedPeer, PeerMemory, Progress,
    Signal, Transport,
};

const MESSAGE_BYTES_MAX: usize = 64 * 1024;

static LISTENERS: Mutex<BTreeMap<EndpointId, Listener>> = Mutex::new(BTreeMap::new());

/// Joins endpoints of one process.
pub struct LoopbackTransport {
    local: Local,
}

impl LoopbackTransport {
    /// A transport for this endpoint.
    pub fn new(local: Local) -> LoopbackTransport {
        LoopbackTransport { local }
    }
}

impl Transport for LoopbackTransport {
    fn kind(&self) -> Kind {
        Kind::Loopback
    }

    fn address(&self) -> Vec<u8> {
        self.local.token.to_vec()
    }

    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
        let listener = Listener {
            local: self.local.clone(),
            events,
        };
        locked(&LISTENERS).insert(self.local.id, listener);
        Ok(())
    }

    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        _: Instant,
        _: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let listener = locked(&LISTENERS).get(&peer).cloned().ok_or_else(|| {
            LinkError::Refused(format!("{peer:?} does not listen in this process"))
        })?;
        if address != listener.local.token {
            return Err(LinkError::Refused(
                "the address carries another token".into(),
            ));
        }
        if !listener.events.accept(self.local.id) {
            return Ok(None);
        }
        let [there, here] = [Arc::new(Mailbox::default()), Arc::new(Mailbox::default())];
        let ours = LoopbackLink::new(&listener.local, Arc::clone(&here), Arc::clone(&there))?;
        let theirs = LoopbackLink::new(&self.local, there, here)?;
        listener.events.connected(Arc::new(theirs));
        listener.local.bell.knock();
        Ok(Some(Arc::new(ours)))
    }

    fn close(&self) {
        locked(&LISTENERS).remove(&self.local.id);
    }
}

impl Drop for LoopbackTransport {
    fn drop(&mut self) {
        self.close();
    }
}

#[derive(Clone)]
struct Listener {
    local: Local,
    events: Arc<dyn LinkEvents>,
}

/// One direction's messages. The link that reads it and the link that fills it share it.
#[derive(Default)]
struct Mailbox {
    messages: Mutex<VecDeque<(Vec<u8>, Vec<OwnedFd>)>>,
    /// How the link that fills it ended: [`OPEN`], [`LEFT`] or [`GONE`].
    writer: AtomicU8,
}

const OPEN: u8 = 0;
const LEFT: u8 = 1;
const GONE: u8 = 2;

struct LoopbackLink {
    id: EndpointId,
    peer: MappedPeer,
    incoming: Arc<Mailbox>,
    outgoing: Arc<Mailbox>,
}

impl LoopbackLink {
    fn new(
        peer: &Local,
        incoming: Arc<Mailbox>,
        outgoing: Arc<Mailbox>,
    ) -> io::Result<LoopbackLink> {
        let event = peer.bell.descriptor().try_clone_to_owned()?;
        Ok(LoopbackLink {
            id: peer.id,
            peer: MappedPeer::new(Arc::clone(&peer.pool), event)?,
            incoming,
            outgoing,
        })
    }

    /// An error if either side has ended the link.
    fn check_open(&self) -> Result<(), LinkError> {
        if self.outgoing.writer.load(Ordering::Acquire) != OPEN {
            return Err(LinkError::Left);
        }
        self.check_peer()
    }

    fn check_peer(&self) -> Result<(), LinkError> {
        match self.incoming.writer.load(Ordering::Acquire) {
            OPEN => Ok(()),
            LEFT => Err(LinkError::Left),
            _ => Err(LinkError::Gone("the peer dropped its end".into())),
        }
    }

    fn end(&self, how: u8) {
        let writer = &self.outgoing.writer;
        if writer
            .compare_exchange(OPEN, how, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            // Not reached in a forked child, where nobody listens for it.
            let _ = self.peer.knock();
        }
    }
}

impl Link for LoopbackLink {
    fn kind(&self) -> Kind {
        Kind::Loopback
    }

    fn peer(&self) -> EndpointId {
        self.id
    }

    fn memory(&self) -> Option<PeerMemory> {
        Some(self.peer.memory())
    }

    fn put(
        &self,
        _token: u64,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
    ) -> Result<Progress, LinkError> {
        self.check_open()?;
        self.peer.put(offset, pieces, signal)?;
        Ok(Progress::Done)
    }

    fn abandon(&self, _token: u64) {}

    fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.check_open()?;
        self.peer.signal(signal)
    }

    fn message(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), LinkError> {
        self.check_open()?;
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(LinkError::Io(io::ErrorKind::InvalidInput.into()));
        }
        let descriptors = descriptors
            .iter()
            .map(BorrowedFd::try_clone_to_owned)
            .collect::<io::Result<Vec<_>>>()?;
        locked(&self.outgoing.messages).push_back((bytes.to_vec(), descriptors));
        self.peer.knock()
    }

    fn flush(&self) -> Result<Progress, LinkError> {
        Ok(Progress::Done)
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }

    fn receive(&self, inbox: &mut dyn Inbox) -> Result<(), LinkError> {
        // Looked at first: what the peer sent before it ended is then in the queue.
        let ended = self.check_peer();
        loop {
            let next = locked(&self.incoming.messages).pop_front();
            match next {
                Some((bytes, descriptors)) => inbox.message(&bytes, descriptors),
                None => break,
            }
        }
        ended?;
        self.check_open()
    }

    fn grant(&self, _range: Range<u64>) {}

    fn revoke(&self, _range: Range<u64>) {}

    fn close(&self) {
        self.end(LEFT);
    }
}

impl Drop for LoopbackLink {
    fn drop(&mut self) {
        self.end(GONE);
    }
}

/// Nothing here is left half-done by a panic, so a poisoned lock is as good as any.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
