//! The class `Work`.

use pyo3::prelude::*;
use weft_runtime::{Error, Fetched, Waited};

use crate::error::checked;
use crate::interrupt::{ending, optional_duration};

/// An operation under way.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Work {
    inner: weft_runtime::Work,
    /// What keeps the operation's memory alive.
    hold: Option<Py<PyAny>>,
    /// Of an atomic operation.
    fetched: Option<Fetched>,
}

impl Work {
    pub(crate) fn new(inner: weft_runtime::Work, hold: Option<Py<PyAny>>) -> Self {
        Self {
            inner,
            hold,
            fetched: None,
        }
    }

    /// An operation that brings what a cell held.
    pub(crate) fn fetching(fetched: Fetched) -> Self {
        Self {
            inner: fetched.work.clone(),
            hold: None,
            fetched: Some(fetched),
        }
    }
}

#[pymethods]
impl Work {
    /// Waits; False if the operation is still under way after `timeout` seconds. Raises if it
    /// failed.
    #[pyo3(signature = (timeout=None))]
    pub(crate) fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = optional_duration(py, timeout)?;
        let waited = ending(py, |interrupted| self.inner.wait(timeout, interrupted))?;
        Ok(waited == Waited::Done)
    }

    /// Whether it has ended, well or badly.
    fn is_done(&self) -> bool {
        self.inner.is_done()
    }

    /// What the cell of an atomic operation that has ended held before.
    fn value(&self, py: Python<'_>) -> PyResult<u64> {
        let unknown = || Error::Config("only an atomic operation brings a value".into());
        let value = self.fetched.as_ref().map(Fetched::value);
        checked(py, value.ok_or_else(unknown))
    }

    /// Whom a receive has received from.
    pub(crate) fn source(&self, py: Python<'_>) -> PyResult<u32> {
        let unknown = || Error::Config("only a receive that has ended knows its source".into());
        checked(py, self.inner.source().ok_or_else(unknown))
    }
}

impl Drop for Work {
    /// Whoever drops the handle of an operation that is under way, after Ctrl-C for example, does
    /// not stop it: its memory stays until it has ended.
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take()
            && !self.inner.is_done()
        {
            self.inner.on_done(Box::new(move |_| drop(hold)));
        }
    }
}
