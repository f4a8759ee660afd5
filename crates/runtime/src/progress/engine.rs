//! The progress engine, with one driver at a time per endpoint: a waiting caller or the progress
//! thread.
//!
//! [Note: Driving] The driver is the thread that holds the right to drive. It runs passes over the
//! state until the operation that it waits for has ended, and only the driver sleeps on the
//! doorbell. A blocking call takes the right if it is free, so that a small operation never leaves
//! the calling thread. The progress thread takes it while operations are unfinished and no other
//! thread drives. Between operations it sleeps on the links' descriptors, so that idle ranks pass
//! on reports of failures too. A thread that finds the right taken parks on its operation's
//! completion. See [Note: Handing over].
//!
//! [Note: Interrupts without the right] A check for interrupts may wait for a lock, such as an
//! interpreter's, whose holder may wait for an operation of this endpoint. So a driver gives the
//! right back before each check, and takes it again after it if it is still free.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_bootstrap::Endpoint;
use weft_call::{Completion, Finished};
use weft_transport::{Sleep, Woken, fork};

use super::hand_over::{HandOver, Wake};
use super::poller::Poller;
use super::state::ProgressState;
use super::status::{StatusService, WaitTime, WaitingThread};
use crate::Error;
use crate::execution::SpinPolicy;

/// The end of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// The operation has ended.
    Done,
    /// The wait timed out; the operation continues.
    NotYet,
    /// The caller's `interrupted` returned true; the operation continues.
    Interrupted,
}

/// Interval in which a waiting thread checks for interrupts.
pub(crate) const INTERRUPT_POLL: Duration = Duration::from_millis(50);
/// Passes between two checks of the clock of a driver that makes progress.
const PASSES_PER_CHECK: u32 = 64;
/// Times that a driver yields to threads that want the state before it continues.
const YIELDS: u32 = 100;
/// The longest sleep of the progress thread.
const IDLE: Duration = Duration::from_millis(100);
/// References to the endpoint that an engine and its state hold.
const OWN_USES: usize = 2;
/// The time that a closing endpoint gives peers to receive queued data.
const LINGER: Duration = Duration::from_secs(1);

/// Progress for one endpoint. The progress thread ends with the last group or operation that refers
/// to it.
pub(crate) struct Engine {
    endpoint: Arc<Endpoint>,
    state: Mutex<ProgressState>,
    /// Threads that wait for the state; the driver yields to them.
    contenders: AtomicUsize,
    hand_over: HandOver,
    poller: Poller,
    /// The most ranks of any group that share this machine.
    local_ranks: AtomicUsize,
    cores: usize,
    wait_time: Arc<WaitTime>,
    /// From the first group on, until the endpoint closes.
    pub(super) status: Mutex<StatusService>,
    generation: u64,
}

