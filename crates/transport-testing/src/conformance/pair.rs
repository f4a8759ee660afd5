//! Two endpoints and the link between them.

use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use weft_transport::{
    EndpointId, Inbox, Iovec, IovecMut, Link, LinkError, LinkEvents, Local, POOL_HEADER,
    PolledMessages, RegionKey, Segment, Signal, Submission, Transport,
};

/// A transport under test.
pub struct Subject {
    /// Makes the transport for an endpoint.
    pub make: fn(Local) -> Arc<dyn Transport>,
}

/// The timeout of every wait in the suite.
const PATIENCE: Duration = Duration::from_secs(20);

/// The interval between two disturbances.
const DISTURBED_EVERY: Duration = Duration::from_millis(3);

/// Disturbs one end of a link in a way that it must survive.
pub type Disturb = fn(&dyn Link);

thread_local! {
    /// How the cases of this thread disturb their links, and when they did last.
    static DISTURBANCE: Cell<Option<(Disturb, Instant)>> = const { Cell::new(None) };
}

/// Disturbs the links of the cases that this thread runs.
pub fn disturb_with(disturb: Disturb) {
    DISTURBANCE.set(Some((disturb, Instant::now())));
}

/// The pools of the suite.
const POOL_BYTES: u64 = 32 << 20;

/// The time by which a case must be over.
pub fn deadline() -> Instant {
    Instant::now() + PATIENCE
}

/// Accepts connections, unless set to decline them, and keeps the links.
#[derive(Default)]
pub struct Events {
    /// Whether to decline connections.
    pub declines: AtomicBool,
    /// The peers for which [`LinkEvents::accept`] was called.
    pub asked: Mutex<Vec<EndpointId>>,
    links: Mutex<Vec<Arc<dyn Link>>>,
    arrived: Condvar,
}

impl Events {
    /// Waits for the next incoming link.
    pub fn next_link(&self) -> Arc<dyn Link> {
        let links = self.links.lock().unwrap();
        let waited = self
            .arrived
            .wait_timeout_while(links, PATIENCE, |links| links.is_empty());
        let (mut links, timeout) = waited.unwrap();
        assert!(!timeout.timed_out(), "no connection arrived");
        links.remove(0)
    }
}

impl LinkEvents for Events {
    fn accept(&self, peer: EndpointId) -> bool {
        self.asked.lock().unwrap().push(peer);
        !self.declines.load(Ordering::Relaxed)
    }

    fn connected(&self, link: Arc<dyn Link>) {
        self.links.lock().unwrap().push(link);
        self.arrived.notify_all();
    }
}

/// The messages and the end that one side received.
#[derive(Default)]
pub struct Received {
    /// The messages, in order.
    pub messages: Vec<Vec<u8>>,
    /// How the link ended.
    pub end: Option<LinkError>,
}

impl Inbox for Received {
    fn message(&mut self, bytes: &[u8]) {
        self.messages.push(bytes.to_vec());
    }
}

/// Memory that a link reads or writes while this value exists: registered, where the transport
/// needs that.
pub struct TestMemory {
    pieces: Vec<Arc<Segment>>,
    lengths: Vec<usize>,
}

impl TestMemory {
    /// The source of a put.
    pub fn source(&self) -> Vec<Iovec> {
        let pieces = self.pieces.iter().zip(&self.lengths);
        // SAFETY: the cases keep the memory until their puts are complete, cancelled, or their link
        // has ended.
        let named = pieces.map(|(p, len)| unsafe { Iovec::new(p.base().as_ptr(), *len) });
        named.collect()
    }

    /// The target of a get: the first piece.
    pub fn target(&self) -> IovecMut {
        // SAFETY: as above; nothing else accesses it.
        unsafe { IovecMut::new(self.pieces[0].base().as_ptr(), self.lengths[0]) }
    }

    /// The contents of the first piece.
    pub fn bytes(&self) -> Vec<u8> {
        bytes_of(&self.pieces[0], 0..self.lengths[0] as u64)
    }
}

