//! The class `Work`.

use pyo3::prelude::*;
use weft_runtime::{Error, Fetched, Waited};

use crate::error::checked;
use crate::interrupt::{optional_duration, wait_interruptibly};

/// The handle of an operation.
#[pyclass(name = "Work", frozen, module = "weft._weft")]
pub(crate) struct PyWork {
    inner: weft_runtime::Work,
    /// The owner of the operation's memory.
    hold: Option<Py<PyAny>>,
    /// The result of an atomic operation.
    fetched: Option<Fetched>,
}

impl PyWork {
    pub(crate) fn new(inner: weft_runtime::Work, hold: Option<Py<PyAny>>) -> Self {
        Self {
            inner,
            hold,
            fetched: None,
        }
    }

    /// The handle of an operation that fetches the previous value of a cell.
    pub(crate) fn fetching(fetched: Fetched) -> Self {
        Self {
            inner: fetched.work.clone(),
            hold: None,
            fetched: Some(fetched),
        }
    }
}

#[pymethods]
impl PyWork {
    /// Waits for the operation. Returns False if it has not ended after `timeout` seconds. Raises
    /// the error of an operation that failed.
    #[pyo3(signature = (timeout=None))]
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = optional_duration(py, timeout)?;
        let waited = wait_interruptibly(py, |interrupted| self.inner.wait(timeout, interrupted))?;
        Ok(waited == Waited::Done)
    }

    /// Whether it has ended, successfully or not.
    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    /// The previous value of the cell, for an atomic operation that has ended.
    fn value(&self, py: Python<'_>) -> PyResult<u64> {
        let unknown = || Error::Config("only an atomic operation has a value".into());
        let value = self.fetched.as_ref().map(Fetched::value);
        checked(py, value.ok_or_else(unknown))
    }

    /// The sender, for a receive that has ended.
    pub(crate) fn source(&self, py: Python<'_>) -> PyResult<u32> {
        let unknown = || Error::Config("only a receive that has ended knows its source".into());
        checked(py, self.inner.source().ok_or_else(unknown))
    }
}

impl Drop for PyWork {
    /// Keeps the memory of an unfinished operation until it has ended: dropping its handle, for
    /// example after Ctrl-C, does not stop it.
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take()
            && !self.inner.is_done()
        {
            self.inner.on_done(Box::new(move |_| drop(hold)));
        }
    }
}
