//! The class `Group`.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_runtime::{
    Choice, Error, MemoryClass, PrefixStore, SplitOptions, StageOf, StageSpan, Unshared,
};

use crate::call::CountsArgument;
use crate::call::{self, check_address, collective, dtype};
use crate::counters::{self, PyCounters, TrafficRow};
use crate::endpoint::PyEndpoint;
use crate::error::{checked, exception};
use crate::failure::{self, Failure};
use crate::interrupt::{
    Cancellation, call_interruptibly, interruptible, optional_duration, wait_interruptibly,
};
use crate::options::Options;
use crate::plain::{PlainCall, PlainMessage};
use crate::registration::{PyRegistration, dma_buf};
use crate::request::{CallKeywords, PyOperation, Request};
use crate::selection::{PyExplanation, PyUserSchedule};
use crate::store;
use crate::symmetric::PySymmetric;
use crate::work::PyWork;

/// Ranks that communicate with each other.
#[pyclass(name = "Group", frozen, weakref, module = "weft._weft")]
pub(crate) struct PyGroup {
    pub(crate) inner: Arc<weft_runtime::Group>,
}

impl PyGroup {
    /// A rank, if the group has it.
    fn rank_in(&self, rank: &Bound<'_, PyAny>) -> Option<u32> {
        let rank = rank.extract().ok();
        rank.filter(|rank| *rank < self.inner.size())
    }

    /// Starts a call. The waiting caller keeps its memory until the operation has ended.
    fn start(
        &self,
        py: Python<'_>,
        request: &Request,
        keywords: CallKeywords,
        background: bool,
    ) -> PyResult<weft_runtime::Work> {
        let call = request.call(keywords);
        call_interruptibly(py, || {
            // SAFETY: the Python caller passes addresses of memory with the sizes of the request,
            // and keeps it until the operation has ended.
            unsafe { self.inner.issue(call, background) }
        })
    }
}

#[pymethods]
impl PyGroup {
    /// Meets the other ranks through the store.
    #[staticmethod]
    #[pyo3(signature = (*, endpoint, store, rank, size, name, prefix, cancel, global_ranks = None, **options))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python call")]
    fn create(
        py: Python<'_>,
        endpoint: &PyEndpoint,
        store: &Bound<'_, PyAny>,
        rank: u32,
        size: u32,
        name: String,
        prefix: &str,
        cancel: &Cancellation,
        global_ranks: Option<Vec<u32>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let endpoint = endpoint.inner.clone();
        let store = store::of_python(store);
        let options = Options::of(options)?.of_group(py, name, global_ranks)?;
        let inner = interruptible(py, cancel, |flag| {
            let store = PrefixStore::new(prefix, &*store);
            weft_runtime::Group::create(endpoint, &store, rank, size, options, flag)
        })?;
        Ok(Self { inner })
    }

    /// This process's number in the group.
    #[getter]
    fn rank(&self) -> u32 {
        self.inner.rank()
    }

    /// The number of ranks.
    #[getter]
    fn size(&self) -> u32 {
        self.inner.size()
    }

    /// A number that identifies the group, the same on all ranks.
    #[getter]
    fn identity(&self) -> u64 {
        self.inner.identity()
    }

    /// The group's name in error messages.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// For every rank, the lowest rank that shares memory with it.
    fn hosts(&self) -> Vec<u32> {
        self.inner.hosts()
    }

    /// Levels of domains inside hosts, innermost first: for every rank, the lowest rank of its
    /// domain.
    fn domains(&self, py: Python<'_>) -> PyResult<Vec<Vec<u32>>> {
        checked(py, py.detach(|| self.inner.domains()))
    }

    /// For every rank, the name of its host.
    fn host_names(&self) -> Vec<String> {
        self.inner.host_names()
    }

    /// The transport to another rank: `shm`, `rdma`, `tcp` or `loopback`; None for this rank.
    fn transport(&self, rank: u32) -> Option<String> {
        self.inner.transport(rank).map(|kind| kind.to_string())
    }

    /// Pairs of ranks on one machine that share no memory: the rank that tried, the other rank, why
    /// it failed, and whether they are separated intentionally, such as in containers.
    fn unshared(&self) -> Vec<(u32, u32, String, bool)> {
        let row = |one: &Unshared| (one.rank, one.other, one.why.clone(), one.apart);
        self.inner.unshared().iter().map(row).collect()
    }

