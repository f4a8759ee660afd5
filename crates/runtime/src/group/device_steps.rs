//! The steps of a group on memory of devices, in one order: collectives between a word that a
//! device writes and one that it waits for, and other steps, which the caller carries out.
//!
//! [Note: From word to word] A device may wait for a collective while a thread waits for the
//! device, with any lock of the program: of a driver's calls, or of an interpreter. So between the
//! device's word and ours, the thread that carries out the steps, and the one that ends a
//! collective, take locks of this module and the engine only, which are held for no wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::{Waited, Work};
use crate::Error;
use crate::lock::lock;
use crate::progress::INTERRUPT_POLL;

const SLEEP_MIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_micros(500);
/// A sleep is at most this part of the time that has been waited: so it adds little to that.
const SLEEP_SHARE: u32 = 16;
/// As [`SLEEP_SHARE`], for sleeps longer than [`SLEEP_MAX`]: waking so often in a long wait would
/// take some percent of a core.
const LONG_SLEEP_SHARE: u32 = 256;
const LONG_SLEEP_MAX: Duration = Duration::from_millis(5);
/// The time after which somebody is asked to look at a device that makes the host wait.
const LOOK: Duration = Duration::from_millis(200);

/// A word of memory that a device and the host share, and a value of it, modulo 2**32.
#[derive(Clone, Copy, Debug)]
pub struct DeviceWord {
    word: &'static AtomicU32,
    value: u32,
}

impl DeviceWord {
    /// `word` is only ever set to larger values, modulo 2**32, each as a whole.
    pub fn new(word: &'static AtomicU32, value: u32) -> Self {
        Self { word, value }
    }

    /// Waits until the word has reached the value. Returns false if `gives_up` returns true
    /// earlier, for the time that has been waited.
    ///
    /// Nothing announces the write of a device, so this looks at the word between short sleeps. It
    /// takes no lock and calls no driver.
    pub fn wait(self, mut gives_up: impl FnMut(Duration) -> bool) -> bool {
        let began = Instant::now();
        loop {
            let ahead = self.word.load(Ordering::Acquire).wrapping_sub(self.value);
            if ahead.cast_signed() >= 0 {
                return true;
            }
            let waited = began.elapsed();
            if gives_up(waited) {
                return false;
            }
            let most = (waited / LONG_SLEEP_SHARE).clamp(SLEEP_MAX, LONG_SLEEP_MAX);
            thread::sleep((waited / SLEEP_SHARE).clamp(SLEEP_MIN, most));
        }
    }

    fn set(self) {
        self.word.store(self.value, Ordering::Release);
    }
}

/// The collectives of one operation, and whether they have ended.
pub struct HostPart {
    progress: Mutex<PartProgress>,
    ended: Condvar,
}

struct PartProgress {
    left: usize,
    error: Option<Error>,
    skipped: bool,
}

/// The end of a collective.
enum End {
    Done,
    Failed(Error),
    /// It was not begun, because the steps were stopped before.
    Skipped,
}

impl HostPart {
    /// The part of an operation of this many collectives.
    pub fn new(collectives: usize) -> Arc<Self> {
        Arc::new(Self {
            progress: Mutex::new(PartProgress {
                left: collectives,
                error: None,
                skipped: false,
            }),
            ended: Condvar::new(),
        })
    }

