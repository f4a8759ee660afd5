//! Long blocking calls: release of the interpreter lock, and interruption by Ctrl-C or by another
//! thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use weft_runtime::{Error, Waited};

use crate::error::{argument_error, checked};

const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// Longer times mean "forever", as `Instant` could overflow.
const SECONDS_MAX: f64 = 1e9;

/// Ends a meeting of ranks from another thread.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Clone)]
pub(crate) struct Cancellation(Arc<AtomicBool>);

#[pymethods]
impl Cancellation {
    #[new]
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(false)))
    }

    /// Makes the meetings with this object fail with `weft.Aborted`.
    fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was cancelled.
    #[getter]
    fn cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `blocking` on a new thread without the interpreter lock. A signal whose Python handler
/// raises sets the flag that `blocking` receives, and its exception is raised here after `blocking`
/// has returned.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    cancel: &Cancellation,
    blocking: impl FnOnce(&AtomicBool) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let flag = &*cancel.0;
    let task = Mutex::new(Some(blocking));
    let run = || {
        let task = task.lock().unwrap_or_else(PoisonError::into_inner).take();
        task.expect("it runs only once")(flag)
    };
    let (signal, result) = py.detach(|| {
        thread::scope(|scope| {
            let (done, wait_done) = channel();
            let worker = thread::Builder::new().spawn_scoped(scope, move || {
                let result = run();
                // The receiver lives until this thread is joined.
                let _ = done.send(());
                result
            });
            let worker = match worker {
                Ok(worker) => worker,
                // Without a thread, it runs here and cannot be interrupted.
                Err(_) => return (None, Ok(run())),
            };
            let mut signal = None;
            while wait_done.recv_timeout(SIGNAL_POLL) == Err(RecvTimeoutError::Timeout) {
                if let Err(raised) = Python::attach(|py| py.check_signals()) {
                    signal.get_or_insert(raised);
                    flag.store(true, Ordering::Relaxed);
                }
            }
            (signal, worker.join())
        })
    });
    if let Some(raised) = signal {
        return Err(raised);
    }
    match result {
        Ok(result) => checked(py, result),
        Err(_) => checked(py, Err(Error::Internal("a thread panicked".into()))),
    }
}

thread_local! {
    /// The exception of a signal handler during the current call of this thread.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// Waits for operations without the interpreter lock. A signal whose Python handler raises ends the
/// wait, and its exception is raised here. Returns how the wait ended otherwise.
pub(crate) fn wait_interruptibly(
    py: Python<'_>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<Waited, Error> + Send,
) -> PyResult<Waited> {
    let mut signal = None;
    let waited = py.detach(|| {
        let mut interrupted = || {
            signal = Python::attach(|py| py.check_signals()).err();
            signal.is_some()
        };
        wait(&mut interrupted)
    });
    match signal {
        Some(raised) => Err(raised),
        None => checked(py, waited),
    }
}

/// Runs a call that may wait for other ranks without the interpreter lock. A signal whose Python
/// handler raises ends the wait, and its exception is raised here.
pub(crate) fn call_interruptibly<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, Error> + Send,
) -> PyResult<T> {
    let result = py.detach(|| weft_runtime::interruptible(signalled, call));
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => checked(py, result),
    }
}

fn signalled() -> bool {
    match Python::attach(|py| py.check_signals()) {
        Ok(()) => false,
        Err(raised) => {
            RAISED.set(Some(raised));
            true
        }
    }
}

/// A duration in seconds from Python.
pub(crate) fn duration(py: Python<'_>, seconds: f64) -> PyResult<Duration> {
    if seconds.is_nan() || seconds < 0.0 {
        let text = format!("timeout={seconds} is not allowed: expected seconds of at least 0");
        return Err(argument_error(py, text));
    }
    Ok(Duration::from_secs_f64(seconds.min(SECONDS_MAX)))
}

/// As [`duration`], of an optional time.
pub(crate) fn optional_duration(
    py: Python<'_>,
    seconds: Option<f64>,
) -> PyResult<Option<Duration>> {
    seconds.map(|seconds| duration(py, seconds)).transpose()
}
