//! The progress engine, with one driver at a time per endpoint: a waiting caller or the progress
//! thread.
//!
//! [Note: Driving] Whoever holds the right to drive runs passes over the state until what it waits
//! for is over, and is the only one to sleep on the doorbell. A blocking call takes the right if it
//! is free, so that a small operation never leaves the calling thread. The progress thread takes it
//! whenever something is under way and nobody else drives; between operations it sleeps on the
//! links' descriptors, so that news of a death travels through idle ranks too. Threads that find
//! the right taken park on their operation's completion. See [Note: Handing over].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_bootstrap::Endpoint;
use weft_call::{Completion, Finished};
use weft_transport::{Sleep, Woken, fork};

use super::hand_over::{HandOver, Wake};
use super::poller::Poller;
use super::state::ProgressState;
use crate::Error;
use crate::execution::SpinPolicy;

/// How a wait ended, where the operation did not fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The operation is done.
    Done,
    /// The time given to the wait is over; the operation goes on.
    NotYet,
    /// The caller's `interrupted` returned true; the operation goes on.
    Interrupted,
}

/// How often a waiting thread asks whether it has been interrupted.
const INTERRUPT_POLL: Duration = Duration::from_millis(50);
/// A driver that makes progress looks at the clock once in so many passes.
const PASSES_PER_LOOK: u32 = 64;
/// How often a driver steps aside for threads that want the state, before it goes on.
const YIELDS: u32 = 100;
/// How long the progress thread sleeps at most.
const IDLE: Duration = Duration::from_millis(100);
/// How often an engine and its state hold their endpoint.
const OWN_USES: usize = 2;
/// How long an endpoint that ends waits for peers to take what is queued for them.
const LINGER: Duration = Duration::from_secs(1);

/// Progress for one endpoint. The progress thread ends with the last group or operation that refers
/// to it.
pub(crate) struct Engine {
    endpoint: Arc<Endpoint>,
    state: Mutex<ProgressState>,
    /// Threads that want the state; the driver lets them have it.
    contenders: AtomicUsize,
    hand_over: HandOver,
    poller: Poller,
    /// The most ranks of any group that share this machine.
    local_ranks: AtomicUsize,
    cores: usize,
    generation: u64,
}

impl Engine {
    /// Starts progress for an endpoint.
    pub(crate) fn start(endpoint: Arc<Endpoint>) -> Result<Arc<Engine>, Error> {
        let poller = Poller::new().map_err(|e| Error::refused_here("watch its connections", &e))?;
        let engine = Arc::new(Engine {
            state: Mutex::new(ProgressState::new(endpoint.clone(), poller.clone())),
            endpoint,
            contenders: AtomicUsize::new(0),
            hand_over: HandOver::new(),
            poller,
            local_ranks: AtomicUsize::new(1),
            // Counts affinity and the cgroup's quota.
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            generation: fork::generation(),
        });
        let (newcomers, poller) = (engine.lock().newcomers.clone(), engine.poller.clone());
        let doorbell = engine.endpoint.doorbell().clone();
        engine.endpoint.on_link(Box::new(move |link| {
            newcomers.add(link);
            // Whether a driver sleeps, or the progress thread idles.
            doorbell.ring();
            poller.wake();
        }));
        let progress = Arc::downgrade(&engine);
        std::thread::Builder::new()
            .name("weft-progress".into())
            .spawn(move || progress_thread(&progress))
            .map_err(|e| Error::refused_here("start its progress thread", &e))?;
        Ok(engine)
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// An error in a forked child: the engine and its threads are the parent's.
    pub(crate) fn check_generation(&self) -> Result<(), Error> {
        if self.generation == fork::generation() {
            return Ok(());
        }
        let what =
            "using weft in a forked child of the process that made the group; make a new one there";
        Err(Error::Unsupported(what.into()))
    }

    /// Changes the state, then ends what has ended by it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut ProgressState, &mut Finished) -> T) -> T {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        let mut finished = Finished::new();
        state.adopt();
        let result = change(&mut state, &mut finished);
        // What was queued must not wait for the next pass: perhaps nothing is under way here.
        state.flush(&mut finished);
        self.hand_over.note_pending(state.pending());
        drop(state);
        self.finish(finished);
        result
    }

    /// Makes sure that somebody drives what is under way: wakes the driver if it sleeps, or the
    /// progress thread.
    pub(crate) fn hand_over(&self) {
        self.hand_over.hand_over(self);
    }

    /// How patiently a calling thread may poll.
    pub(crate) fn spin(&self) -> SpinPolicy {
        SpinPolicy::new(self.local_ranks.load(Ordering::Relaxed), self.cores)
    }

    /// Takes note that so many ranks share this machine.
    pub(crate) fn local_ranks(&self, ranks: usize) {
        self.local_ranks.fetch_max(ranks, Ordering::Relaxed);
    }