/// The bytes of a range of a segment.
pub fn bytes_of(segment: &Segment, range: Range<u64>) -> Vec<u8> {
    let start = segment.at(&range).expect("a range of the segment");
    let len = (range.end - range.start) as usize;
    let mut bytes = vec![0; len];
    // SAFETY: the range was checked, and the cases read only ranges to which no write is under way.
    unsafe { std::ptr::copy_nonoverlapping(start.as_ptr(), bytes.as_mut_ptr(), len) };
    bytes
}

/// An endpoint and its end of the link.
pub struct LinkSide {
    /// The endpoint.
    pub local: Local,
    /// Its transport.
    pub transport: Arc<dyn Transport>,
    /// Its end of the link.
    pub link: Arc<dyn Link>,
    /// Its messages, and how it ended.
    pub received: Received,
}

impl LinkSide {
    /// Receives and sends everything that is possible now.
    pub fn pump(&mut self) {
        if self.received.end.is_some() {
            return;
        }
        let flushed = self.link.flush().map(drop);
        let received = self.link.receive(&mut self.received);
        if let Err(error) = received.and(flushed) {
            self.received.end = Some(error);
        }
    }

    /// The value of a word of this side's pool.
    pub fn word(&self, offset: u64) -> u64 {
        self.local.pool.word(offset).load(Ordering::Acquire)
    }

    /// Receives polled messages, if there are any in memory: false if there are none.
    pub fn take_polled(&mut self) -> bool {
        let Some(polled) = self.polled().filter(|polled| polled.has_polled_message()) else {
            return false;
        };
        let taken = polled.take_polled_message(&mut self.received);
        taken.expect("a good link");
        true
    }

    /// The interface for its link's polled messages, if they are stored apart from the others.
    pub fn polled(&self) -> Option<Arc<dyn PolledMessages>> {
        Arc::clone(&self.link).polled_messages()
    }

    /// The bytes of a range of this side's pool.
    pub fn bytes(&self, range: Range<u64>) -> Vec<u8> {
        bytes_of(&self.local.pool, range)
    }

    /// New memory that holds these pieces and that its link can read and write.
    pub fn memory(&self, pieces: &[&[u8]]) -> TestMemory {
        let registered = self.link.capabilities().needs_registration;
        let piece = |bytes: &&[u8]| {
            let segment = segment(bytes.len() as u64);
            let at = segment.base().as_ptr();
            // SAFETY: the segment is new and has room for the bytes.
            unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            if registered {
                self.transport.expose(&segment).expect("a region");
            }
            segment
        };
        TestMemory {
            pieces: pieces.iter().map(piece).collect(),
            lengths: pieces.iter().map(|piece| piece.len()).collect(),
        }
    }

    /// Exposes a new region of this many bytes, and lets the peer reach all of it.
    pub fn region(&self, bytes: u64) -> (RegionKey, Arc<Segment>) {
        let segment = segment(bytes);
        let key = self.transport.expose(&segment).expect("a region");
        self.link.grant(key, 0..bytes).expect("a grant");
        (key, segment)
    }

    /// Reserves a range of this side's pool and grants it to the peer.
    pub fn open(&self, range: Range<u64>) {
        self.local
            .pool
            .reserve(range.clone())
            .expect("memory for the test");
        let granted = self.link.grant(RegionKey::POOL, range);
        granted.expect("a grant");
    }
}

fn segment(bytes: u64) -> Arc<Segment> {
    Arc::new(Segment::create("weft-conformance", bytes.max(1)).expect("memory for the test"))
}

/// Two endpoints, linked; `a` dialled.
pub struct LinkPair {
    /// The side that connected.
    pub a: LinkSide,
    /// The side that accepted.
    pub b: LinkSide,
}

