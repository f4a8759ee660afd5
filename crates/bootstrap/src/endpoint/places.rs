//! Places for links, one per peer: they decide which end makes a link where both may, and which
//! waits for it.
//!
//! The rule when both ends dial at once: one end's attempt *precedes*. Its side declines the
//! other's attempt; the other side accepts and, when it is answered with a yield, waits for the
//! winner's attempt. `crates/models` explores it, without the time limits that sleeps have here.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering};

/// The interval at which a waiting thread checks whether to continue.
const POLL: Duration = Duration::from_millis(50);

/// A link, as far as this table uses it.
pub(crate) trait Closable: Clone {
    fn close(&self);
}

/// The callback for every new link.
pub(crate) type OnLink<L> = Box<dyn Fn(L) + Send + Sync>;

enum LinkPlace<L> {
    /// A thread of this endpoint is connecting to the peer.
    Dialling,
    /// Attempts of the peer were accepted, the last at this time, and one is about to become a
    /// link: this many have not failed.
    Accepting(Instant, u32),
    Ready(L),
}

/// The next step of a thread that needs a link.
pub(crate) enum DialTurn<L> {
    Take(L),
    /// Ask again.
    Wait,
    Dial,
}

/// The links of an endpoint by peer, complete and in progress.
pub(crate) struct LinkPlaces<K, L> {
    places: Mutex<HashMap<K, LinkPlace<L>>>,
    changed: Condvar,
    /// Held while a new link is announced, so that links are announced one by one, before they can
    /// be used.
    announce: Mutex<Option<OnLink<L>>>,
    closed: AtomicBool,
}

impl<K: Copy + Eq + Hash, L: Closable> LinkPlaces<K, L> {
    pub(crate) fn new() -> Self {
        Self {
            places: Mutex::new(HashMap::new()),
            changed: Condvar::new(),
            announce: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    /// Calls `on_link` for every existing link, and for every new one before it can be used.
    pub(crate) fn on_link(&self, on_link: OnLink<L>) {
        let mut announce = self.announce.lock().unwrap_or_else(PoisonError::into_inner);
        for link in self.links() {
            on_link(link);
        }
        *announce = Some(on_link);
    }

    pub(crate) fn links(&self) -> Vec<L> {
        let places = self.lock();
        let ready = places.values().filter_map(|place| match place {
            LinkPlace::Ready(link) => Some(link.clone()),
            LinkPlace::Dialling | LinkPlace::Accepting(..) => None,
        });
        ready.collect()
    }

    /// The link to the peer, if there is one.
    pub(crate) fn ready(&self, key: K) -> Option<L> {
        match self.lock().get(&key) {
            Some(LinkPlace::Ready(link)) => Some(link.clone()),
            _ => None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Removes a link for which `is_it` holds.
    pub(crate) fn forget(&self, is_it: impl Fn(&L) -> bool) {
        let keep = |place: &LinkPlace<L>| !matches!(place, LinkPlace::Ready(link) if is_it(link));
        self.lock().retain(|_, place| keep(place));
    }

    /// Closes every link, now and from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        *self.announce.lock().unwrap_or_else(PoisonError::into_inner) = None;
        for link in self.links() {
            link.close();
        }
        self.lock().clear();
        self.changed.notify_all();
    }

    /// Decides the next step. If that is to wait, waits a little. An attempt of the peer for which
    /// `is_late` holds is not waited for.
    pub(crate) fn turn(&self, key: K, is_late: impl FnOnce(Instant) -> bool) -> DialTurn<L> {
        let mut places = self.lock();
        match places.get(&key) {
            Some(LinkPlace::Ready(link)) => return DialTurn::Take(link.clone()),
            Some(LinkPlace::Dialling) => {}
            Some(LinkPlace::Accepting(since, _)) if !is_late(*since) => {}
            Some(LinkPlace::Accepting(..)) | None => {
                places.insert(key, LinkPlace::Dialling);
                return DialTurn::Dial;
            }
        }
        drop(self.changed.wait_timeout(places, POLL));
        DialTurn::Wait
    }

    /// Ends a failed attempt of this endpoint.
    pub(crate) fn end_dial(&self, key: K) {
        let mut places = self.lock();
        if matches!(places.get(&key), Some(LinkPlace::Dialling)) {
            places.remove(&key);
        }
        self.changed.notify_all();
    }

    /// Waits for an attempt of the peer, until `over` holds.
    pub(crate) fn wait_for_peer(&self, key: K, over: impl Fn() -> bool) {
        let mut places = self.lock();
        while !places.contains_key(&key) && !self.is_closed() && !over() {
            let waited = self.changed.wait_timeout(places, POLL);
            places = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether an attempt of the peer is accepted, depending on whether it precedes this endpoint's
    /// own.
    pub(crate) fn accept(&self, key: K, precedes: bool, now: Instant) -> bool {
        if self.is_closed() {
            return false;
        }
        let mut places = self.lock();
        let accepted_before = match places.get(&key) {
            Some(LinkPlace::Ready(_)) => return false,
            Some(LinkPlace::Dialling) if !precedes => return false,
            Some(LinkPlace::Accepting(_, attempts)) => *attempts,
            Some(LinkPlace::Dialling) | None => 0,
        };
        places.insert(key, LinkPlace::Accepting(now, accepted_before + 1));
        self.changed.notify_all();
        true
    }

    /// Ends a failed attempt of the peer that was accepted. It is not waited for any longer: the
    /// peer may wait for this endpoint's, or never call again.
    pub(crate) fn end_accept(&self, key: K) {
        let mut places = self.lock();
        match places.get_mut(&key) {
            Some(LinkPlace::Accepting(_, attempts)) if *attempts > 1 => *attempts -= 1,
            Some(LinkPlace::Accepting(..)) => {
                places.remove(&key);
                self.changed.notify_all();
            }
            Some(LinkPlace::Dialling | LinkPlace::Ready(_)) | None => {}
        }
    }

    /// Announces a new link, then makes it available. A second link to the same peer is closed, and
    /// the first one returned. None once the table is closed.
    pub(crate) fn install(&self, key: K, link: L) -> Option<L> {
        let announce = self.announce.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_closed() {
            link.close();
            return None;
        }
        if let Some(first) = self.ready(key) {
            link.close();
            return Some(first);
        }
        if let Some(on_link) = announce.as_ref() {
            on_link(link.clone());
        }
        self.lock().insert(key, LinkPlace::Ready(link.clone()));
        self.changed.notify_all();
        Some(link)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, LinkPlace<L>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
