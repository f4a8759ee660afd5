//! The classes `Steps` and `HostPart`: a group's steps on memory of devices.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_runtime::{DeviceCollective, DeviceReport, DeviceSteps, HostPart, Waited};

use crate::error::exception;
use crate::group::PyGroup;
use crate::interrupt::{optional_duration, wait_interruptibly};
use crate::request::{CallKeywords, Request};
use crate::word::word;

/// The collectives of an operation, and whether they have ended.
#[pyclass(name = "HostPart", frozen, module = "weft._weft")]
pub(crate) struct PyHostPart(Arc<HostPart>);

#[pymethods]
impl PyHostPart {
    #[new]
    fn new(collectives: usize) -> Self {
        Self(HostPart::new(collectives))
    }

    /// Waits until all have ended. Returns False if they have not after `timeout` seconds.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<bool> {
        let timeout = optional_duration(py, timeout)?;
        let waited = wait_interruptibly(py, |interrupted| Ok(self.0.wait(timeout, interrupted)))?;
        Ok(waited == Waited::Done)
    }

    /// Whether all have ended.
    fn is_set(&self) -> bool {
        self.0.is_over()
    }

    /// The first error of a collective.
    fn error(&self, py: Python<'_>) -> Option<PyErr> {
        self.0.error().map(|error| exception(py, &error))
    }

    /// Whether one was not begun, because the steps were stopped before.
    #[getter]
    fn skipped(&self) -> bool {
        self.0.is_skipped()
    }
}

/// The steps of a group in one order: collectives, and steps of Python.
#[pyclass(name = "Steps", frozen, module = "weft._weft")]
pub(crate) struct PySteps(DeviceSteps<Py<PyAny>>);

/// A result of `Steps.report`.
#[derive(IntoPyObject)]
enum Reported {
    Look(u32),
    Failed(PyErr),
}

#[pymethods]
impl PySteps {
    #[new]
    fn new(most: usize) -> Self {
        Self(DeviceSteps::new(most))
    }

    /// Waits until one more step may be under way.
    fn take_room(&self, py: Python<'_>) -> PyResult<()> {
        wait_interruptibly(py, |interrupted| Ok(self.0.take_room(interrupted))).map(drop)
    }

    /// Gives back the room of a step of Python, or of one that is not added.
    fn give_room(&self) {
        self.0.give_room();
    }

    /// Adds a collective, for which there is room, and which gives that back.
    ///
    /// It begins when the word `arrival`, an address and a value, has reached that; at its end the
    /// word `release` is set. The caller keeps all memory until then.
    #[pyo3(signature = (group, request, device, arrival, release, part, timeout=None, **keywords))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn put_collective(
        &self,
        py: Python<'_>,
        group: &PyGroup,
        request: &Request,
        device: u32,
        arrival: (usize, u32),
        release: (usize, u32),
        part: &PyHostPart,
        timeout: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let call = request.call(CallKeywords::of(py, request.collective, timeout, keywords)?);
        let group = group.inner.clone();
        self.0.add_collective(DeviceCollective {
            device,
            arrival: word(py, arrival.0, arrival.1)?,
            begin: Box::new(move || {
                // SAFETY: the caller keeps the memory until the operation has ended.
                unsafe { group.issue(call, true) }
            }),
            release: word(py, release.0, release.1)?,
            part: part.0.clone(),
        });
        Ok(())
    }

    /// Adds a step of Python.
    fn put(&self, step: Py<PyAny>) {
        self.0.add_other(step);
    }

    /// Begins collectives in their order, without the interpreter lock, until the next step is one
    /// of Python, and returns that. Returns None at the end of the steps, once they are closed.
    fn next(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        py.detach(|| self.0.next())
    }

    /// Lets `next` return None after the steps that have been added.
    fn close(&self) {
        self.0.close();
    }

    /// Begins no further collective.
    fn stop(&self) {
        self.0.stop();
    }

    /// The first failure of a collective.
    fn failure(&self, py: Python<'_>) -> Option<PyErr> {
        self.0.failure().map(|error| exception(py, &error))
    }

    /// Waits for something to do: the number of a device that makes the host wait, at which
    /// somebody should look, or the first failure. Returns None after `close_reports`.
    fn report(&self, py: Python<'_>) -> Option<Reported> {
        let report = py.detach(|| self.0.report())?;
        Some(match report {
            DeviceReport::Look(device) => Reported::Look(device),
            DeviceReport::Failed(error) => Reported::Failed(exception(py, &error)),
        })
    }

    /// Lets `report` return None after the last report.
    fn close_reports(&self) {
        self.0.close_reports();
    }
}
