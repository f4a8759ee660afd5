//! The failure of a group: the class `Failure`, and calls back to Python.

use std::sync::{Arc, OnceLock};
use std::thread;

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
    let call = move || {
        // Not while the interpreter ends.
        Python::try_attach(|py| {
            if let Err(raised) = callback.call1(py, (exception(py, &error),)) {
                raised.write_unraisable(py, None);
            }
        });
    };
    // Without a thread, nobody is called.
    let _ = thread::Builder::new()
        .name("weft-failure".into())
        .spawn(call);
}