    /// Waits until all collectives have ended. `interrupted` is called about every 50 ms.
    pub fn wait(&self, timeout: Option<Duration>, interrupted: &mut dyn FnMut() -> bool) -> Waited {
        let deadline = timeout.and_then(|time| Instant::now().checked_add(time));
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let sleep = left.map_or(INTERRUPT_POLL, |left| left.min(INTERRUPT_POLL));
            let waits = |progress: &mut PartProgress| progress.left > 0;
            let waited = self
                .ended
                .wait_timeout_while(lock(&self.progress), sleep, waits);
            // The lock is not held during the check, which may wait: see [Note: From word to word].
            drop(waited);
            if self.is_over() {
                return Waited::Done;
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Waited::NotYet;
            }
            if interrupted() {
                return Waited::Interrupted;
            }
        }
    }

    /// Whether all collectives have ended.
    pub fn is_over(&self) -> bool {
        lock(&self.progress).left == 0
    }

    /// The first error of a collective.
    pub fn error(&self) -> Option<Error> {
        lock(&self.progress).error.clone()
    }

    /// Whether a collective was not begun, because the steps were stopped before.
    pub fn is_skipped(&self) -> bool {
        lock(&self.progress).skipped
    }

    fn end(&self, end: End) {
        let mut progress = lock(&self.progress);
        progress.left -= 1;
        match end {
            End::Done => {}
            End::Failed(error) => {
                progress.error.get_or_insert(error);
            }
            End::Skipped => progress.skipped = true,
        }
        if progress.left == 0 {
            self.ended.notify_all();
        }
    }
}

/// Starts a collective in the background.
pub(super) type Begin = Box<dyn FnOnce() -> Result<Work, Error> + Send>;

/// A collective on memory that a device copies to the host and back.
pub struct DeviceCollective {
    /// The device's number, for those who look at it.
    pub device: u32,
    /// Reached when the copy to the host is complete.
    pub arrival: DeviceWord,
    /// Starts the collective.
    pub begin: Begin,
    /// Set when the copy back may begin. It is also set after a failure: a stream must not hang.
    pub release: DeviceWord,
    /// The operation, which is informed of the end before the copy back may begin.
    pub part: Arc<HostPart>,
}

/// A task for a thread that may wait.
#[derive(Debug)]
pub enum Report {
    /// To ask whether a device, which makes the host wait, still works.
    Look(u32),
    /// To report the failure that has stopped the steps.
    Failed(Error),
}

/// The steps of a group, which a thread carries out in [`DeviceSteps::next`]; see
/// [Note: From word to word].
pub struct DeviceSteps<T> {
    queue: Mutex<Queue<T>>,
    added: Condvar,
    state: Arc<State>,
}

struct Queue<T> {
    steps: VecDeque<Step<T>>,
    closed: bool,
}

enum Step<T> {
    Collective(DeviceCollective),
    Other(T),
}

/// The state that ends of collectives change.
struct State {
    free: Mutex<usize>,
    room: Condvar,
    /// Whether no collective is begun any more.
    stopped: AtomicBool,
    reports: Mutex<Reports>,
    reported: Condvar,
}

#[derive(Default)]
struct Reports {
    /// The first failure of a collective.
    failure: Option<Error>,
    /// Whether the failure has been reported.
    is_reported: bool,
    look: Option<u32>,
    closed: bool,
}

impl<T> DeviceSteps<T> {
    /// At most `most` steps are under way.
    pub fn new(most: usize) -> Self {
        Self {
            queue: Mutex::new(Queue {
                steps: VecDeque::new(),
                closed: false,
            }),
            added: Condvar::new(),
            state: Arc::new(State {
                free: Mutex::new(most),
                room: Condvar::new(),
                stopped: AtomicBool::new(false),
                reports: Mutex::default(),
                reported: Condvar::new(),
            }),
        }
    }

    /// Waits until one more step may be under way. `interrupted` is called about every 50 ms.
    pub fn take_room(&self, interrupted: &mut dyn FnMut() -> bool) -> Waited {
        loop {
            let free = lock(&self.state.free);
            let full = |free: &mut usize| *free == 0;
            let waited = self
                .state
                .room
                .wait_timeout_while(free, INTERRUPT_POLL, full);
            let (mut free, _) = waited.unwrap_or_else(PoisonError::into_inner);
            if *free > 0 {
                *free -= 1;
                return Waited::Done;
            }
            drop(free);
            if interrupted() {
                return Waited::Interrupted;
            }
        }
    }

    /// Gives back the room of a step of the caller's, or of one that is not added.
    pub fn give_room(&self) {
        self.state.give_room();
    }

    /// Adds a collective, for which there is room, and which gives that back.
    pub fn add_collective(&self, collective: DeviceCollective) {
        self.add(Step::Collective(collective));
    }