    /// Waits until an operation is over, driving progress where nobody else does.
    pub(crate) fn wait(
        &self,
        completion: &Completion,
        deadline: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Waited {
        if completion.is_over() {
            return Waited::Done;
        }
        let mut watch = WaitConditions::new(deadline, interrupted);
        while !completion.is_over() {
            let waited = self.hand_over.drive_or_park(
                self,
                &mut watch,
                |watch| self.drive(self.spin(), &|| completion.is_over(), watch),
                |watch, free| {
                    completion.park(watch.sleep_max(), free);
                    watch.look()
                },
            );
            if let Some(waited) = waited {
                return waited;
            }
        }
        Waited::Done
    }

    /// Runs passes until `over`, or until the watch says why to stop before.
    fn drive(
        &self,
        spin: SpinPolicy,
        over: &dyn Fn() -> bool,
        watch: &mut WaitConditions<'_>,
    ) -> Option<Waited> {
        let presence = self.endpoint.doorbell().enter();
        let (mut spin, mut passes) = (spin.begin(1, &presence), 0_u32);
        loop {
            let progressed = self.pass();
            if over() {
                return None;
            }
            passes = passes.wrapping_add(1);
            if passes.is_multiple_of(PASSES_PER_LOOK)
                && let Some(waited) = watch.look()
            {
                return Some(waited);
            }
            if progressed {
                spin.restart();
                continue;
            }
            if spin.pause(|| self.lock().awaited_peer()) {
                continue;
            }
            if let Some(waited) = watch.look() {
                return Some(waited);
            }
            if self.sleep(watch.sleep_max(), over) {
                spin.restart();
            }
            presence.refresh();
        }
    }

    /// Sleeps until something happens. True if there was progress while falling asleep.
    fn sleep(&self, time: Duration, over: &dyn Fn() -> bool) -> bool {
        let (sockets, time) = {
            let state = self.lock();
            let next = state
                .groups
                .values()
                .filter_map(|group| group.next_deadline())
                .min();
            let left = next.map_or(time, |next| next.saturating_duration_since(Instant::now()));
            (
                state.manual_progress,
                time.min(left + Duration::from_millis(1)),
            )
        };
        let mode = if sockets {
            Sleep::Descriptors(self.poller.descriptor())
        } else {
            Sleep::Futex
        };
        let mut progressed = false;
        let mut ready = || {
            progressed = self.pass();
            progressed || over()
        };
        if self.endpoint.doorbell().sleep(mode, &mut ready, time) == Woken::Notified {
            self.lock().notified = true;
        }
        progressed
    }

    /// One pass over the state. True if anything moved.
    fn pass(&self) -> bool {
        for _ in 0..YIELDS {
            if self.contenders.load(Ordering::Relaxed) == 0 {
                break;
            }
            std::thread::yield_now();
        }
        let mut finished = Finished::new();
        let mut state = self.lock();
        let progressed = state.pass(&mut finished);
        self.hand_over.note_pending(state.pending());
        drop(state);
        let ended = !finished.is_empty();
        self.finish(finished);
        progressed || ended
    }

    /// Ends what has ended. Flight records are written before a failure is told.
    fn finish(&self, finished: Finished) {
        self.endpoint.flight().write_if_due();
        for (completion, result) in finished {
            completion.finish(result);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn of the progress thread.
    fn turn(&self) {
        let drive = || {
            // Meanwhile the callers compute: that is twice as many threads.
            let threads = 2 * self.local_ranks.load(Ordering::Relaxed);
            let spin = SpinPolicy::new(threads, self.cores);
            let mut never = || false;
            self.drive(
                spin,
                &|| !self.hand_over.has_work(),
                &mut WaitConditions::new(None, &mut never),
            );
        };
        self.hand_over.turn(drive, || self.idle(), IDLE);
    }

    /// Whether progress must go on without groups: memory of closed ones may still be written by
    /// peers, and whoever uses the endpoint wants it back.
    fn lingers(&self) -> bool {
        self.endpoint.pool().quarantined() > 0 && Arc::strong_count(&self.endpoint) > OWN_USES
    }

    /// Sleeps while nothing is under way: only the links can bring news, by their descriptors or,
    /// those that have none, by a notification, which is looked for now and then.
    fn idle(&self) {
        self.with(|state, finished| {
            state.flush_late(finished);
            state.look_for_ends(finished);
        });
        let polled = self.hand_over.poll(|| self.poller.wait(IDLE));
        let events = polled.is_some_and(|ready| !ready.is_empty());
        let notified = self.endpoint.doorbell().take_notification();
        if notified {
            self.lock().notified = true;
        }
        if (events || notified)
            && let Some(_right) = self.hand_over.take()
        {
            self.pass();
        }
    }
}

impl Wake for Engine {
    fn ring_driver(&self) {
        self.endpoint.doorbell().ring();
    }

    fn end_poll(&self) {
        self.poller.wake();
    }
}

impl Drop for Engine {
    /// Sends what is still queued, as far as the peers take it. In a forked child everything is the
    /// parent's.
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        let until = Instant::now() + LINGER;
        let mut finished = Finished::new();
        while self.lock().unsent() && Instant::now() < until {
            self.lock().resume(&mut finished);
            std::thread::yield_now();
        }
        self.finish(finished);
    }
}

/// Whether a waiting thread should stop waiting for other reasons than the end of its operation.
struct WaitConditions<'a> {
    deadline: Option<Instant>,
    interrupted: &'a mut dyn FnMut() -> bool,
    asked: Instant,
}

impl<'a> WaitConditions<'a> {
    fn new(deadline: Option<Instant>, interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        WaitConditions {
            deadline,
            interrupted,
            asked: Instant::now(),
        }
    }

    /// How long to sleep at most before looking again.
    fn sleep_max(&self) -> Duration {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(INTERRUPT_POLL, |left| left.min(INTERRUPT_POLL))
    }

    fn look(&mut self) -> Option<Waited> {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(Waited::NotYet);
        }
        if now - self.asked >= INTERRUPT_POLL {
            self.asked = now;
            if (self.interrupted)() {
                return Some(Waited::Interrupted);
            }
        }
        None
    }
}

fn progress_thread(engine: &Weak<Engine>) {
    let mut lingering = None;
    while let Some(engine) = engine.upgrade() {
        drop(lingering);
        engine.turn();
        lingering = engine.lingers().then_some(engine);
    }
}
