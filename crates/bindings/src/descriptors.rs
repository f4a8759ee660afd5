//! Descriptors that weft's Python code opens.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use weft_runtime as runtime;

/// A `with` block in which opened files get no descriptor from 0 to 2.
#[pyclass(name = "AboveStandardStreams", frozen, module = "weft._weft")]
pub(crate) struct PyAboveStandardStreams(Mutex<Option<runtime::AboveStandardStreams>>);

#[pymethods]
impl PyAboveStandardStreams {
    #[new]
    fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn __enter__(&self) -> PyResult<()> {
        self.set(Some(runtime::AboveStandardStreams::new()?));
        Ok(())
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, _raised: &Bound<'_, PyTuple>) {
        self.set(None);
    }
}

impl PyAboveStandardStreams {
    fn set(&self, kept: Option<runtime::AboveStandardStreams>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }
}
