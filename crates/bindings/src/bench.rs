//! Python classes for `weft bench`: the control block and timed operations.

use std::net::TcpStream;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_bench::{
    Add, Copy, Function, GroupCall, LibraryCall, OneStream, PingPong, Prototype, Rewrite, Streams,
    TcpRoundTrip, TimedOperation,
};

use crate::call::dtype;
use crate::error::argument_error;
use crate::group::PyGroup;
use crate::request::{CallKeywords, Request};

/// The page that measuring processes share.
#[pyclass(name = "ControlBlock", frozen, module = "weft._weft")]
pub(crate) struct PyControlBlock {
    inner: weft_bench::ControlBlock,
}

#[pymethods]
impl PyControlBlock {
    #[new]
    fn new(path: PathBuf, rank: usize, ranks: usize, spin: bool) -> PyResult<Self> {
        let inner = weft_bench::ControlBlock::open(&path, rank, ranks, spin)?;
        Ok(Self { inner })
    }

    /// The most calls that can be timed in one turn.
    #[classattr]
    const SAMPLES_MAX: usize = weft_bench::SAMPLES_MAX;

    /// The slowest rank's seconds of each call. Before each call, the memory is filled with
    /// `pattern`.
    fn time(
        &self,
        py: Python<'_>,
        timed: &Timed,
        pointer: usize,
        nbytes: usize,
        pattern: Vec<u8>,
        calls: usize,
    ) -> PyResult<Vec<f64>> {
        if calls > weft_bench::SAMPLES_MAX || pattern.is_empty() {
            let text = format!(
                "calls={calls} with a pattern of {} bytes is not allowed: expected at most {} calls \
                 and a pattern of at least 1 byte",
                pattern.len(),
                weft_bench::SAMPLES_MAX
            );
            return Err(argument_error(py, text));
        }
        let rewrite = SendRewrite(Rewrite {
            start: pointer as *mut u8,
            bytes: nbytes,
            pattern,
        });
        let times = py.detach(|| {
            let rewrite = rewrite;
            let mut operation = timed.inner.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the Python caller passes memory that `timed` holds.
            unsafe { self.inner.time(&mut **operation, &rewrite.0, calls) }
        });
        times.map_err(PyRuntimeError::new_err)
    }

    /// The cost of consecutive calls: elapsed seconds, seconds of this process's threads, and
    /// seconds of the machine's cores.
    fn cost(&self, py: Python<'_>, timed: &Timed, calls: u64) -> PyResult<(f64, f64, f64)> {
        let cost = py.detach(|| {
            let mut operation = timed.inner.lock().unwrap_or_else(PoisonError::into_inner);
            self.inner.cost(&mut **operation, calls)
        });
        let cost = cost.map_err(PyRuntimeError::new_err)?;
        let seconds = [cost.wall, cost.process, cost.busy].map(|time| time.as_secs_f64());
        Ok(seconds.into())
    }

    /// Seconds of a round trip between ranks 0 and 1 over bare flags.
    fn round_trip(&self, py: Python<'_>, count: u64) -> f64 {
        py.detach(|| self.inner.round_trip(count))
    }
}

/// A rewrite that is passed to code without the interpreter lock.
struct SendRewrite(Rewrite);

// SAFETY: a plain address, used by the same thread.
unsafe impl Send for SendRewrite {}

/// An operation that can be timed.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Timed {
    inner: Mutex<Box<dyn TimedOperation>>,
    /// The address of the operation's own memory, if it has any.
    pointer: usize,
    /// The owner of the memory that the operation does not own.
    _hold: Py<PyAny>,
}

impl Timed {
    fn new(operation: impl TimedOperation + 'static, hold: Py<PyAny>) -> Self {
        Self {
            inner: Mutex::new(Box::new(operation)),
            pointer: 0,
            _hold: hold,
        }
    }
}

#[pymethods]
impl Timed {
    /// A blocking collective of a group. Memory at these addresses, with these lengths, is
    /// registered for each call.
    #[staticmethod]
    #[pyo3(signature = (group, request, hold, registered=Vec::new(), **keywords))]
    fn group(
        py: Python<'_>,
        group: &PyGroup,
        request: &Request,
        hold: Py<PyAny>,
        registered: Vec<(usize, u64)>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let call = request.call(CallKeywords::of(py, request.collective, None, keywords)?);
        // SAFETY: the Python caller passes addresses of memory that `hold` owns and that has the
        // sizes of the call.
        let operation = unsafe { GroupCall::new(Arc::clone(&group.inner), call, registered) };
        Ok(Self::new(operation, hold))
    }

    /// A message to another rank of a group and one back; nothing without a partner.
    #[staticmethod]
    fn ping_pong(
        group: &PyGroup,
        partner: Option<u32>,
        source: usize,
        target: usize,
        nbytes: u64,
        hold: Py<PyAny>,
    ) -> Self {
        let (source, target) = (source as *const u8, target as *mut u8);
        // SAFETY: as for `group`.
        let operation =
            unsafe { PingPong::new(Arc::clone(&group.inner), partner, source, target, nbytes) };
        Self::new(operation, hold)
    }

