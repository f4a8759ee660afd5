//! The class `Registration`, and whether adapters take a device's memory.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use weft_runtime::DmaBuf;

use crate::error::argument_error;

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

/// For each device whose ports can be used, why it does not take memory of another device, which
/// lies at `pointer` and in a file; None: it does.
#[pyfunction]
pub(crate) fn try_device_memory(
    py: Python<'_>,
    pointer: usize,
    nbytes: usize,
    file: RawFd,
    offset: u64,
) -> PyResult<Vec<(String, Option<String>)>> {
    let ports = py.detach(weft_runtime::rdma_ports);
    let ports = ports.map_err(|why| argument_error(py, why))?;
    let mut devices: Vec<String> = Vec::new();
    for port in ports.into_iter().filter(weft_runtime::RdmaPort::is_usable) {
        if devices.last() != Some(&port.device) {
            devices.push(port.device);
        }
    }
    Ok(py.detach(|| {
        let try_one = |name: String| {
            let memory = (pointer as u64, nbytes);
            let tried = weft_runtime::try_device_memory(&name, memory, dma_buf(file, offset));
            (name, tried.err().map(|error| error.to_string()))
        };
        devices.into_iter().map(try_one).collect()
    }))
}

/// The file of a device's memory, which the caller keeps open meanwhile.
pub(crate) fn dma_buf<'a>(file: RawFd, offset: u64) -> DmaBuf<'a> {
    // SAFETY: the caller has it open until the call is over.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    DmaBuf { file, offset }
}
