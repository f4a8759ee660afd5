//! Who drives progress: one thread at a time per endpoint, be it a caller that waits or the progress thread.
//!
//! [Note: Driving] Whoever holds the `driving` flag runs passes over the state until what it waits for is over, and is
//! the only one to sleep on the bell. A blocking call takes the flag if it is free, so that a small operation
//! never leaves the calling thread. The progress thread takes it whenever something is under way and nobody else
//! drives; between operations it sleeps on the links' descriptors, so that news of a death travels through idle ranks too. Threads
//! that find the flag taken park on their operation's completion.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_transport::{Link, Sleep, Woken};

use crate::Error;
use crate::endpoint::Endpoint;
use crate::poller::Poller;
use crate::spin::Patience;
use crate::state::State;
use crate::work::{Completion, Waited};

/// Operations that have ended, and how.
pub(crate) type Finished = Vec<(Arc<Completion>, Result<(), Error>)>;

/// How often a waiting thread asks whether it has been interrupted.
const INTERRUPT_POLL: Duration = Duration::from_millis(50);
/// How long the progress thread sleeps at most.
const IDLE: Duration = Duration::from_millis(100);
/// How long an endpoint that ends waits for peers to take what is queued for them.
const LINGER: Duration = Duration::from_secs(1);

/// Progress for one endpoint. The progress thread ends with the last group or operation that refers to it.
pub(crate) struct Engine {
    endpoint: Arc<Endpoint>,
    state: Mutex<State>,
    /// Threads that want the state; the driver lets them have it.
    contenders: AtomicUsize,
    driving: AtomicBool,
    /// The number of things under way.
    pending: AtomicUsize,
    poller: Poller,
    /// Whether the progress thread has been asked to look again.
    kicked: Mutex<bool>,
    kick: Condvar,
    /// What the progress thread is doing: see [`Engine::hand_over`].
    whereabouts: AtomicU8,
    /// The most ranks of any group that share this machine.
    crowd: AtomicUsize,
    cores: usize,
}

/// The progress thread is running, or about to look at `pending`.
const UP: u8 = 0;
/// It sleeps on descriptors.
const POLLING: u8 = 1;
/// It sleeps until it is kicked, because somebody else drives.
const RESTING: u8 = 2;

