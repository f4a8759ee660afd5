//! The link table of an endpoint: at most one link per peer and transport kind, from either side's
//! dial.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::{
    Doorbell, EndpointId, Link, LinkError, LinkEvents, Standing, Transport, TransportKind,
};

use super::places::{Closable, DialTurn, LinkPlaces, OnLink};
use super::renewals::Renewals;

/// How long an accepted attempt may take to become a link before this side dials itself.
const ACCEPT_GRACE: Duration = Duration::from_secs(2);
/// The same where the peer would yield, although its own attempt is accepted already and continues:
/// each end could keep another of the two links, and close the other. On a busy host of hundreds of
/// ranks attempts take seconds.
const ACCEPT_GRACE_BEFORE_PRECEDENCE: Duration = Duration::from_secs(20);
/// How long to wait for the attempt of a peer that claims precedence before trying again.
const YIELD_GRACE: Duration = Duration::from_millis(200);

/// The interval of checks whether a link is still silent.
const SILENT_POLL: Duration = Duration::from_millis(5);

type Key = (EndpointId, TransportKind);

impl Closable for Arc<dyn Link> {
    fn close(&self) {
        Link::close(&**self);
    }
}

/// The attempt of the endpoint with the smaller id precedes.
pub(super) struct LinkTable {
    me: EndpointId,
    places: LinkPlaces<Key, Arc<dyn Link>>,
    shortage: ShortageCount,
}

impl LinkTable {
    pub(super) fn new(me: EndpointId, doorbell: Arc<Doorbell>) -> Self {
        Self {
            me,
            places: LinkPlaces::new(),
            shortage: ShortageCount::new(doorbell),
        }
    }

    /// Whether callers have waited without result because of missing descriptors since the last
    /// call.
    pub(super) fn take_descriptor_shortage(&self) -> bool {
        self.shortage.take()
    }

    /// See [`LinkPlaces::on_link`].
    pub(super) fn on_link(&self, on_link: OnLink<Arc<dyn Link>>) {
        self.places.on_link(on_link);
    }

    /// The link to the peer, if there is a usable one.
    pub(super) fn ready(&self, key: Key) -> Option<Arc<dyn Link>> {
        let ready = self.places.ready(key);
        ready.filter(|link| link.standing() == Standing::Good)
    }

    /// The link to the peer; makes it if there is none. A silent link is waited for until it is
    /// usable again, or ends: a group that took it before would end with it.
    pub(super) fn link(
        &self,
        peer: EndpointId,
        address: &[u8],
        transport: &dyn Transport,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<dyn Link>, LinkError> {
        let key = (peer, transport.kind());
        let grace = self.accept_grace(peer);
        let shortages = self.shortage.times();
        loop {
            if cancel.load(Ordering::Relaxed) || self.places.is_closed() {
                return Err(LinkError::Cancelled);
            }
            if Instant::now() >= deadline {
                return Err(LinkError::TimedOut("connecting".into()));
            }
            // The awaited peer may be one of the callers that wait without result.
            if self.shortage.times() != shortages {
                let limit = io::Error::from_raw_os_error(libc::EMFILE);
                return Err(LinkError::Io(limit));
            }
            match self.places.turn(key, |since| since.elapsed() >= grace) {
                DialTurn::Take(link) => match link.standing() {
                    Standing::Good => return Ok(link),
                    Standing::Silent => thread::sleep(SILENT_POLL),
                    Standing::Ended => self.forget(&link),
                },
                DialTurn::Wait => {}
                DialTurn::Dial => match transport.connect(peer, address, deadline, cancel) {
                    Ok(Some(link)) => {
                        let installed = self.places.install(key, link);
                        return installed.ok_or(LinkError::Cancelled);
                    }
                    Ok(None) => {
                        self.places.end_dial(key);
                        let until = Instant::now() + YIELD_GRACE;
                        let over = || Instant::now() >= until || cancel.load(Ordering::Relaxed);
                        self.places.wait_for_peer(key, over);
                    }
                    Err(error) => {
                        self.places.end_dial(key);
                        return Err(error);
                    }
                },
            }
        }
    }

    pub(super) fn forget(&self, link: &Arc<dyn Link>) {
        self.places.forget(|ready| Arc::ptr_eq(ready, link));
    }

    /// Closes every link, now and from now on.
    pub(super) fn close(&self) {
        self.places.close();
    }

    fn accept_grace(&self, peer: EndpointId) -> Duration {
        match self.me < peer {
            true => ACCEPT_GRACE_BEFORE_PRECEDENCE,
            false => ACCEPT_GRACE,
        }
    }
}

/// The table's side of one transport's incoming connections.
pub(super) struct IncomingLinks {
    pub(super) table: Arc<LinkTable>,
    pub(super) renewals: Arc<Renewals>,
    pub(super) kind: TransportKind,
}

/// Counts callers that wait because of missing descriptors.
struct ShortageCount {
    times: AtomicU64,
    /// The count that the engine has handled.
    taken: AtomicU64,
    doorbell: Arc<Doorbell>,
}

impl ShortageCount {
    fn new(doorbell: Arc<Doorbell>) -> Self {
        ShortageCount {
            times: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            doorbell,
        }
    }

