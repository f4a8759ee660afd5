//! The class `Registration`, and whether adapters take a device's memory.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weft_runtime::DmaBuf;

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

/// Why an RDMA device does not take memory of another device, which lies at `pointer` and in a
/// file; None: it does.
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
    // SAFETY: the caller has it open until the call is over.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    DmaBuf { file, offset }
}
