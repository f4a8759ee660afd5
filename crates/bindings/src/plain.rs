//! Plain arrays: contiguous NumPy arrays with memory and element type exposed by the buffer
//! protocol.
//!
//! [Note: Fast path] Most calls are blocking calls on plain arrays, without keywords. For these the
//! binding looks up the memory directly, so that no Python objects are created, as a few objects
//! take longer than a small operation. All other calls, including invalid ones, take the general
//! path (`staging.py`), which stages data where necessary and reports errors.

use std::ops::Range;

use pyo3::buffer::{ElementType, PyUntypedBuffer};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use weft_kernels::DType;
use weft_runtime::{Counts, Op};
use weft_schedule::Collective;

use crate::request::Request;

/// A plain array.
struct Plain {
    buffer: PyUntypedBuffer,
    dtype: DType,
}

impl Plain {
    /// `x`, if it is a plain array.
    fn of(x: &Bound<'_, PyAny>) -> Option<Self> {
        if !is_plain_class(x).ok()? {
            return None;
        }
        let buffer = PyUntypedBuffer::get(x).ok()?;
        let dtype = dtype(&buffer)?;
        buffer.is_c_contiguous().then_some(Self { buffer, dtype })
    }

    /// As [`Plain::of`], for an array that can be written.
    fn writable(x: &Bound<'_, PyAny>) -> Option<Self> {
        Self::of(x).filter(|plain| !plain.buffer.readonly())
    }

    fn pointer(&self) -> *mut u8 {
        self.buffer.buf_ptr().cast()
    }

    fn elements(&self) -> u64 {
        self.buffer.item_count() as u64
    }

    /// Whether both have elements of the same type, and do not overlap.
    fn matches(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.addresses(), other.addresses());
        let apart = mine.end <= theirs.start || theirs.end <= mine.start;
        self.dtype == other.dtype && apart
    }

    fn has_shape_of(&self, other: &Self) -> bool {
        self.buffer.shape() == other.buffer.shape()
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.pointer() as usize;
        start..start + self.buffer.len_bytes()
    }
}

/// The memory of a message in a plain array.
pub(crate) struct PlainMessage(Plain);

impl PlainMessage {
    /// A message to send.
    pub(crate) fn source(x: &Bound<'_, PyAny>) -> Option<Self> {
        Plain::of(x).map(Self)
    }

    /// A message to receive.
    pub(crate) fn target(x: &Bound<'_, PyAny>) -> Option<Self> {
        Plain::writable(x).map(Self)
    }

    pub(crate) fn address(&self) -> usize {
        self.0.pointer() as usize
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.buffer.len_bytes() as u64
    }
}

/// A blocking call on plain arrays, which it holds.
pub(crate) struct PlainCall {
    pub(crate) request: Request,
    _arrays: [Option<Plain>; 2],
}

impl PlainCall {
    /// The call, if the arrays are plain and have the sizes that it needs. Without `source`, it
    /// works in place.
    pub(crate) fn new(
        collective: Collective,
        op: Op,
        source: Option<&Bound<'_, PyAny>>,
        target: Option<&Bound<'_, PyAny>>,
        ranks: u32,
    ) -> Option<Self> {
        let (source, target) = match (source, target) {
            (None, None) => (None, None),
            (None, Some(target)) => (None, Some(Plain::writable(target)?)),
            (Some(source), Some(target)) => {
                (Some(Plain::of(source)?), Some(Plain::writable(target)?))
            }
            (Some(_), None) => return None,
        };
        if let (Some(source), Some(target)) = (&source, &target)
            && !source.matches(target)
        {
            return None;
        }
        let count = count(
            collective,
            source.as_ref(),
            target.as_ref(),
            u64::from(ranks),
        )?;
        let dtype = target.as_ref().map_or(DType::U8, |plain| plain.dtype);
        if collective.reduces() && op.refusal(dtype).is_some() {
            return None;
        }
        let address = |plain: &Plain| plain.pointer() as usize;
        let output = target.as_ref().map_or(0, address);
        let request = Request {
            collective,
            dtype,
            op,
            input: source.as_ref().map_or(output, address),
            output,
            counts: Counts::Equal(count),
        };
        Some(Self {
            request,
            _arrays: [source, target],
        })
    }
}

/// The number of elements that each rank has, if the sizes fit the collective.
fn count(
    collective: Collective,
    source: Option<&Plain>,
    target: Option<&Plain>,
    ranks: u64,
) -> Option<u64> {
    let (count, fits) = match (collective, source, target) {
        (Collective::Barrier, None, None) => (0, true),
        (
            Collective::AllReduce | Collective::Reduce { .. } | Collective::Broadcast { .. },
            None,
            Some(target),
        ) => (target.elements(), true),
        (Collective::AllReduce, Some(source), Some(target)) => {
            (target.elements(), source.has_shape_of(target))
        }
        (Collective::AllGather, Some(source), Some(target)) => {
            let count = source.elements();
            (count, count.checked_mul(ranks) == Some(target.elements()))
        }
        (Collective::ReduceScatter, Some(source), Some(target)) => {
            let count = target.elements();
            (count, count.checked_mul(ranks) == Some(source.elements()))
        }
        (Collective::AllToAll, Some(source), Some(target)) => {
            let elements = source.elements();
            let even = elements.is_multiple_of(ranks);
            (elements / ranks, even && target.elements() == elements)
        }
        _ => return None,
    };
    fits.then_some(count)
}

/// The type of the elements, if the format is that of a number in this machine's byte order.
fn dtype(buffer: &PyUntypedBuffer) -> Option<DType> {
    let format = buffer.format();
    if format.to_bytes().len() != 1 {
        return None;
    }
    Some(match ElementType::from_format(format) {
        ElementType::Float { bytes: 8 } => DType::F64,
        ElementType::Float { bytes: 4 } => DType::F32,
        ElementType::Float { bytes: 2 } => DType::F16,
        ElementType::SignedInteger { bytes: 8 } => DType::I64,
        ElementType::SignedInteger { bytes: 4 } => DType::I32,
        ElementType::SignedInteger { bytes: 2 } => DType::I16,
        ElementType::SignedInteger { bytes: 1 } => DType::I8,
        ElementType::UnsignedInteger { bytes: 8 } => DType::U64,
        ElementType::UnsignedInteger { bytes: 4 } => DType::U32,
        ElementType::UnsignedInteger { bytes: 2 } => DType::U16,
        ElementType::UnsignedInteger { bytes: 1 } => DType::U8,
        ElementType::Bool => DType::Bool,
        _ => return None,
    })
}

/// Whether it is of NumPy's class, or of weft's for symmetric memory. Other subclasses take the
/// general path.
fn is_plain_class(x: &Bound<'_, PyAny>) -> PyResult<bool> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    static SYMMETRIC: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let py = x.py();
    if x.is_exact_instance(NDARRAY.import(py, "numpy", "ndarray")?) {
        return Ok(true);
    }
    let symmetric = SYMMETRIC.import(py, "weft.api.symmetric", "SymmetricArray")?;
    Ok(x.is_exact_instance(symmetric))
}
