//! The registrar: a thread that registers memory for a while, beside the thread that communicates.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, mpsc};
use std::{io, thread};

use weft_flight::{Stage, StageOf, StageTrace};
use weft_transport::{Doorbell, Iovec, MemoryRegistration, TransportKind, failed, fork};

use super::registered::{RegisteredMemory, RegisteredPiece, range_of};

/// Registers and deregisters in the order in which it is asked.
pub struct Registrar {
    /// None once it is dropped.
    jobs: Option<mpsc::Sender<Job>>,
    /// Why memory could not be registered, the first time that it could not.
    refusal: Arc<OnceLock<String>>,
    /// The process (counted in forks) that the thread is in.
    generation: u64,
}

enum Job {
    Register(Arc<Asked>),
    Deregister(Arc<RegisteredMemory>, StageOf),
}

/// Memory that somebody wants to be registered.
struct Asked {
    memory: Iovec,
    of: StageOf,
    /// Locked by the registrar while it registers, so that whoever ends the registration knows that
    /// it does not look at the memory any more.
    state: Mutex<State>,
}

enum State {
    Waiting,
    Registered(Arc<RegisteredMemory>),
    Refused,
    Ended,
}

impl Asked {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registrar {
    /// Starts the thread, which ends with the last that uses it. `doorbell` is rung when memory has
    /// been registered.
    pub fn start(
        transports: Vec<Arc<dyn MemoryRegistration>>,
        (stages, doorbell): (Arc<StageTrace>, Arc<Doorbell>),
    ) -> io::Result<Arc<Registrar>> {
        let (jobs, asked) = mpsc::channel();
        let refusal = Arc::new(OnceLock::new());
        let thread = RegistrarThread {
            transports,
            stages,
            doorbell,
            refusal: Arc::clone(&refusal),
        };
        let builder = thread::Builder::new().name("weft-register".into());
        let started =
            builder.spawn(move || asked.into_iter().for_each(|job| thread.carry_out(job)));
        started.map_err(|error| failed("starting the thread weft-register", error))?;
        Ok(Arc::new(Registrar {
            jobs: Some(jobs),
            refusal,
            generation: fork::generation(),
        }))
    }

    /// Asks for memory to be registered until what this returns is dropped; `of` is what traces
    /// call it.
    pub fn register(self: &Arc<Self>, memory: Iovec, of: StageOf) -> TemporaryRegistration {
        let asked = Arc::new(Asked {
            memory,
            of,
            state: Mutex::new(State::Waiting),
        });
        self.ask(Job::Register(Arc::clone(&asked)));
        TemporaryRegistration {
            asked,
            registrar: Arc::clone(self),
        }
    }

    /// Why memory could not be registered, if that has ever happened.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.get().map(String::as_str)
    }

    fn ask(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            // The thread ends after the last sender.
            let _ = jobs.send(job);
        }
    }

    /// Whether this is the process that the thread is in, not a forked child.
    fn is_own(&self) -> bool {
        self.generation == fork::generation()
    }
}

impl Drop for Registrar {
    /// In a forked child there is no thread to be told, and a lock of the queue's may be held for
    /// ever.
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
    fn carry_out(&self, job: Job) {
        let asked = match job {
            Job::Register(asked) => asked,
            Job::Deregister(memory, of) => {
                let open = self.stages.begin(Stage::Deregistration, || of);
                drop(memory);
                return self.stages.end(open);
            }
        };
        let mut state = asked.state();
        if !matches!(*state, State::Waiting) {
            return;
        }
        let open = self.stages.begin(Stage::Registration, || asked.of);
        *state = match RegisteredMemory::new(&self.transports, asked.memory, None) {
            Ok(memory) => {
                self.stages.end(open);
                State::Registered(Arc::new(memory))
            }
            Err(error) => {
                let _ = self.refusal.set(error.to_string());
                State::Refused
            }
        };
        drop(state);
        self.doorbell.ring();
    }
}

/// Memory that is registered, or will soon be, until this is dropped.
pub struct TemporaryRegistration {
    asked: Arc<Asked>,
    registrar: Arc<Registrar>,
}

/// What has become of a registration, for a piece of its memory.
pub enum Outcome {
    /// The piece, as puts name it.
    Registered(RegisteredPiece),
    /// The registrar has not come to it yet.
    Waiting,
    /// It cannot be registered, or not for this kind of link.
    Refused,
}

