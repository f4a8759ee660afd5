//! The class `Symmetric`.

use std::os::fd::{BorrowedFd, RawFd};

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Memory that the ranks of one host reach directly; NumPy takes it as an array of bytes.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Symmetric {
    inner: weft_runtime::Symmetric,
}

impl Symmetric {
    pub(crate) fn new(inner: weft_runtime::Symmetric) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl Symmetric {
    /// Its length.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.bytes()
    }

    /// Puts this memory in the place of a file that is mapped at an address: `OSError` unless it is
    /// a mapping of the whole file, as long as this memory.
    ///
    /// The caller owns the mapping and the descriptor; nobody else has them, or writes there now.
    fn replace(&self, py: Python<'_>, address: usize, descriptor: RawFd) -> PyResult<()> {
        // SAFETY: the caller owns it.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let replaced = py.detach(|| {
            let address = std::ptr::without_provenance_mut(address);
            // SAFETY: the caller has promised what is asked for.
            unsafe { self.inner.segment().replace(address, file) }
        });
        Ok(replaced?)
    }

    /// How NumPy finds it. Arrays keep this object, and so the memory, alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("data", (self.inner.base() as usize, false))?;
        interface.set_item("shape", (self.inner.bytes(),))?;
        interface.set_item("typestr", "|u1")?;
        Ok(interface)
    }
}
