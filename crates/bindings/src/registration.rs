//! The class `Registration`.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;

/// Memory that links read where it lies.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Registration {
    /// Before what keeps its memory alive.
    inner: weft_runtime::Registration,
    hold: Mutex<Option<Py<PyAny>>>,
}

impl Registration {
    pub(crate) fn new(inner: weft_runtime::Registration, hold: Py<PyAny>) -> Self {
        Self {
            inner,
            hold: Mutex::new(Some(hold)),
        }
    }
}

#[pymethods]
impl Registration {
    /// Ends it, if it has not ended yet.
    fn deregister(&self, py: Python<'_>) {
        py.detach(|| self.inner.deregister());
        let held = self
            .hold
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(held);
    }

    /// The transports whose links read the memory where it lies, and would not without.
    fn transports(&self) -> Vec<String> {
        let kinds = self.inner.kinds().into_iter();
        kinds.map(|kind| kind.to_string()).collect()
    }
}
