//! The failure of a group: the class `Failure`, and calls back to Python.

use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;
use weft_runtime::{Error, Group};

use crate::error::exception;

/// The failure of a group, once it breaks.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Failure(Arc<OnceLock<Error>>);

impl Failure {
    pub(crate) fn of(group: &Group) -> Self {
        let failure = Arc::new(OnceLock::new());
        let kept = failure.clone();
        group.on_end(Box::new(move |end| {
            if let Err(error) = end {
                // The end of a group comes once.
                let _ = kept.set(error);
            }
        }));
        Self(failure)
    }
}

#[pymethods]
impl Failure {
    /// The exception; None while the group works.
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.0.get().map(|error| exception(py, error))
    }
}

/// Calls a function of Python with an exception, on a new thread: this one may be needed by
/// operations that the holder of the interpreter lock waits for.
pub(crate) fn call_back(callback: Py<PyAny>, error: Error) {
    let running = Running::begin();
    let call = move || {
        let _running = running;
        // Not while the interpreter ends.
        Python::try_attach(|py| {
            if let Err(raised) = callback.call1(py, (exception(py, &error),)) {
                raised.write_unraisable(py, None);
            }
        });
    };
    // Without a thread, nobody is called.
    let _ = thread::Builder::new().name(THREAD.into()).spawn(call);
}

/// Waits for the calls that are under way, but at most some seconds: they end with the process.
pub(crate) fn wait_for_calls() {
    if thread::current().name() == Some(THREAD) {
        return;
    }
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    drop(ENDED.wait_timeout_while(running, LONGEST, |running| *running > 0));
}

const THREAD: &str = "weft-failure";
const LONGEST: Duration = Duration::from_secs(5);
static RUNNING: Mutex<usize> = Mutex::new(0);
static ENDED: Condvar = Condvar::new();

/// A call that is under way.
struct Running;

impl Running {
    fn begin() -> Self {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ENDED.notify_all();
    }
}
