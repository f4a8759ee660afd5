//! The class `Registration`, and the check whether adapters accept a device's memory.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weft_runtime::DmaBuf;

/// Memory that links read in place.
#[pyclass(name = "Registration", frozen, module = "weft._weft")]
pub(crate) struct PyRegistration {
    /// Before `hold`, so that it is dropped first.
    inner: weft_runtime::Registration,
    hold: Mutex<Option<Py<PyAny>>>,
}

impl PyRegistration {
    pub(crate) fn new(inner: weft_runtime::Registration, hold: Py<PyAny>) -> Self {
        Self {
            inner,
            hold: Mutex::new(Some(hold)),
        }
    }
}

#[pymethods]
impl PyRegistration {
    /// Ends the registration. Idempotent.
    fn deregister(&self, py: Python<'_>) {
        py.detach(|| self.inner.deregister());
        let held = self
            .hold
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(held);
    }

    /// The transports whose links read the memory in place only because it is registered.
    fn transports(&self) -> Vec<String> {
        let kinds = self.inner.kinds().into_iter();
        kinds.map(|kind| kind.to_string()).collect()
    }
}

/// Returns why an RDMA device refuses memory of another device at `pointer` and in a file; None if
/// it accepts it.
#[pyfunction]
pub(crate) fn try_device_memory(
    py: Python<'_>,
    name: &str,
    pointer: usize,
    nbytes: usize,
    file: RawFd,
    offset: u64,
) -> Option<String> {
    let memory = (pointer as u64, nbytes);
    let tried = py.detach(|| weft_runtime::try_device_memory(name, memory, dma_buf(file, offset)));
    tried.err().map(|error| error.to_string())
}

/// The file of a device's memory, which the caller keeps open meanwhile.
pub(crate) fn dma_buf<'a>(file: RawFd, offset: u64) -> DmaBuf<'a> {
    // SAFETY: the caller keeps it open until the call returns.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    DmaBuf { file, offset }
}
