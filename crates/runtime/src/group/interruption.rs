//! Interruption of calls that wait for other ranks without an operation: connecting, and the set-up
//! of groups and symmetric memory.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::Error;

/// The interval in which a call checks for interrupts.
const POLL: Duration = Duration::from_millis(50);

thread_local! {
    static INTERRUPTED: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Runs a call that can be interrupted. While it waits for other ranks on this thread,
/// `interrupted` is called about every 50 ms; once it returns true, the call fails with
/// [`Error::Aborted`].
///
/// A set-up of all ranks then fails on the other ranks as well. Waits for operations have their own
/// check: see [`crate::Work::wait`].
pub fn interruptible<T>(interrupted: fn() -> bool, call: impl FnOnce() -> T) -> T {
    let _previous = PreviousCheck(INTERRUPTED.replace(Some(interrupted)));
    call()
}

/// The previous check, which is restored on drop, even after a panic.
struct PreviousCheck(Option<fn() -> bool>);

impl Drop for PreviousCheck {
    fn drop(&mut self) {
        INTERRUPTED.set(self.0);
    }
}

/// The interrupt check of the current call of this thread, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Interruption {
    interrupted: Option<fn() -> bool>,
    checked: Instant,
}

impl Interruption {
    pub(super) fn of_this_call() -> Self {
        Interruption {
            interrupted: INTERRUPTED.get(),
            checked: Instant::now(),
        }
    }

    /// Runs `blocking` on a new thread, and stops it once this call is interrupted or `stops`
    /// returns true.
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
            let mut checked = Ok(());
            while over.recv_timeout(POLL) == Err(RecvTimeoutError::Timeout) {
                checked = checked.and_then(|()| self.check());
                if checked.is_err() || stops() {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            let result = worker.join();
            checked?;
            result.unwrap_or_else(|_| Err(Error::Internal("a thread panicked".into())))
        })
    }

    /// Returns an error if the call has been interrupted. Checks only once per interval.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        if self.checked.elapsed() >= POLL {
            self.checked = Instant::now();
            if self.interrupted.is_some_and(|interrupted| interrupted()) {
                return Err(Error::interrupted());
            }
        }
        Ok(())
    }
}