impl TemporaryRegistration {
    /// Whether memory lies in it.
    pub fn covers(&self, piece: Iovec) -> bool {
        let (all, part) = (range_of(self.asked.memory), range_of(piece));
        all.start <= part.start && part.end <= all.end
    }

    /// What has become of it, for a piece of its memory and a kind of link. Does not wait.
    pub fn outcome(&self, kind: TransportKind, piece: Iovec) -> Outcome {
        let state = match self.asked.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Outcome::Waiting,
        };
        match &*state {
            State::Waiting => Outcome::Waiting,
            State::Registered(memory) => match memory.named(kind, piece) {
                Some(named) => Outcome::Registered((named, Arc::clone(memory))),
                None => Outcome::Refused,
            },
            State::Refused | State::Ended => Outcome::Refused,
        }
    }
}

impl fmt::Debug for TemporaryRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "to be registered: {:#x?}", range_of(self.asked.memory))
    }
}

impl Drop for TemporaryRegistration {
    /// Waits only where the memory is being registered just now. In a forked child there is no
    /// registrar, and locks may be held for ever.
    fn drop(&mut self) {
        if !self.registrar.is_own() {
            return;
        }
        let state = std::mem::replace(&mut *self.asked.state(), State::Ended);
        if let State::Registered(memory) = state {
            self.registrar.ask(Job::Deregister(memory, self.asked.of));
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

    /// Registers under these keys, one after the other, once it may; then not any more.
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
        let ((may, keys), (ended, told)) = (mpsc::channel(), mpsc::channel());
        let doorbell = Arc::clone(&local.doorbell);
        let gated = Gated {
            inner: StrictTransport::new(local),
            keys: Mutex::new(keys),
            ended,
        };
        let registrar = Registrar::start(vec![Arc::new(gated)], (Arc::default(), doorbell));
        (registrar.unwrap(), may, told)
    }

    fn memory(start: usize, len: usize) -> Iovec {
        let start = std::ptr::without_provenance(start);
        // SAFETY: nobody reads or writes it.
        unsafe { crate::access::registered(start, len as u64) }
    }

    const OF: StageOf = StageOf {
        operation: 0,
        tile: 0,
        bytes: 0,
    };

    /// What has become of it once the registrar has come to it.
    fn settled(registration: &TemporaryRegistration, piece: Iovec) -> Outcome {
        loop {
            match registration.outcome(TransportKind::Custom, piece) {
                Outcome::Waiting => thread::yield_now(),
                outcome => return outcome,
            }
        }
    }

    #[test]
    fn memory_is_registered_behind_the_call_and_ends_with_its_registration() {
        let (registrar, may, told) = start();
        let registration = registrar.register(memory(8000, 1000), OF);
        let piece = memory(8500, 500);
        assert!(registration.covers(piece) && !registration.covers(memory(8500, 501)));
        let early = registration.outcome(TransportKind::Custom, piece);
        assert!(matches!(early, Outcome::Waiting));
        may.send(7).unwrap();
        let Outcome::Registered((named, held)) = settled(&registration, piece) else {
            panic!("it is registered");
        };
        assert_eq!(named.registration(), Some(RegistrationKey(7)));
        let elsewhere = registration.outcome(TransportKind::Tcp, piece);
        assert!(matches!(elsewhere, Outcome::Refused));
        // Whoever reads there holds it.
        drop(registration);
        may.send(8).unwrap();
        let other = registrar.register(memory(4096, 8), OF);
        assert!(matches!(
            settled(&other, memory(4096, 8)),
            Outcome::Registered(_)
        ));
        assert!(told.try_recv().is_err(), "it is held");
        drop(held);
        assert_eq!(told.recv().unwrap(), RegistrationKey(7));
        drop(other);
        assert_eq!(told.recv().unwrap(), RegistrationKey(8));
        assert_eq!(registrar.refusal(), None);
    }

    #[test]
    fn what_cannot_be_registered_is_told_and_the_first_reason_kept() {
        let (registrar, may, _told) = start();
        drop(may);
        let registration = registrar.register(memory(8000, 1000), OF);
        let outcome = settled(&registration, memory(8000, 1000));
        assert!(matches!(outcome, Outcome::Refused));
        assert_eq!(
            registrar.refusal(),
            Some("the transport has no more memory")
        );
    }
}