    /// A C function `int (*)(const void *from, void *to, size_t elements)`.
    #[staticmethod]
    fn library(
        py: Python<'_>,
        function: usize,
        source: usize,
        target: usize,
        count: usize,
        hold: Py<PyAny>,
    ) -> PyResult<Self> {
        if function == 0 {
            return Err(argument_error(py, "the function is at address 0".into()));
        }
        // SAFETY: the Python caller passes the address of such a function.
        let function = unsafe { std::mem::transmute::<usize, Function>(function) };
        // SAFETY: as for `group`.
        let operation =
            unsafe { LibraryCall::new(function, source as *const u8, target as *mut u8, count) };
        Ok(Self::new(operation, hold))
    }

    /// A Python function without arguments.
    #[staticmethod]
    fn callable(py: Python<'_>, function: Py<PyAny>) -> Self {
        let hold = py.None();
        Self::new(Callable(function), hold)
    }

    /// Copying within this process.
    #[staticmethod]
    fn copy(source: usize, target: usize, nbytes: usize, hold: Py<PyAny>) -> Self {
        // SAFETY: as for `group`.
        let operation = unsafe { Copy::new(target as *mut u8, source as *const u8, nbytes) };
        Self::new(operation, hold)
    }

    /// Adding vectors of this process, the sum into each.
    #[staticmethod]
    fn add(
        py: Python<'_>,
        vectors: Vec<usize>,
        dtype: &str,
        elements: usize,
        hold: Py<PyAny>,
    ) -> PyResult<Self> {
        let dtype = self::dtype(py, dtype)?;
        let vectors = vectors.into_iter().map(|start| start as *mut u8).collect();
        // SAFETY: as for `group`.
        let operation = unsafe { Add::new(vectors, dtype, elements) };
        Ok(Self::new(operation, hold))
    }

    /// The bare all-reduce of two ranks over memory in a file.
    #[staticmethod]
    fn prototype(
        py: Python<'_>,
        path: PathBuf,
        rank: usize,
        dtype: &str,
        elements: usize,
    ) -> PyResult<Self> {
        let prototype = Prototype::open(&path, rank, self::dtype(py, dtype)?, elements)?;
        let pointer = prototype.buffer() as usize;
        let timed = Self::new(prototype, py.None());
        Ok(Self { pointer, ..timed })
    }

    /// The bare all-reduce over TCP: a connected socket to every other rank, in their order.
    #[staticmethod]
    fn streams(
        py: Python<'_>,
        sockets: Vec<RawFd>,
        rank: usize,
        pointer: usize,
        dtype: &str,
        elements: usize,
        hold: Py<PyAny>,
    ) -> PyResult<Self> {
        let streams = sockets
            .into_iter()
            .map(duplicate)
            .collect::<PyResult<_>>()?;
        let (buffer, dtype) = (pointer as *mut u8, self::dtype(py, dtype)?);
        // SAFETY: as for `group`.
        let operation = unsafe { Streams::new(streams, rank, buffer, dtype, elements) }?;
        Ok(Self::new(operation, hold))
    }

    /// A byte over a connected socket and one back; nothing without a socket.
    #[staticmethod]
    fn round_trip(
        py: Python<'_>,
        socket: Option<RawFd>,
        first: bool,
        polling: bool,
    ) -> PyResult<Self> {
        let stream = socket.map(duplicate).transpose()?;
        Ok(Self::new(
            TcpRoundTrip::new(stream, first, polling)?,
            py.None(),
        ))
    }

    /// Bytes over a connected socket in one direction; nothing without a socket.
    #[staticmethod]
    fn one_stream(
        py: Python<'_>,
        socket: Option<RawFd>,
        sends: bool,
        uncounted: usize,
        counted: usize,
    ) -> PyResult<Self> {
        let stream = socket.map(duplicate).transpose()?;
        let operation = OneStream::new(stream, sends, uncounted, counted)?;
        Ok(Self::new(operation, py.None()))
    }

    /// The address of the prototype's buffer; 0 for all other operations.
    #[getter]
    fn pointer(&self) -> usize {
        self.pointer
    }
}

/// A duplicate of a Python socket, which keeps its own descriptor.
fn duplicate(socket: RawFd) -> PyResult<TcpStream> {
    // SAFETY: the Python caller passes the descriptor of a socket that is open during this call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(socket) };
    Ok(borrowed.try_clone_to_owned()?.into())
}

/// A Python function, timed with the cost of calling it.
struct Callable(Py<PyAny>);

impl TimedOperation for Callable {
    fn call(&mut self) -> Result<(), String> {
        Python::attach(|py| self.0.call0(py).map(drop)).map_err(|error| error.to_string())
    }
}
