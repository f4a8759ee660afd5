//! The link table of an endpoint: at most one link per peer and transport kind, from either side's
//! dial.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, Link, LinkError, LinkEvents, Transport, TransportKind};

use crate::bootstrap::store::CANCEL_POLL;

/// How long an accepted attempt may take to become a link before this side dials itself.
const ACCEPT_GRACE: Duration = Duration::from_secs(2);
/// The same where the peer would give way, though its own attempt is accepted already and goes on:
/// each end might keep another of the two links, and close the other. On a busy host of hundreds of
/// ranks attempts take seconds.
const ACCEPT_GRACE_BEFORE_PRECEDENCE: Duration = Duration::from_secs(20);
/// How long to wait for the attempt of a peer that claims precedence before trying again.
const YIELD_GRACE: Duration = Duration::from_millis(200);

type Key = (EndpointId, TransportKind);
type OnLink = Box<dyn Fn(Arc<dyn Link>) + Send + Sync>;

enum Slot {
    /// A thread of this endpoint is connecting to the peer.
    Dialling,
    /// The peer's attempt was accepted at this time and is about to become a link.
    Accepting(Instant),
    Ready(Arc<dyn Link>),
}

/// What a thread that needs a link is to do.
enum DialTurn {
    Take(Arc<dyn Link>),
    Wait,
    Dial,
}

/// The rule when both ends dial at once: the attempt of the endpoint with the smaller id wins. Its
/// side refuses the other's attempt (*yield*), the other side accepts and, told to yield, waits for
/// the winner's attempt.
pub(super) struct LinkTable {
    me: EndpointId,
    slots: Mutex<HashMap<Key, Slot>>,
    changed: Condvar,
    /// Held while a new link is announced, so that links are announced one by one, before anyone
    /// can use them.
    announce: Mutex<Option<OnLink>>,
    closed: AtomicBool,
}