impl Engine {
    /// Starts progress for an endpoint.
    pub(crate) fn start(endpoint: Arc<Endpoint>) -> Result<Arc<Engine>, Error> {
        let poller = Poller::new().map_err(|e| Error::Internal(format!("epoll: {e}")))?;
        let engine = Arc::new(Engine {
            state: Mutex::new(State::new(endpoint.clone(), poller.clone())),
            endpoint,
            contenders: AtomicUsize::new(0),
            driving: AtomicBool::new(false),
            pending: AtomicUsize::new(0),
            poller,
            kicked: Mutex::new(false),
            kick: Condvar::new(),
            whereabouts: AtomicU8::new(UP),
            crowd: AtomicUsize::new(1),
            // Counts affinity and the cgroup's quota.
            cores: std::thread::available_parallelism().map_or(1, usize::from),
        });
        let watcher = Arc::downgrade(&engine);
        engine
            .endpoint
            .on_link(Box::new(move |link| watch(&watcher, link)));
        let progress = Arc::downgrade(&engine);
        std::thread::Builder::new()
            .name("weft-progress".into())
            .spawn(move || progress_thread(&progress))
            .map_err(|e| Error::Internal(format!("cannot start the progress thread: {e}")))?;
        Ok(engine)
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Changes the state, then ends what has ended by it.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State, &mut Finished) -> T) -> T {
        self.contenders.fetch_add(1, Ordering::Relaxed);
        let mut state = self.lock();
        self.contenders.fetch_sub(1, Ordering::Relaxed);
        let mut finished = Finished::new();
        let result = change(&mut state, &mut finished);
        // What was queued must not wait for the next pass: perhaps nothing is under way here.
        state.flush(&mut finished);
        self.pending.store(state.pending(), Ordering::SeqCst);
        drop(state);
        finish(finished);
        result
    }

    /// Lets the progress thread take over what is under way, unless somebody drives already.
    pub(crate) fn hand_over(&self) {
        if self.pending.load(Ordering::SeqCst) > 0 && !self.driving.load(Ordering::SeqCst) {
            self.rouse();
        }
    }

    /// Wakes the progress thread, wherever it sleeps.
    fn rouse(&self) {
        match self.whereabouts.load(Ordering::SeqCst) {
            POLLING => self.poller.wake(),
            RESTING => {
                *self.kicked.lock().unwrap_or_else(PoisonError::into_inner) = true;
                self.kick.notify_one();
            }
            _ => {}
        }
    }

    /// Takes note that so many ranks share this machine.
    pub(crate) fn crowd(&self, ranks: usize) {
        self.crowd.fetch_max(ranks, Ordering::Relaxed);
    }

    /// Waits until an operation is over, driving progress where nobody else does.
    pub(crate) fn wait(
        &self,
        completion: &Completion,
        deadline: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Waited {
        let mut asked = Instant::now();
        loop {
            if completion.is_over() {
                return Waited::Done;
            }
            let waited = if self.take_over() {
                let patience = Patience::new(self.crowd.load(Ordering::Relaxed), self.cores);
                let over = || completion.is_over();
                let waited = self.drive(patience, &over, deadline, interrupted);
                self.driving.store(false, Ordering::SeqCst);
                self.hand_over();
                Some(waited)
            } else {
                completion.park(INTERRUPT_POLL, || !self.driving.load(Ordering::SeqCst));
                None
            };
            if let Some(waited) = waited.filter(|waited| *waited != Waited::Done) {
                return waited;
            }
            if completion.is_over() {
                return Waited::Done;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Waited::NotYet;
            }
            if now - asked >= INTERRUPT_POLL {
                asked = now;
                if interrupted() {
                    return Waited::Interrupted;
                }
            }
        }
    }

    fn take_over(&self) -> bool {
        let free = self
            .driving
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::Relaxed);
        free.is_ok()
    }

    /// Runs passes until `over`, the deadline, or an interruption. The caller holds the driving flag.
    fn drive(
        &self,
        patience: Patience,
        over: &dyn Fn() -> bool,
        deadline: Option<Instant>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Waited {
        let mut idle = 0;
        let mut asked: Option<Instant> = None;
        loop {
            let progressed = self.pass();
            if over() {
                return Waited::Done;
            }
            if progressed {
                idle = 0;
                continue;
            }
            idle += 1;
            if patience.pause(idle) {
                continue;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Waited::NotYet;
            }
            if now - *asked.get_or_insert(now) >= INTERRUPT_POLL {
                asked = Some(now);
                if interrupted() {
                    return Waited::Interrupted;
                }
            }
            let time = deadline.map_or(INTERRUPT_POLL, |d| INTERRUPT_POLL.min(d - now));
            if self.sleep(time, over) {
                idle = 0;
            }
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
                state.sockets_carry_data,
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
        if self.endpoint.bell().sleep(mode, &mut ready, time) == Woken::Knocked {
            self.lock().knocked = true;
        }
        progressed
    }

    /// One pass over the state. True if anything moved.
    fn pass(&self) -> bool {
        if self.contenders.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let mut finished = Finished::new();
        let mut state = self.lock();
        let progressed = state.pass(&mut finished);
        self.pending.store(state.pending(), Ordering::SeqCst);
        drop(state);
        let ended = !finished.is_empty();
        finish(finished);
        progressed || ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One turn of the progress thread.
    fn turn(&self) {
        if self.has_work() && self.take_over() {
            // Meanwhile the callers compute: that is twice as many threads.
            let threads = 2 * self.crowd.load(Ordering::Relaxed);
            let patience = Patience::new(threads, self.cores);
            let over = || !self.has_work();
            self.drive(patience, &over, None, &mut || false);
            self.driving.store(false, Ordering::SeqCst);
        } else if self.driving.load(Ordering::SeqCst) {
            self.rest();
        } else {
            self.idle();
        }
    }

    fn has_work(&self) -> bool {
        self.pending.load(Ordering::SeqCst) > 0
    }

    /// Sleeps while nothing is under way: only the links' descriptors can bring news.
    fn idle(&self) {
        self.whereabouts.store(POLLING, Ordering::SeqCst);
        let news = !self.has_work() && !self.poller.wait(IDLE).is_empty();
        self.whereabouts.store(UP, Ordering::SeqCst);
        if news && self.take_over() {
            self.pass();
            self.driving.store(false, Ordering::SeqCst);
        }
    }

    /// Sleeps while somebody else drives.
    fn rest(&self) {
        let mut kicked = self.kicked.lock().unwrap_or_else(PoisonError::into_inner);
        self.whereabouts.store(RESTING, Ordering::SeqCst);
        if !*kicked && self.driving.load(Ordering::SeqCst) {
            let waited = self.kick.wait_timeout(kicked, IDLE);
            kicked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        self.whereabouts.store(UP, Ordering::SeqCst);
        *kicked = false;
    }
}

impl Drop for Engine {
    /// Sends what is still queued, as far as the peers take it.
    fn drop(&mut self) {
        let until = Instant::now() + LINGER;
        while self.lock().unsent() && Instant::now() < until {
            self.pass();
            std::thread::yield_now();
        }
    }
}

fn finish(finished: Finished) {
    for (completion, result) in finished {
        completion.finish(result);
    }
}

fn watch(engine: &Weak<Engine>, link: Arc<dyn Link>) {
    if let Some(engine) = engine.upgrade() {
        engine.with(|state, _| state.watch(link));
    }
}

fn progress_thread(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        engine.turn();
    }
}
