//! Registrar: a thread that registers memory temporarily, next to the thread that communicates.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};
use std::{io, thread};

use weft_flight::{Stage, StageOf, StageTrace};
use weft_transport::{Doorbell, Iovec, MemoryRegistration, TransportKind, failed, fork};

use super::registered::{RegisteredMemory, RegisteredPiece, range_of};

/// A thread that registers and deregisters memory in the order of requests.
pub struct Registrar {
    /// `None` once it is dropped.
    jobs: Option<mpsc::Sender<RegistrarJob>>,
    /// The reason of the first failed registration.
    refusal: Arc<OnceLock<String>>,
    /// The process (counted in forks) of the thread.
    generation: u64,
}

enum RegistrarJob {
    Register(Arc<RegistrationRequest>),
    Deregister(Arc<RegisteredMemory>, StageOf),
}

/// A request to register memory.
struct RegistrationRequest {
    memory: Iovec,
    of: StageOf,
    /// Locked by the registrar while it registers, so that the end of the registration waits until
    /// the registrar no longer uses the memory.
    state: Mutex<RegistrationState>,
}

enum RegistrationState {
    Waiting,
    Registered(Arc<RegisteredMemory>),
    Refused,
    Ended,
}

impl RegistrationRequest {
    fn state(&self) -> MutexGuard<'_, RegistrationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar {
    /// Starts the thread, which ends with the last reference to the registrar. `doorbell` is rung
    /// after each registration.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread.
    pub fn start(
        transports: Vec<Arc<dyn MemoryRegistration>>,
        (stages, doorbell): (Arc<StageTrace>, Arc<Doorbell>),
    ) -> io::Result<Arc<Registrar>> {
        let (jobs, queue) = mpsc::channel();
        let refusal = Arc::new(OnceLock::new());
        let thread = RegistrarThread {
            transports,
            stages,
            doorbell,
            refusal: Arc::clone(&refusal),
        };
        let builder = thread::Builder::new().name("weft-register".into());
        let started =
            builder.spawn(move || queue.into_iter().for_each(|job| thread.carry_out(job)));
        started.map_err(|error| failed("starting the thread weft-register", error))?;
        Ok(Arc::new(Registrar {
            jobs: Some(jobs),
            refusal,
            generation: fork::generation(),
        }))
    }

    /// Requests the registration of memory, which lasts until the returned value is dropped. `of`
    /// identifies it in traces.
    pub fn register(self: &Arc<Self>, memory: Iovec, of: StageOf) -> TemporaryRegistration {
        let request = Arc::new(RegistrationRequest {
            memory,
            of,
            state: Mutex::new(RegistrationState::Waiting),
        });
        self.submit(RegistrarJob::Register(Arc::clone(&request)));
        TemporaryRegistration {
            request,
            registrar: Arc::clone(self),
        }
    }

    /// The reason of the first failed registration, if any.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    fn submit(&self, job: RegistrarJob) {
        if let Some(jobs) = &self.jobs {
            // The thread ends after the last sender.
            let _ = jobs.send(job);
        }
    }

    /// Whether this is the thread's process, not a forked child.
    fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }
}

impl Drop for Registrar {
    /// Does nothing in a forked child, which has no such thread, and where the queue's lock may be
    /// held forever.
    fn drop(&mut self) {
        if !self.is_own() {
            std::mem::forget(self.jobs.take());
        }
    }
}

struct RegistrarThread {
    transports: Vec<Arc<dyn MemoryRegistration>>,
    stages: Arc<StageTrace>,
    doorbell: Arc<Doorbell>,
    refusal: Arc<OnceLock<String>>,
}

