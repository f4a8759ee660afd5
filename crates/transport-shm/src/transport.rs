//! The shared-memory transport: listening, dialling, and creation of links.

use std::cell::Cell;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use weft_transport::{
    Capabilities, EndpointId, Link, LinkError, LinkEvents, Local, MappedPeer, RegionKey, Regions,
    Segment, Transport, TransportKind, effective_user,
    fork::{self, Descriptor},
    is_own_limit, random,
};

use crate::accept_queue::{AcceptQueue, Handshake};
use crate::address::{self, ShmAddress};
use crate::connection::ShmConnection;
use crate::handshake::{self, HandshakeDeadline};
use crate::link::ShmLink;
use crate::rings::Rings;
use crate::socket;
use crate::watch::{ConnectionWatcher, Reception};

/// How long a caller may keep the listener waiting.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait when the listener's backlog is full.
const CONNECT_RETRY: Duration = Duration::from_millis(2);

/// The interval at which goodbyes that wait for room are checked.
const DRAIN_PERIOD: Duration = Duration::from_millis(1);

/// Shares memory with the other processes of this host.
pub struct ShmTransport {
    shared: Arc<ShmShared>,
    address: ShmAddress,
    born: u64,
}

struct ShmShared {
    local: Local,
    regions: Arc<Regions>,
    watch: Arc<ConnectionWatcher<ShmConnection>>,
    closed: AtomicBool,
}

impl ShmTransport {
    /// A transport for this endpoint, with a socket of a random name and a thread that watches its
    /// links.
    ///
    /// # Errors
    /// If the system refuses a descriptor, a socket or a thread.
    pub fn new(local: Local) -> io::Result<ShmTransport> {
        let address = ShmAddress {
            boot: address::boot_id()?,
            token: local.token,
            name: format!("weft-{:032x}", u128::from_le_bytes(random()?)).into_bytes(),
        };
        handshake::label_pool(&local);
        let watch =
            ConnectionWatcher::start(socket::listen(&address.name)?, Arc::clone(&local.doorbell))?;
        let shared = Arc::new(ShmShared {
            regions: Regions::new(Arc::clone(&local.pool)),
            local,
            watch,
            closed: AtomicBool::new(false),
        });
        Ok(ShmTransport {
            shared,
            address,
            born: fork::generation(),
        })
    }
}

impl Transport for ShmTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    fn capabilities(&self) -> Capabilities {
        MappedPeer::CAPABILITIES
    }

    fn address(&self) -> Vec<u8> {
        self.address.to_bytes()
    }

    fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError> {
        Ok(self.shared.regions.expose(segment))
    }

    fn withdraw(&self, region: RegionKey) {
        self.shared.regions.withdraw(region);
        for connection in self.shared.watch.connections() {
            connection.withdraw(region);
        }
    }

    fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
        let (shared, listener) = (Arc::clone(&self.shared), Arc::clone(&events));
        let reception = ShmReception {
            events,
            accept_queue: AcceptQueue::default(),
            answer: Arc::new(move |socket| shared.answer(socket, &*listener)),
        };
        let taken_in = self.shared.watch.start_accepting(Arc::new(reception))?;
        if taken_in { Ok(()) } else { Err(closed()) }
    }

    fn connect(
        &self,
        peer: EndpointId,
        address: &[u8],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Arc<dyn Link>>, LinkError> {
        let address = ShmAddress::from_bytes(address)?;
        if address.boot != self.address.boot {
            return Err(LinkError::Refused("the peer runs on another host".into()));
        }
        if self.shared.closed.load(Ordering::Relaxed) {
            return Err(closed());
        }
        let deadline = HandshakeDeadline { deadline, cancel };
        let socket = reach(&address.name, &deadline)?;
        let local = &self.shared.local;
        let (own, theirs) = (
            effective_user(),
            weft_transport::peer_credentials(socket.as_fd())?.uid,
        );
        let other_user = || {
            LinkError::OtherUser(format!(
                "it has user number {theirs}, this process has {own}"
            ))
        };
        // Every process accepts root, but in a container root may have another number for the
        // listener.
        if own != theirs && own != 0 {
            return Err(other_user());
        }
        let mapped = handshake::dial(socket.as_fd(), local, peer, &address.token, &deadline);
        let mapped = mapped.map_err(|error| match error {
            LinkError::Refused(_) | LinkError::Io(_) if own != theirs => other_user(),
            error => error,
        })?;
        mapped
            .map(|(mapped, rings)| self.shared.link(peer, mapped, rings, socket))
            .transpose()
    }

    fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.watch.close();
    }

    fn drain(&self, deadline: Duration) {
        let until = Instant::now() + deadline;
        while self.shared.watch.is_lingering() && Instant::now() < until {
            std::thread::sleep(DRAIN_PERIOD);
        }
    }
}

impl Drop for ShmTransport {
    fn drop(&mut self) {
        if fork::generation() == self.born {
            self.close();
        }
    }
}

/// Hands callers to the threads of the accept queue.
struct ShmReception {
    events: Arc<dyn LinkEvents>,
    accept_queue: AcceptQueue,
    answer: Arc<Handshake>,
}

impl Reception for ShmReception {
    fn take(&self, caller: Descriptor) {
        self.accept_queue.add(caller, &self.answer);
    }

    fn exhausted(&self) {
        self.events.exhausted();
    }
}