    fn notify(&self) {
        self.times.fetch_add(1, Ordering::Relaxed);
        self.doorbell.ring();
    }

    fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        let times = self.times();
        self.taken.load(Ordering::Relaxed) != times
            && self.taken.swap(times, Ordering::Relaxed) != times
    }
}

impl LinkEvents for IncomingLinks {
    fn accept(&self, peer: EndpointId) -> bool {
        let precedes = peer < self.table.me;
        let key = (peer, self.kind);
        self.table.places.accept(key, precedes, Instant::now())
    }

    fn connected(&self, link: Arc<dyn Link>) {
        // Declined only when the endpoint closes, and then the link is closed as well.
        let _ = self.table.places.install((link.peer(), self.kind), link);
    }

    fn failed(&self, peer: EndpointId) {
        self.table.places.end_accept((peer, self.kind));
    }

    fn exhausted(&self) {
        self.table.shortage.notify();
    }

    fn renewed(&self, peer: EndpointId, after: Duration, why: &str) {
        self.renewals.report(peer, after, why);
    }
}

#[cfg(test)]
mod tests {
    use weft_flight::{FlightRecorder, ProcessInfo};
    use weft_transport::Local;

    use super::*;

    /// A table that has accepted this many attempts of a peer.
    fn with_accepted(attempts: usize) -> (Arc<LinkTable>, IncomingLinks, Local) {
        let called = Local::create(1 << 20).unwrap();
        let table = Arc::new(LinkTable::new(EndpointId(0), called.doorbell.clone()));
        let flight = FlightRecorder::new(ProcessInfo::default(), None);
        let incoming = IncomingLinks {
            table: table.clone(),
            renewals: Arc::new(Renewals::new(flight)),
            kind: TransportKind::Loopback,
        };
        (0..attempts).for_each(|_| assert!(incoming.accept(called.id)));
        (table, incoming, called)
    }

    fn turn(table: &LinkTable, peer: EndpointId) -> DialTurn<Arc<dyn Link>> {
        table
            .places
            .turn((peer, TransportKind::Loopback), |_| false)
    }

    #[test]
    fn failed_attempt_is_not_waited_for() {
        let (table, incoming, called) = with_accepted(1);
        assert!(matches!(turn(&table, called.id), DialTurn::Wait));
        incoming.failed(called.id);
        assert!(matches!(turn(&table, called.id), DialTurn::Dial));
        // It is this endpoint's turn now.
        incoming.failed(called.id);
        assert!(matches!(turn(&table, called.id), DialTurn::Wait));
    }

    #[test]
    fn later_attempt_is_awaited_after_a_failure() {
        let (table, incoming, called) = with_accepted(2);
        incoming.failed(called.id);
        assert!(matches!(turn(&table, called.id), DialTurn::Wait));
        incoming.failed(called.id);
        assert!(matches!(turn(&table, called.id), DialTurn::Dial));
    }
}
