//! The class `Symmetric`, and the views of its parts.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_runtime::{CellOp, Compare, HowLong, MappedPart, SignalUpdate};

use crate::call::check_address;
use crate::error::{argument_error, checked};
use crate::interrupt::optional_duration;
use crate::work::Work;

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

/// A change of a signal: its number, `set` or `add`, and a value.
type SignalArgument = (u32, String, u64);

#[pymethods]
impl Symmetric {
    /// Its length.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.bytes()
    }

    /// What errors call it.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// How many signals it has, and where they begin in each part, in bytes.
    #[getter]
    fn signals(&self) -> (u32, u64) {
        self.inner.signals()
    }

    /// How NumPy finds it. Arrays keep this object, and so the memory, alive.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        interface(py, self.inner.base(), self.inner.bytes())
    }

    /// Starts writing bytes to a place in a rank's part, and then changing a signal there.
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
    ) -> PyResult<Work> {
        check_address(py, pointer, nbytes)?;
        let how = how(py, timeout, background)?;
        let signal = signal.map(|signal| update(py, &signal)).transpose()?;
        let put = py.detach(|| {
            // SAFETY: the caller keeps the memory by `hold` until the operation is over.
            unsafe { (self.inner).put(peer, offset, pointer as *const u8, nbytes, signal, how) }
        });
        checked(py, put).map(|work| Work::new(work, Some(hold)))
    }

    /// As `put`, from registered memory of a device, where the link reads it; otherwise None, and
    /// nothing is written.
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
    ) -> PyResult<Option<Work>> {
        check_address(py, pointer, nbytes)?;
        let how = how(py, timeout, background)?;
        let signal = signal.map(|signal| update(py, &signal)).transpose()?;
        let put = py.detach(|| {
            let start = pointer as *const u8;
            // SAFETY: as in `put`.
            unsafe { (self.inner).put_from_device(peer, offset, start, nbytes, signal, how) }
        });
        checked(py, put).map(|work| work.map(|work| Work::new(work, Some(hold))))
    }

    /// Starts reading bytes from a place in a rank's part.
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
    ) -> PyResult<Work> {
        check_address(py, pointer, nbytes)?;
        let how = how(py, timeout, background)?;
        let got = py.detach(|| {
            // SAFETY: as in `put`.
            unsafe { (self.inner).get(peer, offset, pointer as *mut u8, nbytes, how) }
        });
        checked(py, got).map(|work| Work::new(work, Some(hold)))
    }

    /// Starts adding to a cell of a rank's, by its offset in bytes; the handle has its value
    /// before.
    #[pyo3(signature = (peer, offset, value, timeout=None, background=false))]
    fn fetch_add(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        value: u64,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<Work> {
        self.update_cell(
            py,
            peer,
            offset,
            CellOp::Add(value),
            how(py, timeout, background)?,
        )
    }

    /// As `fetch_add`, but stores `new` if the cell holds what is expected.
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
    ) -> PyResult<Work> {
        let op = CellOp::CompareSwap { expected, new };
        self.update_cell(py, peer, offset, op, how(py, timeout, background)?)
    }

    /// Starts changing a signal of a rank's.
    #[pyo3(signature = (peer, signal, timeout=None, background=false))]
    fn signal(
        &self,
        py: Python<'_>,
        peer: u32,
        signal: SignalArgument,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<Work> {
        let (signal, how) = (update(py, &signal)?, how(py, timeout, background)?);
        let signalled = py.detach(|| self.inner.signal(peer, signal, how));
        checked(py, signalled).map(|work| Work::new(work, None))
    }

    /// Starts waiting until a signal of this rank's compares with a value as it shall.
    #[pyo3(signature = (signal, compare, value, timeout=None, background=false))]
    fn wait_signal(
        &self,
        py: Python<'_>,
        signal: u32,
        compare: &str,
        value: u64,
        timeout: Option<f64>,
        background: bool,
    ) -> PyResult<Work> {
        let how = how(py, timeout, background)?;
        let mut all = Compare::ALL.into_iter();
        let Some(compare) = all.find(|known| known.to_string() == compare) else {
            let all = Compare::ALL.map(|known| known.to_string()).join(", ");
            let text = format!("compare={compare:?} is not allowed: expected one of {all}");
            return Err(argument_error(py, text));
        };
        let waited = py.detach(|| self.inner.wait_signal(signal, compare, value, how));
        checked(py, waited).map(|work| Work::new(work, None))
    }

    /// What a signal of this rank's is now.
    fn signal_value(&self, py: Python<'_>, signal: u32) -> PyResult<u64> {
        checked(py, self.inner.signal_value(signal))
    }

    /// Orders what this rank has written to each rank before what it writes there afterwards.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        checked(py, self.inner.fence())
    }

    /// Starts waiting until everything that this rank has written is there.
    #[pyo3(signature = (timeout=None, background=false))]
    fn quiet(&self, py: Python<'_>, timeout: Option<f64>, background: bool) -> PyResult<Work> {
        let how = how(py, timeout, background)?;
        let quiet = py.detach(|| self.inner.quiet(how));
        checked(py, quiet).map(|work| Work::new(work, None))
    }

    /// A rank's part, where it is mapped here: data and signals.
    fn at(&self, py: Python<'_>, peer: u32) -> PyResult<Option<SymmetricPart>> {
        let part = checked(py, self.inner.at(peer))?;
        Ok(part.map(|inner| SymmetricPart { inner }))
    }

    /// Lets go of it, while arrays in it stay readable here.
    fn free(&self, py: Python<'_>) {
        py.detach(|| self.inner.free());
    }
}

impl Symmetric {
    fn update_cell(
        &self,
        py: Python<'_>,
        peer: u32,
        offset: u64,
        op: CellOp,
        how: HowLong,
    ) -> PyResult<Work> {
        let fetched = py.detach(|| self.inner.update_cell(peer, offset, op, how));
        checked(py, fetched).map(Work::fetching)
    }
}

/// A rank's part of symmetric memory, as mapped here; NumPy takes it as an array of bytes.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct SymmetricPart {
    inner: MappedPart,
}

#[pymethods]
impl SymmetricPart {
    /// How NumPy finds it. Arrays keep this object, and so the mapping, alive.
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

fn how(py: Python<'_>, timeout: Option<f64>, background: bool) -> PyResult<HowLong> {
    let timeout = optional_duration(py, timeout)?;
    Ok(HowLong {
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