impl LinkPair {
    /// Two new endpoints that may write everywhere behind the header of each other's pool.
    pub fn new(subject: &Subject) -> LinkPair {
        let pair = LinkPair::without_grants(subject);
        // Not reserved: a case uses little of it.
        for side in [&pair.a, &pair.b] {
            let granted = side.link.grant(RegionKey::POOL, POOL_HEADER..POOL_BYTES);
            granted.expect("a grant");
        }
        pair
    }

    /// Two new endpoints that may not write anywhere yet.
    pub fn without_grants(subject: &Subject) -> LinkPair {
        let (a, _) = listening(subject);
        let (b, accepted) = listening(subject);
        let dialled = connect(&a, &b).expect("a connection").expect("no yield");
        let link = accepted.next_link();
        LinkPair {
            a: side(a, dialled),
            b: side(b, link),
        }
    }

    /// Pumps both sides until the condition holds.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut LinkPair) -> bool) {
        let deadline = deadline();
        loop {
            self.a.pump();
            self.b.pump();
            self.disturb();
            if holds(self) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "waited too long for {what}; a ended: {:?}, b ended: {:?}",
                self.a.received.end,
                self.b.received.end
            );
            std::thread::yield_now();
        }
    }

    /// Disturbs the link from time to time, at either end, if that was requested.
    fn disturb(&self) {
        if let Some((disturb, last)) = DISTURBANCE.get()
            && last.elapsed() >= DISTURBED_EVERY
        {
            let end = if last.elapsed().as_nanos() % 2 == 0 {
                &self.a
            } else {
                &self.b
            };
            disturb(&*end.link);
            DISTURBANCE.set(Some((disturb, Instant::now())));
        }
    }

    /// Calls an operation of `a` until it is taken, and waits until it is complete.
    pub fn complete(
        &mut self,
        what: &str,
        post: impl Fn(&dyn Link) -> Result<Submission, LinkError>,
    ) {
        let mut posted = Submission::Full;
        self.until(what, |pair| {
            if posted == Submission::Full {
                posted = post(&*pair.a.link).expect("an operation on a good link");
            }
            match posted {
                Submission::Done => true,
                Submission::UnderWay(ticket) => pair.a.link.completed(ticket).expect("a good link"),
                Submission::Full => false,
            }
        });
    }

    /// Puts from `a` into the pool of `b`, and waits until that is complete.
    pub fn put(&mut self, offset: u64, pieces: &[&[u8]], signal: Option<Signal>) {
        self.put_to(RegionKey::POOL, offset, pieces, signal);
    }

    /// Puts from `a` into a region of `b`, and waits until that is complete.
    pub fn put_to(
        &mut self,
        region: RegionKey,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
    ) {
        let memory = self.a.memory(pieces);
        let source = memory.source();
        self.complete("a put", |link| link.put(region, offset, &source, signal));
    }

    /// Waits until a word of `b` has this value.
    pub fn until_signalled(&mut self, offset: u64, value: u64) {
        self.until("a signal", |pair| pair.b.word(offset) == value);
    }
}

/// A new endpoint that listens.
pub fn listening(subject: &Subject) -> ((Local, Arc<dyn Transport>), Arc<Events>) {
    let local = Local::create(POOL_BYTES).expect("an endpoint");
    let transport = (subject.make)(local.clone());
    let events = Arc::new(Events::default());
    transport
        .listen(Arc::clone(&events) as Arc<dyn LinkEvents>)
        .expect("a listener");
    ((local, transport), events)
}

/// Connects the first to the second, which admits it.
///
/// # Errors
/// Those of [`Transport::connect`].
pub fn connect(
    from: &(Local, Arc<dyn Transport>),
    to: &(Local, Arc<dyn Transport>),
) -> Result<Option<Arc<dyn Link>>, LinkError> {
    let never = AtomicBool::new(false);
    to.1.admit(from.0.id, &from.1.address())?;
    from.1.connect(to.0.id, &to.1.address(), deadline(), &never)
}

fn side((local, transport): (Local, Arc<dyn Transport>), link: Arc<dyn Link>) -> LinkSide {
    LinkSide {
        local,
        transport,
        link,
        received: Received::default(),
    }
}