impl LinkTable {
    pub(super) fn new(me: EndpointId) -> Self {
        Self {
            me,
            slots: Mutex::new(HashMap::new()),
            changed: Condvar::new(),
            announce: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// Calls `on_link` for every link there is, and for every one to come before it can be used.
    pub(super) fn on_link(&self, on_link: OnLink) {
        let mut announce = self.announce.lock().unwrap_or_else(PoisonError::into_inner);
        for link in self.links() {
            on_link(link);
        }
        *announce = Some(on_link);
    }

    pub(super) fn links(&self) -> Vec<Arc<dyn Link>> {
        let slots = self.lock();
        let ready = slots.values().filter_map(|slot| match slot {
            Slot::Ready(link) => Some(link.clone()),
            Slot::Dialling | Slot::Accepting(_) => None,
        });
        ready.collect()
    }

    /// The link to the peer, if there is one.
    pub(super) fn ready(&self, key: Key) -> Option<Arc<dyn Link>> {
        match self.lock().get(&key) {
            Some(Slot::Ready(link)) => Some(link.clone()),
            _ => None,
        }
    }

    /// The link to the peer; makes it if there is none.
    pub(super) fn link(
        &self,
        peer: EndpointId,
        address: &[u8],
        transport: &dyn Transport,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<dyn Link>, LinkError> {
        let key = (peer, transport.kind());
        loop {
            match self.turn(key, deadline, cancel)? {
                DialTurn::Take(link) => return Ok(link),
                DialTurn::Wait => {}
                DialTurn::Dial => match transport.connect(peer, address, deadline, cancel) {
                    Ok(Some(link)) => return self.install(key, link),
                    Ok(None) => {
                        self.end_dial(key);
                        self.wait_for_peer(key, cancel);
                    }
                    Err(error) => {
                        self.end_dial(key);
                        return Err(error);
                    }
                },
            }
        }
    }

    pub(super) fn forget(&self, link: &Arc<dyn Link>) {
        let is_it =
            |slot: &mut Slot| matches!(slot, Slot::Ready(ready) if Arc::ptr_eq(ready, link));
        self.lock().retain(|_, slot| !is_it(slot));
    }

    /// Closes every link, now and from now on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        *self.announce.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for link in self.links() {
            link.close();
        }
        self.lock().clear();
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides what to do next. Where that is to wait, waits a little.
    fn turn(
        &self,
        key: Key,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<DialTurn, LinkError> {
        if cancel.load(Ordering::Relaxed) || self.closed.load(Ordering::SeqCst) {
            return Err(LinkError::Cancelled);
        }
        if Instant::now() >= deadline {
            return Err(LinkError::TimedOut("connecting".into()));
        }
        let mut slots = self.lock();
        match slots.get(&key) {
            Some(Slot::Ready(link)) => Ok(DialTurn::Take(link.clone())),
            Some(Slot::Accepting(since)) if since.elapsed() >= self.accept_grace(key.0) => {
                slots.insert(key, Slot::Dialling);
                Ok(DialTurn::Dial)
            }
            Some(Slot::Accepting(_) | Slot::Dialling) => {
                drop(self.changed.wait_timeout(slots, CANCEL_POLL));
                Ok(DialTurn::Wait)
            }
            None => {
                slots.insert(key, Slot::Dialling);
                Ok(DialTurn::Dial)
            }
        }
    }

    fn accept_grace(&self, peer: EndpointId) -> Duration {
        match self.me < peer {
            true => ACCEPT_GRACE_BEFORE_PRECEDENCE,
            false => ACCEPT_GRACE,
        }
    }

    fn end_dial(&self, key: Key) {
        let mut slots = self.lock();
        if matches!(slots.get(&key), Some(Slot::Dialling)) {
            slots.remove(&key);
        }
        self.changed.notify_all();
    }

    fn wait_for_peer(&self, key: Key, cancel: &AtomicBool) {
        let until = Instant::now() + YIELD_GRACE;
        let mut slots = self.lock();
        while !slots.contains_key(&key) {
            let now = Instant::now();
            if now >= until || cancel.load(Ordering::Relaxed) {
                return;
            }
            let waited = (self.changed).wait_timeout(slots, CANCEL_POLL.min(until - now));
            slots = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Announces a new link, then lets others find it. A second link to the same peer is closed.
    fn install(&self, key: Key, link: Arc<dyn Link>) -> Result<Arc<dyn Link>, LinkError> {
        let announce = self.announce.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::SeqCst) {
            link.close();
            return Err(LinkError::Cancelled);
        }
        if let Some(Slot::Ready(first)) = self.lock().get(&key) {
            link.close();
            return Ok(first.clone());
        }
        if let Some(on_link) = announce.as_ref() {
            on_link(link.clone());
        }
        self.lock().insert(key, Slot::Ready(link.clone()));
        self.changed.notify_all();
        Ok(link)
    }
}

/// The table's side of one transport's incoming connections.
pub(super) struct IncomingLinks {
    pub(super) table: Arc<LinkTable>,
    pub(super) kind: TransportKind,
}

impl LinkEvents for IncomingLinks {
    fn accept(&self, peer: EndpointId) -> bool {
        let table = &self.table;
        if table.closed.load(Ordering::SeqCst) {
            return false;
        }
        let mut slots = table.lock();
        let accepted = match slots.get(&(peer, self.kind)) {
            Some(Slot::Ready(_)) => false,
            Some(Slot::Dialling) => peer < table.me,
            Some(Slot::Accepting(_)) | None => true,
        };
        if accepted {
            slots.insert((peer, self.kind), Slot::Accepting(Instant::now()));
            table.changed.notify_all();
        }
        accepted
    }

    fn connected(&self, link: Arc<dyn Link>) {
        // Refused only when the endpoint closes, and then the link is closed as well.
        let _ = self.table.install((link.peer(), self.kind), link);
    }
}
