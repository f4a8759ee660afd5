//! Conversion of names and numbers from Python to the runtime's types, and their checks.

use pyo3::prelude::*;
use weft_kernels::DType;
use weft_runtime::{Counts, Op};
use weft_schedule::{Collective, WireFormat};

use crate::error::argument_error;

/// Raises `ArgumentError` for bytes at address 0: an array whose memory is elsewhere, such as a
/// tensor of the device "meta".
pub(crate) fn check_address(py: Python<'_>, pointer: usize, nbytes: u64) -> PyResult<()> {
    if pointer != 0 || nbytes == 0 {
        return Ok(());
    }
    let text = format!(
        "the array has {nbytes} bytes but no memory (its address is 0): expected memory that the processor or, where \
         that is allowed, a CUDA device reaches"
    );
    Err(argument_error(py, text))
}

/// Counts of elements from Python: a number, a list with one per rank, or two such lists.
#[derive(FromPyObject, IntoPyObject)]
pub(crate) enum CountsArgument {
    Equal(u64),
    PerPair((Vec<u64>, Vec<u64>)),
    PerRank(Vec<u64>),
}

impl From<CountsArgument> for Counts {
    fn from(counts: CountsArgument) -> Self {
        match counts {
            CountsArgument::Equal(count) => Counts::Equal(count),
            CountsArgument::PerRank(list) => Counts::PerRank(list),
            CountsArgument::PerPair((send, receive)) => Counts::PerPair { send, receive },
        }
    }
}

impl From<Counts> for CountsArgument {
    fn from(counts: Counts) -> Self {
        match counts {
            Counts::Equal(count) => CountsArgument::Equal(count),
            Counts::PerRank(list) => CountsArgument::PerRank(list),
            Counts::PerPair { send, receive } => CountsArgument::PerPair((send, receive)),
        }
    }
}

impl CountsArgument {
    /// Counts of elements that are each moved as `factor` smaller ones.
    pub(crate) fn scaled(mut self, factor: u64) -> Self {
        match &mut self {
            CountsArgument::Equal(count) => *count *= factor,
            CountsArgument::PerRank(list) => list.iter_mut().for_each(|count| *count *= factor),
            CountsArgument::PerPair((send, receive)) => {
                send.iter_mut()
                    .chain(receive)
                    .for_each(|count| *count *= factor);
            }
        }
        self
    }
}

/// The reductions that are identified by their name alone.
pub(crate) const OPS: [Op; 8] = [
    Op::Sum,
    Op::Average,
    Op::Product,
    Op::Min,
    Op::Max,
    Op::BitAnd,
    Op::BitOr,
    Op::BitXor,
];

/// The reduction with this name.
pub(crate) fn op(name: &str) -> Option<Op> {
    OPS.into_iter().find(|op| op.name() == name)
}

/// The collective with this name.
pub(crate) fn collective(py: Python<'_>, name: &str, root: u32) -> PyResult<Collective> {
    Collective::named(name, root)
        .ok_or_else(|| argument_error(py, format!("there is no collective {name:?}")))
}

/// The element type with this name.
pub(crate) fn dtype(py: Python<'_>, name: &str) -> PyResult<DType> {
    DType::from_name(name)
        .ok_or_else(|| argument_error(py, format!("there is no element type {name:?}")))
}

/// The wire format with a name from Python; `None` for None.
pub(crate) fn wire_format(name: &Bound<'_, PyAny>) -> PyResult<Option<WireFormat>> {
    let known =
        |text: String| WireFormat::named(&text).map_err(|why| argument_error(name.py(), why));
    name.extract::<Option<String>>()?.map(known).transpose()
}

/// The names of all wire formats.
#[pyfunction]
pub(crate) fn wire_formats() -> Vec<&'static str> {
    WireFormat::ALL.map(WireFormat::name).to_vec()
}

/// The names of all reductions except `weft.PremulSum`.
#[pyfunction]
pub(crate) fn operations() -> Vec<&'static str> {
    OPS.map(Op::name).to_vec()
}

/// The element types of reductions, and their lengths in bytes.
#[pyfunction]
pub(crate) fn element_types() -> Vec<(&'static str, usize)> {
    DType::ALL
        .map(|dtype| (dtype.name(), dtype.size()))
        .to_vec()
}