    /// The cipher between this rank and another: `aes-gcm` or `chacha20-poly1305`; None if they
    /// share memory, or links are not encrypted.
    fn cipher(&self, rank: u32) -> Option<&'static str> {
        self.inner.cipher(rank)
    }

    /// Starts a collective. `hold`, which owns the memory, is kept until it has ended. Without
    /// `background`, the caller must wait for it.
    #[pyo3(signature = (request, hold, background, timeout=None, **keywords))]
    fn issue(
        &self,
        py: Python<'_>,
        request: &Request,
        hold: Py<PyAny>,
        background: bool,
        timeout: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyWork> {
        let keywords = CallKeywords::of(py, request.collective, timeout, keywords)?;
        let started = self.start(py, request, keywords, background);
        started.map(|work| PyWork::new(work, Some(hold)))
    }

    /// Executes a collective; the arguments are those of `issue`.
    #[pyo3(signature = (request, hold, timeout=None, **keywords))]
    fn run(
        &self,
        py: Python<'_>,
        request: &Request,
        hold: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let keywords = CallKeywords::of(py, request.collective, timeout, keywords)?;
        let work = self.start(py, request, keywords, false)?;
        ended(py, work, || Ok(hold.clone().unbind()))
    }

    /// `issue`, in the background, of an operation in place on elements at an address.
    #[pyo3(signature = (operation, count, address, hold, timeout=None, **keywords))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn issue_in_place(
        &self,
        py: Python<'_>,
        operation: &PyOperation,
        count: u64,
        address: usize,
        hold: Py<PyAny>,
        timeout: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyWork> {
        let request = operation.on(CountsArgument::Equal(count), None, Some(address));
        self.issue(py, &request, hold, true, timeout, keywords)
    }

    /// `run` of an operation in place on elements at an address.
    #[pyo3(signature = (operation, count, address, hold, timeout=None, **keywords))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn run_in_place(
        &self,
        py: Python<'_>,
        operation: &PyOperation,
        count: u64,
        address: usize,
        hold: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let request = operation.on(CountsArgument::Equal(count), None, Some(address));
        self.run(py, &request, hold, timeout, keywords)
    }

    /// Executes a collective on plain arrays, if that is possible, and returns whether it did: see
    /// [Note: Fast path]. Without `source` it works in place, and without `target` too it has no
    /// data.
    fn run_plain(
        &self,
        py: Python<'_>,
        collective: &str,
        root: i64,
        op: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        target: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        let size = self.inner.size();
        let root = u32::try_from(root).ok().filter(|root| *root < size);
        let op = op.extract::<&str>().ok().and_then(call::op);
        let (Some(root), Some(op)) = (root, op) else {
            return Ok(false);
        };
        let collective = self::collective(py, collective, root)?;
        let Some(plain) = PlainCall::new(collective, op, source, target, size) else {
            return Ok(false);
        };
        let work = self.start(py, &plain.request, CallKeywords::default(), false)?;
        ended(py, work, || {
            let arrays = (source.cloned(), target.cloned());
            Ok(arrays.into_pyobject(py)?.into_any().unbind())
        })?;
        Ok(true)
    }

    /// Sends a plain array to a rank, if that is possible, and returns whether it did: see
    /// [Note: Fast path].
    fn send_plain(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        to: &Bound<'_, PyAny>,
        tag: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let (Some(message), Some(to), Ok(tag)) =
            (PlainMessage::source(x), self.rank_in(to), tag.extract())
        else {
            return Ok(false);
        };
        let (address, bytes) = (message.address(), message.bytes());
        let sent = call_interruptibly(py, || {
            // SAFETY: the array has this many bytes; `Work` keeps it until the operation has ended.
            unsafe {
                self.inner
                    .send(to, tag, address as *const u8, bytes, None, false)
            }
        });
        ended(py, sent?, || Ok(x.clone().unbind()))?;
        Ok(true)
    }

    /// Receives into a plain array from a rank, or from any rank, if that is possible. Returns the
    /// sender if it did.
    fn receive_plain(
        &self,
        py: Python<'_>,
        x: &Bound<'_, PyAny>,
        source: Option<&Bound<'_, PyAny>>,
        tag: &Bound<'_, PyAny>,
    ) -> PyResult<Option<u32>> {
        let from = source.map(|source| self.rank_in(source));
        let (Some(message), Ok(tag), false) =
            (PlainMessage::target(x), tag.extract(), from == Some(None))
        else {
            return Ok(None);
        };
        let (address, bytes) = (message.address(), message.bytes());
        let received = py.detach(|| {
            // SAFETY: as in `send_plain`.
            unsafe {
                self.inner
                    .receive(from.flatten(), tag, address as *mut u8, bytes, None, false)
            }
        });
        let work = PyWork::new(checked(py, received)?, Some(x.clone().unbind()));
        work.wait(py, None)?;
        work.source(py).map(Some)
    }

    /// Starts sending bytes to a rank.
    #[pyo3(signature = (to, tag, pointer, nbytes, timeout=None, hold=None, background=true))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn send(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u64,
        pointer: usize,
        nbytes: u64,
        timeout: Option<f64>,
        hold: Option<Py<PyAny>>,
        background: bool,
    ) -> PyResult<PyWork> {
        check_address(py, pointer, nbytes)?;
        let timeout = optional_duration(py, timeout)?;
        let sent = call_interruptibly(py, || {
            // SAFETY: as for `issue`.
            unsafe {
                self.inner
                    .send(to, tag, pointer as *const u8, nbytes, timeout, background)
            }
        });
        sent.map(|work| PyWork::new(work, hold))
    }

    /// Starts receiving bytes from a rank, or from any rank.
    #[pyo3(signature = (source, tag, pointer, nbytes, timeout=None, hold=None, background=true))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn receive(
        &self,
        py: Python<'_>,
        source: Option<u32>,
        tag: u64,
        pointer: usize,
        nbytes: u64,
        timeout: Option<f64>,
        hold: Option<Py<PyAny>>,
        background: bool,
    ) -> PyResult<PyWork> {
        check_address(py, pointer, nbytes)?;
        let timeout = optional_duration(py, timeout)?;
        let received = py.detach(|| {
            // SAFETY: as for `issue`.
            unsafe {
                self.inner
                    .receive(source, tag, pointer as *mut u8, nbytes, timeout, background)
            }
        });
        checked(py, received).map(|work| PyWork::new(work, hold))
    }

    /// A group of some ranks, in this order; None on other ranks.
    #[pyo3(signature = (ranks, name, *, global_ranks=None, waits=false, **options))]
    fn split(
        &self,
        py: Python<'_>,
        ranks: Vec<u32>,
        name: &str,
        global_ranks: Option<Vec<u32>>,
        waits: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<Self>> {
        let options = SplitOptions {
            global_ranks,
            waits,
            ..Options::of(options)?.of_split(py)?
        };
        let made = call_interruptibly(py, || self.inner.split(&ranks, name, options))?;
        Ok(made.map(|inner| Self { inner }))
    }

    /// A group of the surviving ranks. Every one of them calls it.
    #[pyo3(signature = (name, timeout=None))]
    fn shrink(&self, py: Python<'_>, name: &str, timeout: Option<f64>) -> PyResult<Self> {
        let timeout = optional_duration(py, timeout)?;
        let inner = call_interruptibly(py, || self.inner.shrink(name, timeout))?;
        Ok(Self { inner })
    }

    /// A group of the surviving ranks, and whether all of them have voted yes.
    fn shrink_with_vote(
        &self,
        py: Python<'_>,
        name: &str,
        vote: bool,
        timeout: f64,
    ) -> PyResult<(Self, bool)> {
        let timeout = optional_duration(py, Some(timeout))?;
        let shrunk = || self.inner.shrink_with_vote(name, vote, timeout);
        let (inner, unanimous) = call_interruptibly(py, shrunk)?;
        Ok((Self { inner }, unanimous))
    }

    /// The ranks in this group of another group's members.
    fn ranks_of(&self, other: &Self) -> Vec<u32> {
        self.inner.ranks_of(&other.inner)
    }

    /// Explains the choice for a call: `nbytes` of the whole message, root 0.
    fn explain(
        &self,
        py: Python<'_>,
        collective: &str,
        nbytes: u64,
        dtype: &str,
        symmetric: bool,
    ) -> PyResult<PyExplanation> {
        let collective = self::collective(py, collective, 0)?;
        let dtype = self::dtype(py, dtype)?;
        let memory = match symmetric {
            true => MemoryClass::Symmetric,
            false => MemoryClass::Ordinary,
        };
        let explained = py.detach(|| self.inner.explain(collective, nbytes, dtype, memory));
        checked(py, explained).map(PyExplanation::from)
    }

    /// The choices for a collective, by size: (largest in bytes, algorithm, origin of the choice).
    fn choices(
        &self,
        py: Python<'_>,
        collective: &str,
    ) -> PyResult<Vec<(Option<u64>, String, &'static str)>> {
        let collective = self::collective(py, collective, 0)?;
        let choices = checked(py, py.detach(|| self.inner.choices(collective)))?;
        let row = |choice: Choice| (choice.up_to_bytes, choice.algorithm, choice.origin.name());
        Ok(choices.into_iter().map(row).collect())
    }

    /// The number of pairs of ranks that each transport connects.
    fn pairs(&self) -> BTreeMap<String, u64> {
        let pairs = self.inner.pairs().into_iter();
        pairs
            .map(|(kind, count)| (kind.to_string(), count))
            .collect()
    }

    /// Calls `callback` with the exception when the group breaks, on a thread of its own.
    fn on_failure(&self, callback: Py<PyAny>) {
        self.inner.on_end(Box::new(move |end| {
            if let Err(error) = end {
                failure::call_back(callback, error);
            }
        }));
    }

    /// The group's failure from now on.
    fn failure(&self) -> Failure {
        Failure::of(&self.inner)
    }

    /// The group's counters, which count from the first call on.
    fn counters(&self) -> PyCounters {
        PyCounters::new(self.inner.counters())
    }

    /// The traffic over the links to other ranks, for all groups, where the network counts it:
    /// (endpoint, host, transport, bytes sent, bytes received, packets retransmitted, connections
    /// made anew).
    fn traffic(&self, py: Python<'_>) -> PyResult<Vec<TrafficRow>> {
        let links = checked(py, py.detach(|| self.inner.traffic()))?;
        Ok(links.into_iter().map(counters::traffic_row).collect())
    }

    /// Adds schedules in text form, which calls can then name as their algorithm.
    fn add_schedule(&self, py: Python<'_>, name: &str, text: &str) -> PyResult<()> {
        let schedules = weft_schedule::parse(text).map_err(|error| {
            exception(
                py,
                &Error::Config(format!("the schedule {name:?}: {error}")),
            )
        })?;
        let added = py.detach(|| self.inner.add_schedule(name, schedules));
        checked(py, added)
    }

    /// The group's user schedules.
    fn schedules(&self, py: Python<'_>) -> PyResult<Vec<PyUserSchedule>> {
        let known = checked(py, py.detach(|| self.inner.schedules()))?;
        Ok(known.into_iter().map(PyUserSchedule::from).collect())
    }

    /// Makes symmetric memory with `signals` signals: the ranks of this host access it directly,
    /// and all ranks by one-sided operations.
    #[pyo3(signature = (nbytes, signals=0, name=""))]
    fn symmetric(
        &self,
        py: Python<'_>,
        nbytes: u64,
        signals: u32,
        name: &str,
    ) -> PyResult<PySymmetric> {
        let made = call_interruptibly(py, || {
            (self.inner).symmetric_with_signals(nbytes, signals, name)
        });
        made.map(PySymmetric::new)
    }

    /// Makes memory that all ranks of a host share: the part of one of them.
    fn shared(&self, py: Python<'_>, nbytes: u64, holder: u32) -> PyResult<PySymmetric> {
        call_interruptibly(py, || self.inner.shared(nbytes, holder)).map(PySymmetric::new)
    }

    /// Registers memory, which `hold` keeps alive, so that adapters read it in place.
    fn register(
        &self,
        py: Python<'_>,
        pointer: usize,
        nbytes: u64,
        hold: Py<PyAny>,
    ) -> PyResult<PyRegistration> {
        check_address(py, pointer, nbytes)?;
        let registered = call_interruptibly(py, || {
            // SAFETY: `hold` owns this many bytes there, and is kept as long as they are
            // registered.
            unsafe { self.inner.register(pointer as *const u8, nbytes) }
        });
        registered.map(|inner| PyRegistration::new(inner, hold))
    }

    /// Registers memory of a device by a file, which is open meanwhile, so that adapters read it in
    /// place.
    fn register_device(
        &self,
        py: Python<'_>,
        pointer: usize,
        nbytes: u64,
        file: RawFd,
        offset: u64,
        hold: Py<PyAny>,
    ) -> PyResult<PyRegistration> {
        check_address(py, pointer, nbytes)?;
        let registered = call_interruptibly(py, || {
            let file = dma_buf(file, offset);
            // SAFETY: as for `register`; memory of devices has separate addresses.
            unsafe { (self.inner).register_device(pointer as *const u8, nbytes, file) }
        });
        registered.map(|inner| PyRegistration::new(inner, hold))
    }

    /// Starts sending registered memory of a device to a rank. Returns None, and sends nothing, if
    /// the link cannot read it.
    #[pyo3(signature = (to, tag, pointer, nbytes, timeout=None, hold=None, background=true))]
    #[expect(clippy::too_many_arguments, reason = "arguments of a Python call")]
    fn send_from_device(
        &self,
        py: Python<'_>,
        to: u32,
        tag: u64,
        pointer: usize,
        nbytes: u64,
        timeout: Option<f64>,
        hold: Option<Py<PyAny>>,
        background: bool,
    ) -> PyResult<Option<PyWork>> {
        check_address(py, pointer, nbytes)?;
        let timeout = optional_duration(py, timeout)?;
        let sent = call_interruptibly(py, || {
            let start = pointer as *const u8;
            // SAFETY: as for `issue`.
            unsafe { (self.inner).send_from_device(to, tag, start, nbytes, timeout, background) }
        });
        sent.map(|work| work.map(|work| PyWork::new(work, hold)))
    }

    /// Whether `send_from_device` would send now.
    fn reads_device(&self, py: Python<'_>, to: u32, pointer: usize, nbytes: u64) -> PyResult<bool> {
        let start = pointer as *const u8;
        checked(py, self.inner.reads_device(to, start, nbytes))
    }

    /// The reason if memory was copied instead of registered while it was sent.
    fn registration_refusal(&self) -> Option<String> {
        self.inner.registration_refusal()
    }

    /// The number of bytes that were copied into the pool before they were sent.
    #[getter]
    fn staged_bytes(&self) -> u64 {
        self.inner.staged_bytes()
    }

    /// Starts or stops recording the stages of tiles.
    fn trace_stages(&self, tracing: bool) {
        self.inner.trace_stages(tracing);
    }

    /// The recorded stages: (stage, operation, tile, bytes, begin and end in ns of the monotonic
    /// clock).
    fn take_stages(&self) -> Vec<(&'static str, u64, u64, u64, u64, u64)> {
        let row = |span: StageSpan| {
            let StageOf {
                operation,
                tile,
                bytes,
            } = span.of;
            let name = span.stage.name();
            (name, operation, tile, bytes, span.begin_ns, span.end_ns)
        };
        self.inner.take_stages().into_iter().map(row).collect()
    }

    /// The number of operations that worked directly on symmetric memory.
    #[getter]
    fn symmetric_operations(&self) -> u64 {
        self.inner.symmetric_operations()
    }

    /// The number of steps that this rank has executed for others.
    #[getter]
    fn steps_helped(&self) -> u64 {
        self.inner.steps_helped()
    }

    /// Ends every pending operation on all ranks.
    fn abort(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.inner.abort(reason));
    }

    /// Ends all operations of the group on all ranks, with the error of another group of the same
    /// ranks, if that is broken.
    fn abort_as(&self, py: Python<'_>, other: &PyGroup) {
        py.detach(|| self.inner.abort_as(&other.inner));
    }

    /// Breaks the group on all ranks. Operations that all ranks have issued continue.
    fn fail(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.inner.fail(reason));
    }

    /// Waits until all operations have ended, with or without an error, except for receives that
    /// match no message yet. Returns whether the group is unbroken.
    fn finish(&self, py: Python<'_>) -> PyResult<bool> {
        wait_interruptibly(py, |interrupted| self.inner.finish(interrupted))?;
        Ok(py.detach(|| self.inner.broken()).is_none())
    }

    /// Counts a step of training, for those who watch the job.
    fn count_step(&self) {
        self.inner.count_step();
    }

    /// Leaves the group.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

/// Waits for a blocking operation. `hold`, which owns its memory, is created only if the operation
/// has not ended yet.
fn ended(
    py: Python<'_>,
    work: weft_runtime::Work,
    hold: impl FnOnce() -> PyResult<Py<PyAny>>,
) -> PyResult<()> {
    if !work.is_done() || work.error().is_some() {
        PyWork::new(work, Some(hold()?)).wait(py, None)?;
    }
    Ok(())
}
