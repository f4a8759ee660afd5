//! The class `Symmetric`, and the views of its parts.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_runtime::{CellOp, Compare, MappedPart, OneSidedOptions, SignalUpdate};

use crate::call::check_address;
use crate::error::{argument_error, checked};
use crate::interrupt::optional_duration;
use crate::work::PyWork;

/// Memory that the ranks of one host access directly; NumPy reads it as an array of bytes.
#[pyclass(name = "Symmetric", frozen, module = "weft._weft")]
pub(crate) struct PySymmetric {
    inner: weft_runtime::Symmetric,
}

impl PySymmetric {
    pub(crate) fn new(inner: weft_runtime::Symmetric) -> Self {
        Self { inner }
    }
}

/// A change of a signal: its number, `set` or `add`, and a value.
type SignalArgument = (u32, String, u64);

#[pymethods]
impl PySymmetric {
    /// Its length.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.bytes()
    }

    /// The name in error messages.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// The number of signals, and their offset in each part, in bytes.
    #[getter]
    fn signals(&self) -> (u32, u64) {
        self.inner.signals()
    }

    /// NumPy's description of the memory. Arrays keep this object, and so the memory, alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, self.inner.base(), self.inner.bytes())
    }

    /// Starts writing bytes to a rank's part, and then changing a signal there.
    #[pyo3(signature = (peer, offset, pointer, nbytes, hold, signal=None, timeout=None, background=false))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn put(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        pointer: usize,
        nbytes: u64,
        hold: Py<PyAny>,
        signal: Option<SignalArgument>,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<PyWork> {
        check_address(py, pointer, nbytes)?;
        let options = options(py, timeout, background)?;
        let signal = signal.map(|signal| update(py, &signal)).transpose()?;
        let put = py.detach(|| {
            // SAFETY: the caller keeps the memory by `hold` until the operation has ended.
            unsafe { (self.inner).put(peer, offset, pointer as *const u8, nbytes, signal, options) }
        });
        checked(py, put).map(|work| PyWork::new(work, Some(hold)))
    }

    /// As `put`, from registered memory of a device. Returns None, and writes nothing, if the link
    /// cannot read it.
    #[pyo3(signature = (peer, offset, pointer, nbytes, hold, signal=None, timeout=None, background=false))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn put_from_device(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        pointer: usize,
        nbytes: u64,
        hold: Py<PyAny>,
        signal: Option<SignalArgument>,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<Option<PyWork>> {
        check_address(py, pointer, nbytes)?;
        let options = options(py, timeout, background)?;
        let signal = signal.map(|signal| update(py, &signal)).transpose()?;
        let put = py.detach(|| {
            let start = pointer as *const u8;
            // SAFETY: as in `put`.
            unsafe { (self.inner).put_from_device(peer, offset, start, nbytes, signal, options) }
        });
        checked(py, put).map(|work| work.map(|work| PyWork::new(work, Some(hold))))
    }

    /// Starts reading bytes from a rank's part.
    #[pyo3(signature = (peer, offset, pointer, nbytes, hold, timeout=None, background=false))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn get(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        pointer: usize,
        nbytes: u64,
        hold: Py<PyAny>,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<PyWork> {
        check_address(py, pointer, nbytes)?;
        let options = options(py, timeout, background)?;
        let got = py.detach(|| {
            // SAFETY: as in `put`.
            unsafe { (self.inner).get(peer, offset, pointer as *mut u8, nbytes, options) }
        });
        checked(py, got).map(|work| PyWork::new(work, Some(hold)))
    }

    /// Starts adding to a cell of a rank, by its offset in bytes. The handle returns its previous
    /// value.
    #[pyo3(signature = (peer, offset, value, timeout=None, background=false))]
    fn fetch_add(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        value: u64,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<PyWork> {
        self.update_cell(
            py,
            peer,
            offset,
            CellOp::Add(value),
            options(py, timeout, background)?,
        )
    }

    /// As `fetch_add`, but stores `new` if the cell has the expected value.
    #[pyo3(signature = (peer, offset, expected, new, timeout=None, background=false))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn compare_swap(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        expected: u64,
        new: u64,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<PyWork> {
        let op = CellOp::CompareSwap { expected, new };
        self.update_cell(py, peer, offset, op, options(py, timeout, background)?)
    }

    /// Starts changing a signal of a rank.
    #[pyo3(signature = (peer, signal, timeout=None, background=false))]
    fn signal(
        &self,
        py: Python<'_>,
        peer: u32,
        signal: SignalArgument,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<PyWork> {
        let (signal, options) = (update(py, &signal)?, options(py, timeout, background)?);
        let signalled = py.detach(|| self.inner.signal(peer, signal, options));
        checked(py, signalled).map(|work| PyWork::new(work, None))
    }

    /// Starts waiting until a signal of this rank meets a condition.
    #[pyo3(signature = (signal, compare, value, timeout=None, background=false))]
    fn wait_signal(
        &self,
        py: Python<'_>,
        signal: u32,
        compare: &str,
        value: u64,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<PyWork> {
        let options = options(py, timeout, background)?;
        let mut all = Compare::ALL.into_iter();
        let Some(compare) = all.find(|known| known.to_string() == compare) else {
            let all = Compare::ALL.map(|known| known.to_string()).join(", ");
            let text = format!("compare={compare:?} is not allowed: expected one of {all}");
            return Err(argument_error(py, text));
        };
        let waited = py.detach(|| self.inner.wait_signal(signal, compare, value, options));
        checked(py, waited).map(|work| PyWork::new(work, None))
    }

    /// The current value of a signal of this rank.
    fn signal_value(&self, py: Python<'_>, signal: u32) -> PyResult<u64> {
        checked(py, self.inner.signal_value(signal))
    }

    /// Orders this rank's earlier writes to each rank before its later ones.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        checked(py, self.inner.fence())
    }

    /// Starts waiting until all writes of this rank are complete.
    #[pyo3(signature = (timeout=None, background=false))]
    fn quiet(&self, py: Python<'_>, timeout: Option<f64>, background: bool) -> PyResult<PyWork> {
        let options = options(py, timeout, background)?;
        let quiet = py.detach(|| self.inner.quiet(options));
        checked(py, quiet).map(|work| PyWork::new(work, None))
    }

    /// A rank's part if it is mapped here: data and signals.
    fn at(&self, py: Python<'_>, peer: u32) -> PyResult<Option<SymmetricPart>> {
        let part = checked(py, self.inner.at(peer))?;
        Ok(part.map(|inner| SymmetricPart { inner }))
    }

    /// Frees it. Arrays in it stay readable here.
    fn free(&self, py: Python<'_>) {
        py.detach(|| self.inner.free());
    }
}

impl PySymmetric {
    fn update_cell(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        op: CellOp,
        options: OneSidedOptions,
    ) -> PyResult<PyWork> {
        let fetched = py.detach(|| self.inner.update_cell(peer, offset, op, options));
        checked(py, fetched).map(PyWork::fetching)
    }
}

/// A mapped part of a rank's symmetric memory; NumPy reads it as an array of bytes.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct SymmetricPart {
    inner: MappedPart,
}

#[pymethods]
impl SymmetricPart {
    /// NumPy's description of the memory. Arrays keep this object, and so the mapping, alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, self.inner.base(), self.inner.bytes())
    }
}

fn interface(py: Python<'_>, base: *mut u8, bytes: u64) -> PyResult<Bound<'_, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item("version", 3)?;
    interface.set_item("data", (base as usize, false))?;
    interface.set_item("shape", (bytes,))?;
    interface.set_item("typestr", "|u1")?;
    Ok(interface)
}

fn options(py: Python<'_>, timeout: Option<f64>, background: bool) -> PyResult<OneSidedOptions> {
    let timeout = optional_duration(py, timeout)?;
    Ok(OneSidedOptions {
        timeout,
        background,
    })
}

fn update(py: Python<'_>, (signal, op, value): &SignalArgument) -> PyResult<SignalUpdate> {
    let op = match op.as_str() {
        "set" => CellOp::Set(*value),
        "add" => CellOp::Add(*value),
        op => {
            let text = format!("op={op:?} is not allowed: expected \"set\" or \"add\"");
            return Err(argument_error(py, text));
        }
    };
    Ok(SignalUpdate {
        signal: *signal,
        op,
    })
}