    /// Adds a step for the caller of [`DeviceSteps::next`].
    pub fn add_other(&self, step: T) {
        self.add(Step::Other(step));
    }

    fn add(&self, step: Step<T>) {
        lock(&self.queue).steps.push_back(step);
        self.added.notify_one();
    }

    /// Begins collectives in their order, each when its data has arrived, until the next step is
    /// the caller's, and returns that. Returns None at the end of the steps, once they are closed.
    pub fn next(&self) -> Option<T> {
        loop {
            match self.taken()? {
                Step::Collective(collective) => self.state.carry_out(collective),
                Step::Other(step) => return Some(step),
            }
        }
    }

    fn taken(&self) -> Option<Step<T>> {
        let waits = |queue: &mut Queue<T>| queue.steps.is_empty() && !queue.closed;
        let queue = self.added.wait_while(lock(&self.queue), waits);
        queue
            .unwrap_or_else(PoisonError::into_inner)
            .steps
            .pop_front()
    }

    /// Lets [`DeviceSteps::next`] return None after the steps that have been added.
    pub fn close(&self) {
        lock(&self.queue).closed = true;
        self.added.notify_all();
    }

    /// Begins no further collective. Those that follow are skipped, and release their devices.
    pub fn stop(&self) {
        self.state.stopped.store(true, Ordering::Release);
    }

    /// The first failure of a collective.
    pub fn failure(&self) -> Option<Error> {
        lock(&self.state.reports).failure.clone()
    }

    /// Waits for something to do; None after [`DeviceSteps::close_reports`].
    pub fn report(&self) -> Option<Report> {
        let waits = |reports: &mut Reports| {
            let is_new = reports.failure.is_some() && !reports.is_reported;
            !is_new && reports.look.is_none() && !reports.closed
        };
        let reports = self
            .state
            .reported
            .wait_while(lock(&self.state.reports), waits);
        let mut reports = reports.unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = reports.failure.clone()
            && !std::mem::replace(&mut reports.is_reported, true)
        {
            return Some(Report::Failed(error));
        }
        reports.look.take().map(Report::Look)
    }

    /// Lets [`DeviceSteps::report`] return None after the last report.
    pub fn close_reports(&self) {
        lock(&self.state.reports).closed = true;
        self.state.reported.notify_all();
    }
}

impl State {
    fn carry_out(self: &Arc<Self>, collective: DeviceCollective) {
        let (part, release) = (collective.part, collective.release);
        if !self.arrives(collective.device, collective.arrival) {
            return self.end(&part, End::Skipped, release);
        }
        match (collective.begin)() {
            Ok(work) => {
                let state = self.clone();
                work.on_done(Box::new(move |result| {
                    state.end(
                        &part,
                        result.map_or_else(End::Failed, |()| End::Done),
                        release,
                    );
                }));
            }
            Err(error) => self.end(&part, End::Failed(error), release),
        }
    }

    /// Waits for data of a device. False if the steps are stopped.
    fn arrives(&self, device: u32, arrival: DeviceWord) -> bool {
        let stopped = || self.stopped.load(Ordering::Acquire);
        let mut look = LOOK;
        let arrived = arrival.wait(|waited| {
            if waited >= look {
                look = waited + LOOK;
                lock(&self.reports).look = Some(device);
                self.reported.notify_one();
            }
            stopped()
        });
        arrived && !stopped()
    }

    fn end(&self, part: &HostPart, end: End, release: DeviceWord) {
        if let End::Failed(error) = &end {
            self.fail(error);
        }
        // Before the device is released: when the result is complete, the handle must know.
        part.end(end);
        release.set();
        self.give_room();
    }

    fn fail(&self, error: &Error) {
        // Later steps must not begin: they would end with errors of their own.
        lock(&self.reports)
            .failure
            .get_or_insert_with(|| error.clone());
        self.stopped.store(true, Ordering::Release);
        self.reported.notify_one();
    }

    fn give_room(&self) {
        *lock(&self.free) += 1;
        self.room.notify_one();
    }
}