impl RegistrarThread {
    fn carry_out(&self, job: RegistrarJob) {
        let request = match job {
            RegistrarJob::Register(request) => request,
            RegistrarJob::Deregister(memory, of) => {
                let open = self.stages.begin(Stage::Deregistration, || of);
                drop(memory);
                return self.stages.end(open);
            }
        };
        let mut state = request.state();
        if !matches!(*state, RegistrationState::Waiting) {
            return;
        }
        let open = self.stages.begin(Stage::Registration, || request.of);
        *state = match RegisteredMemory::new(&self.transports, request.memory, None) {
            Ok(memory) => {
                self.stages.end(open);
                RegistrationState::Registered(Arc::new(memory))
            }
            Err(error) => {
                let _ = self.refusal.set(error.to_string());
                RegistrationState::Refused
            }
        };
        drop(state);
        self.doorbell.ring();
    }
}

/// Memory that is or will be registered, until this is dropped.
pub struct TemporaryRegistration {
    request: Arc<RegistrationRequest>,
    registrar: Arc<Registrar>,
}

/// The state of a registration, for a piece of its memory.
pub enum RegistrationOutcome {
    /// The piece, with its key for puts.
    Registered(RegisteredPiece),
    /// The registrar has not processed it yet.
    Waiting,
    /// It cannot be registered, or not for this kind of link.
    Refused,
}

impl TemporaryRegistration {
    /// Whether it contains a piece of memory.
    pub fn covers(&self, piece: Iovec) -> bool {
        let (all, part) = (range_of(self.request.memory), range_of(piece));
        all.start <= part.start && part.end <= all.end
    }

    /// The state for a piece of its memory and a kind of link. Does not wait.
    pub fn outcome(&self, kind: TransportKind, piece: Iovec) -> RegistrationOutcome {
        let state = match self.request.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return RegistrationOutcome::Waiting,
        };
        match &*state {
            RegistrationState::Waiting => RegistrationOutcome::Waiting,
            RegistrationState::Registered(memory) => match memory.named(kind, piece) {
                Some(named) => RegistrationOutcome::Registered((named, Arc::clone(memory))),
                None => RegistrationOutcome::Refused,
            },
            RegistrationState::Refused | RegistrationState::Ended => RegistrationOutcome::Refused,
        }
    }
}

impl fmt::Debug for TemporaryRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "to be registered: {:#x?}", range_of(self.request.memory))
    }
}