impl ShmShared {
    /// Runs the handshake with a caller. On any failure, the end of the socket informs the dialler.
    fn answer(&self, socket: Descriptor, events: &dyn LinkEvents) {
        let deadline = HandshakeDeadline {
            deadline: Instant::now() + ANSWER_TIMEOUT,
            cancel: &self.closed,
        };
        let accepted = Cell::new(None);
        let accept = |peer| {
            let accepts = events.accept(peer);
            accepted.set(accepts.then_some(peer));
            accepts
        };
        let answered = handshake::answer(socket.as_fd(), &self.local, accept, &deadline);
        let link = match answered {
            Ok(Some((peer, mapped, rings))) => self.link(peer, mapped, rings, socket),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match link {
            Ok(link) => {
                events.connected(link);
                // Messages that the peer has sent since then notified this endpoint when its link
                // was not known yet.
                self.local.doorbell.notify();
            }
            Err(error) => {
                if let Some(peer) = accepted.get() {
                    events.failed(peer);
                }
                // The caller sees the end and calls again, without result.
                if matches!(&error, LinkError::Io(error) if is_own_limit(error)) {
                    events.exhausted();
                }
            }
        }
    }

    fn link(
        &self,
        peer: EndpointId,
        mapped: MappedPeer,
        rings: Rings,
        socket: Descriptor,
    ) -> Result<Arc<dyn Link>, LinkError> {
        let connection = ShmConnection::new(peer, mapped, rings, socket, Arc::clone(&self.watch))?;
        Ok(Arc::new(ShmLink::new(
            connection,
            Arc::clone(&self.regions),
        )?))
    }
}

/// Connects to the socket of this name.
fn reach(name: &[u8], deadline: &HandshakeDeadline<'_>) -> Result<Descriptor, LinkError> {
    loop {
        match socket::connect(name) {
            Ok(socket) => return Ok(socket),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => {
                    let left = deadline.slice("the peer accepts no connections")?;
                    std::thread::sleep(left.min(CONNECT_RETRY));
                }
                io::ErrorKind::Interrupted => {}
                io::ErrorKind::ConnectionRefused => {
                    return Err(LinkError::Absent(
                        "no endpoint of that name on this host: it is in another container, closed, or has ended"
                            .into(),
                    ));
                }
                _ => return Err(LinkError::Io(error)),
            },
        }
    }
}

fn closed() -> LinkError {
    LinkError::Refused("this transport is closed".into())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use weft_transport_testing::conformance::{Subject, connect, listening};

    use super::*;

    const SUBJECT: Subject = Subject {
        make: |local| Arc::new(ShmTransport::new(local).unwrap()),
    };

    #[test]
    fn dropped_transport_leaves_nothing() {
        for _ in 0..100 {
            let local = Local::create(1 << 20).unwrap();
            let used = Arc::downgrade(&local.doorbell);
            drop(ShmTransport::new(local));
            assert!(used.upgrade().is_none(), "its thread still runs");
        }
    }

    /// The threads of this process that run handshakes.
    fn handshake_threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names
            .filter(|name| name.trim() == "weft-shm-answer")
            .count()
    }

    #[test]
    fn flood_of_callers_takes_few_threads() {
        let (b, events) = listening(&SUBJECT);
        let address = ShmAddress::from_bytes(&b.1.address()).unwrap();
        let never = AtomicBool::new(false);
        let deadline = HandshakeDeadline {
            deadline: Instant::now() + Duration::from_secs(20),
            cancel: &never,
        };
        let mut flood = Vec::new();
        let mut threads_max = 0;
        for number in 0..2000 {
            let caller = reach(&address.name, &deadline).unwrap();
            if number % 2 == 0 {
                // It may have been dropped already.
                let _ = socket::send(caller.as_fd(), [&[1][..], b"nonsense"], &[]);
            }
            flood.push(caller);
            if number % 50 == 0 {
                threads_max = threads_max.max(handshake_threads());
            }
        }
        threads_max = threads_max.max(handshake_threads());
        let (a, _) = listening(&SUBJECT);
        assert!(connect(&a, &b).unwrap().is_some());
        assert_eq!(events.next_link().peer(), a.0.id);
        // Other tests of this program may have some too.
        assert!(threads_max <= 40, "{threads_max} threads");
    }

    /// Accepts every caller, and passes on the peers whose attempts have failed.
    struct Failures(mpsc::Sender<EndpointId>);

    impl LinkEvents for Failures {
        fn accept(&self, _: EndpointId) -> bool {
            true
        }

        fn connected(&self, _: Arc<dyn Link>) {}

        fn failed(&self, peer: EndpointId) {
            self.0.send(peer).unwrap();
        }
    }

    #[test]
    fn accepted_caller_that_hangs_up_is_reported() {
        let called = Local::create(1 << 20).unwrap();
        let id = called.id;
        let transport = ShmTransport::new(called).unwrap();
        let (failed, failures) = mpsc::channel();
        transport.listen(Arc::new(Failures(failed))).unwrap();
        let address = ShmAddress::from_bytes(&transport.address()).unwrap();
        let never = AtomicBool::new(false);
        let deadline = HandshakeDeadline {
            deadline: Instant::now() + Duration::from_secs(20),
            cancel: &never,
        };
        let caller = reach(&address.name, &deadline).unwrap();
        let from = EndpointId(7);
        let hello = handshake::hello(&address.token, from, id);
        socket::send(caller.as_fd(), [&hello, &[]], &[]).unwrap();
        drop(caller);
        let reported = failures.recv_timeout(Duration::from_secs(20)).unwrap();
        assert_eq!(reported, from);
    }
}