impl Engine {
    /// Starts progress for an endpoint.
    pub(crate) fn start(endpoint: Arc<Endpoint>) -> Result<Arc<Engine>, Error> {
        let poller = Poller::new().map_err(|e| Error::refused_here("watch its connections", &e))?;
        let state = ProgressState::new(endpoint.clone(), poller.clone());
        let engine = Arc::new(Engine {
            wait_time: state.wait_time.clone(),
            state: Mutex::new(state),
            endpoint,
            contenders: AtomicUsize::new(0),
            hand_over: HandOver::new(),
            poller,
            local_ranks: AtomicUsize::new(1),
            // Counts affinity and the cgroup's quota.
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            status: Mutex::default(),
            generation: fork::generation(),
        });
        let (ready_links, poller) = (engine.lock().ready_links.clone(), engine.poller.clone());
        let doorbell = engine.endpoint.doorbell().clone();
        engine.endpoint.on_link(Box::new(move |link| {
            ready_links.add(link);
            // Wakes a driver that sleeps, or the idle progress thread.
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

    /// Returns an error in a forked child: the engine and its threads belong to the parent.
    pub(crate) fn check_generation(&self) -> Result<(), Error> {
        if self.generation == fork::generation() {
            return Ok(());
        }
        let message =
            "using weft in a forked child of the process that made the group; make a new one there";
        Err(Error::Unsupported(message.into()))
    }

    /// Changes the state, then completes the operations that ended by it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut ProgressState, &mut Finished) -> T) -> T {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        let mut finished = Finished::new();
        state.watch_ready_links();
        let result = change(&mut state, &mut finished);
        // Queued data must not wait for the next pass: there may be none.
        state.flush(&mut finished);
        self.hand_over.note_pending(state.pending());
        drop(state);
        self.finish(finished);
        result
    }

    /// Makes sure that a thread drives unfinished operations: wakes the driver if it sleeps, or the
    /// progress thread.
    pub(crate) fn hand_over(&self) {
        self.hand_over.hand_over(self);
    }

    /// The polling policy of calling threads.
    pub(crate) fn spin(&self) -> SpinPolicy {
        SpinPolicy::new(self.local_ranks.load(Ordering::Relaxed), self.cores)
    }

    /// Records that a group has `ranks` ranks on this machine.
    pub(crate) fn note_local_ranks(&self, ranks: usize) {
        self.local_ranks.fetch_max(ranks, Ordering::Relaxed);
    }

    /// Waits until an operation has ended, and drives progress while no other thread does.
    pub(crate) fn wait(
        &self,
        completion: &Completion,
        deadline: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Waited {
        if completion.is_over() {
            return Waited::Done;
        }
        let mut watch = WaitConditions::new(deadline, interrupted).counted_in(&self.wait_time);
        while !completion.is_over() {
            let due = self.hand_over.drive_or_park(
                self,
                &mut watch,
                |watch| self.drive(self.spin(), &|| completion.is_over(), watch),
                |watch, free| {
                    completion.park(watch.sleep_max(), free);
                    watch.due()
                },
            );
            match due {
                Some(Due::TimedOut) => return Waited::NotYet,
                // See [Note: Interrupts without the right].
                Some(Due::Check) if watch.check() => return Waited::Interrupted,
                _ => {}
            }
        }
        Waited::Done
    }

    /// Runs passes until `over`, or until something is due.
    fn drive(
        &self,
        spin: SpinPolicy,
        over: &dyn Fn() -> bool,
        watch: &mut WaitConditions<'_>,
    ) -> Option<Due> {
        let presence = self.endpoint.doorbell().enter();
        let (mut spin, mut passes) = (spin.begin(1, &presence), 0_u32);
        loop {
            let progressed = self.pass();
            if over() {
                return None;
            }
            passes = passes.wrapping_add(1);
            if passes.is_multiple_of(PASSES_PER_CHECK)
                && let Some(due) = watch.due()
            {
                return Some(due);
            }
            // Sleeping begins with a pass, which is enough if what is awaited takes long.
            let peer = || self.lock().awaited_peer();
            let polls = match progressed {
                true => spin.go_on(peer),
                false => spin.pause(peer),
            };
            if polls {
                continue;
            }
            if let Some(due) = watch.due() {
                return Some(due);
            }
            if self.sleep(watch.sleep_max(), over) {
                spin.restart();
            }
            presence.refresh();
        }
    }

    /// Sleeps until an event. True if a last pass before sleeping made progress.
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

    /// Completes ended operations. Flight records are written before callers see a failure.
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
            // The callers compute meanwhile, which doubles the number of threads.
            let threads = 2 * self.local_ranks.load(Ordering::Relaxed);
            let spin = SpinPolicy::new(threads, self.cores);
            self.drive(
                spin,
                &|| !self.hand_over.has_work(),
                &mut WaitConditions::never(),
            );
        };
        self.hand_over.turn(drive, || self.idle(), IDLE);
    }

    /// Whether progress must continue without groups: peers may still write into memory of closed
    /// groups, and the endpoint's users need it back.
    fn lingers(&self) -> bool {
        self.endpoint.pool().quarantined() > 0 && Arc::strong_count(&self.endpoint) > OWN_USES
    }

    /// Sleeps while no operation is unfinished. Only links can end that: by their descriptors, or,
    /// if they have none, by a notification, which is checked after each sleep.
    fn idle(&self) {
        self.with(|state, finished| {
            state.flush_late(finished);
            state.detect_process_ends(finished);
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
    /// Sends queued data, as far as peers receive it. Does nothing in a forked child, where
    /// everything belongs to the parent.
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

/// The next thing for a waiting thread to do before its operation has ended.
enum Due {
    /// To stop: the wait timed out.
    TimedOut,
    /// To check for interrupts.
    Check,
}

/// Reasons for a thread to stop waiting before its operation has ended.
struct WaitConditions<'a> {
    deadline: Option<Instant>,
    /// None for a thread that nothing interrupts.
    interrupted: Option<&'a mut dyn FnMut() -> bool>,
    checked: Instant,
    wait_time: Option<&'a WaitTime>,
    counted: Option<WaitingThread<'a>>,
}

impl<'a> WaitConditions<'a> {
    fn new(deadline: Option<Instant>, interrupted: &'a mut dyn FnMut() -> bool) -> Self {
        WaitConditions {
            deadline,
            interrupted: Some(interrupted),
            ..Self::never()
        }
    }

    /// There is no reason.
    fn never() -> Self {
        WaitConditions {
            deadline: None,
            interrupted: None,
            checked: Instant::now(),
            wait_time: None,
            counted: None,
        }
    }

    /// Counts the wait once somebody watches, which may begin during the wait.
    fn counted_in(self, wait_time: &'a WaitTime) -> Self {
        WaitConditions {
            wait_time: Some(wait_time),
            counted: wait_time.enter(),
            ..self
        }
    }

    /// The longest sleep until something may be due.
    fn sleep_max(&self) -> Duration {
        let left = self
            .deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(INTERRUPT_POLL, |left| left.min(INTERRUPT_POLL))
    }

    fn due(&self) -> Option<Due> {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) {
            return Some(Due::TimedOut);
        }
        (self.interrupted.is_some() && now - self.checked >= INTERRUPT_POLL).then_some(Due::Check)
    }

    /// Whether the thread was interrupted. Called without the right to drive.
    fn check(&mut self) -> bool {
        self.checked = Instant::now();
        if self.counted.is_none() {
            self.counted = self.wait_time.and_then(WaitTime::enter);
        }
        (self.interrupted.as_mut()).is_some_and(|interrupted| interrupted())
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