impl Drop for TemporaryRegistration {
    /// Waits only while the memory is being registered. Does nothing in a forked child, which has
    /// no registrar, and where locks may be held forever.
    fn drop(&mut self) {
        if !self.registrar.is_own() {
            return;
        }
        let state = std::mem::replace(&mut *self.request.state(), RegistrationState::Ended);
        if let RegistrationState::Registered(memory) = state {
            self.registrar
                .submit(RegistrarJob::Deregister(memory, self.request.of));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use weft_transport::{
        Capabilities, DmaBuf, EndpointId, Link, LinkError, LinkEvents, Local, RegionKey,
        RegistrationKey, Segment, Transport,
    };
    use weft_transport_testing::StrictTransport;

    use super::*;

    /// A transport that registers under the keys of a channel, and refuses once it is closed.
    struct Gated {
        inner: StrictTransport,
        keys: Mutex<mpsc::Receiver<u64>>,
        ended: mpsc::Sender<RegistrationKey>,
    }

    impl Transport for Gated {
        fn kind(&self) -> TransportKind {
            self.inner.kind()
        }

        fn capabilities(&self) -> Capabilities {
            self.inner.capabilities()
        }

        fn address(&self) -> Vec<u8> {
            self.inner.address()
        }

        fn expose(&self, segment: &Arc<Segment>) -> Result<RegionKey, LinkError> {
            self.inner.expose(segment)
        }

        fn withdraw(&self, region: RegionKey) {
            self.inner.withdraw(region);
        }

        fn listen(&self, events: Arc<dyn LinkEvents>) -> Result<(), LinkError> {
            self.inner.listen(events)
        }

        fn connect(
            &self,
            peer: EndpointId,
            address: &[u8],
            deadline: Instant,
            cancel: &AtomicBool,
        ) -> Result<Option<Arc<dyn Link>>, LinkError> {
            self.inner.connect(peer, address, deadline, cancel)
        }

        fn close(&self) {
            self.inner.close();
        }
    }

    impl MemoryRegistration for Gated {
        fn register(&self, _: Iovec) -> Result<RegistrationKey, LinkError> {
            let next = self.keys.lock().unwrap().recv();
            let key = next.map_err(|_| LinkError::Refused("no more memory".into()))?;
            Ok(RegistrationKey(key))
        }

        fn register_device(
            &self,
            memory: Iovec,
            _: DmaBuf<'_>,
        ) -> Result<RegistrationKey, LinkError> {
            self.register(memory)
        }

        fn deregister(&self, key: RegistrationKey) {
            self.ended.send(key).unwrap();
        }
    }

    fn start() -> (
        Arc<Registrar>,
        mpsc::Sender<u64>,
        mpsc::Receiver<RegistrationKey>,
    ) {
        let local = Local::create(1 << 20).unwrap();
        let ((may, keys), (ended, deregistered)) = (mpsc::channel(), mpsc::channel());
        let doorbell = Arc::clone(&local.doorbell);
        let gated = Gated {
            inner: StrictTransport::new(local),
            keys: Mutex::new(keys),
            ended,
        };
        let registrar = Registrar::start(vec![Arc::new(gated)], (Arc::default(), doorbell));
        (registrar.unwrap(), may, deregistered)
    }

    fn memory(start: usize, len: usize) -> Iovec {
        let start = std::ptr::without_provenance(start);
        // SAFETY: nothing reads or writes it.
        unsafe { crate::access::registered(start, len as u64) }
    }

    const OF: StageOf = StageOf {
        operation: 0,
        tile: 0,
        bytes: 0,
    };

    /// Waits until the registrar has processed a registration.
    fn settled(registration: &TemporaryRegistration, piece: Iovec) -> RegistrationOutcome {
        loop {
            match registration.outcome(TransportKind::Custom, piece) {
                RegistrationOutcome::Waiting => thread::yield_now(),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn registration_is_asynchronous_and_ends_on_drop() {
        let (registrar, may, deregistered) = start();
        let registration = registrar.register(memory(8000, 1000), OF);
        let piece = memory(8500, 500);
        assert!(registration.covers(piece) && !registration.covers(memory(8500, 501)));
        let early = registration.outcome(TransportKind::Custom, piece);
        assert!(matches!(early, RegistrationOutcome::Waiting));
        may.send(7).unwrap();
        let RegistrationOutcome::Registered((named, held)) = settled(&registration, piece) else {
            panic!("it is registered");
        };
        assert_eq!(named.registration(), Some(RegistrationKey(7)));
        let elsewhere = registration.outcome(TransportKind::Tcp, piece);
        assert!(matches!(elsewhere, RegistrationOutcome::Refused));
        // A link that reads the memory holds the registration.
        drop(registration);
        may.send(8).unwrap();
        let other = registrar.register(memory(4096, 8), OF);
        assert!(matches!(
            settled(&other, memory(4096, 8)),
            RegistrationOutcome::Registered(_)
        ));
        assert!(deregistered.try_recv().is_err(), "it is held");
        drop(held);
        assert_eq!(deregistered.recv().unwrap(), RegistrationKey(7));
        drop(other);
        assert_eq!(deregistered.recv().unwrap(), RegistrationKey(8));
        assert_eq!(registrar.refusal(), None);
    }

    #[test]
    fn failed_registration_keeps_the_first_reason() {
        let (registrar, may, _deregistered) = start();
        drop(may);
        let registration = registrar.register(memory(8000, 1000), OF);
        let outcome = settled(&registration, memory(8000, 1000));
        assert!(matches!(outcome, RegistrationOutcome::Refused));
        assert_eq!(registrar.refusal(), Some("no more memory"));
    }
}
