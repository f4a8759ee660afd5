//! Interruption of calls that wait for other ranks before there is an operation: links that are
//! made, groups and symmetric memory that are set up.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// How often a call asks whether it has been interrupted.
const POLL: Duration = Duration::from_millis(50);

thread_local! {
    static ASKED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Runs a call. While it waits for other ranks on this thread, `interrupted` is asked about every
/// 50 ms; once it returns true, the call fails with [`Error::Aborted`].
///
/// What was being set up for all ranks then fails on the others as well. Waits for operations have
/// a question of their own: see [`crate::Work::wait`].
pub fn interruptible<T>(interrupted: fn() -> bool, call: impl FnOnce() -> T) -> T {
    let _before = Before(ASKED.replace(Some(interrupted)));
    call()
}

/// What was asked before, to which it is set back also after a panic.
struct Before(Option<fn() -> bool>);

impl Drop for Before {
    fn drop(&mut self) {
        ASKED.set(self.0);
    }
}

/// The question of the call that this thread is in, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Interruption {
    ask: Option<fn() -> bool>,
    asked: Instant,
}

impl Interruption {
    pub(super) fn of_this_call() -> Self {
        Interruption {
            ask: ASKED.get(),
            asked: Instant::now(),
        }
    }

    /// Runs `blocking` on a thread of its own, and lets it stop once this call is interrupted, or
    /// it `stops` for something else.
    pub(super) fn watch<T: Send>(
        &mut self,
        mut stops: impl FnMut() -> bool,
        blocking: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let stop = &AtomicBool::new(false);
        thread::scope(|scope| {
            let (done, over) = channel();
            let worker = thread::Builder::new().spawn_scoped(scope, move || {
                let result = blocking(stop);
                // The receiver lives until this thread is joined.
                let _ = done.send(());
                result
            });
            let worker =
                worker.map_err(|e| Error::Internal(format!("cannot start a thread: {e}")))?;
            let mut asked = Ok(());
            while over.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                asked = asked.and_then(|()| self.check());
                if asked.is_err() || stops() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            let result = worker.join();
            asked?;
            result.unwrap_or_else(|_| Err(Error::Internal("a thread panicked".into())))
        })
    }

    /// Asks, if that is due: an error, if the call has been interrupted.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        if self.asked.elapsed() >= POLL {
            self.asked = Instant::now();
            if self.ask.is_some_and(|interrupted| interrupted()) {
                return Err(Error::interrupted());
            }
        }
        Ok(())
    }
}
