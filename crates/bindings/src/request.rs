//! Requests of collective calls from Python, the same for all adapters, and the keywords common to
//! all collectives.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_kernels::DType;
use weft_runtime::{Call, Counts, Op, Tiling};
use weft_schedule::{Collective, WireFormat};

use crate::call::{self, CountsArgument, OPS};
use crate::error::{argument_error, unsupported};
use crate::interrupt::optional_duration;

/// A collective with its root, element type and reduction, which calls of one kind share.
#[pyclass(name = "Operation", frozen, module = "weft._weft")]
pub(crate) struct PyOperation {
    collective: Collective,
    dtype: DType,
    op: Op,
    /// The number of elements of `dtype` in one element of the caller.
    factor: u64,
}

#[pymethods]
impl PyOperation {
    /// `dtype` is the name of the elements' type and `itemsize` their length in bytes. Types that
    /// weft cannot reduce are moved as bytes.
    #[new]
    #[pyo3(signature = (collective, dtype, itemsize, op=None, root=0))]
    fn new(
        py: Python<'_>,
        collective: &str,
        dtype: &str,
        itemsize: u64,
        op: Option<&Bound<'_, PyAny>>,
        root: u32,
    ) -> PyResult<Self> {
        let collective = call::collective(py, collective, root)?;
        let known = DType::from_name(dtype);
        let op = match (collective.reduces(), known) {
            (false, _) => Op::Sum,
            (true, Some(dtype)) => operation(py, op, dtype)?,
            (true, None) => {
                let text = format!("cannot reduce elements of type {dtype}: weft only moves them");
                return Err(unsupported(py, text));
            }
        };
        Ok(Self {
            collective,
            dtype: known.unwrap_or(DType::U8),
            op,
            factor: if known.is_some() { 1 } else { itemsize },
        })
    }
}

impl PyOperation {
    /// A call of the operation. Without `source`, a collective that works in place reads its
    /// target.
    pub(crate) fn on(
        &self,
        counts: CountsArgument,
        source: Option<usize>,
        target: Option<usize>,
    ) -> Request {
        let output = target.unwrap_or(0);
        let counts = match self.factor {
            1 => counts,
            factor => counts.scaled(factor),
        };
        Request {
            collective: self.collective,
            dtype: self.dtype,
            op: self.op,
            input: match source {
                None if self.collective.in_place() => output,
                source => source.unwrap_or(0),
            },
            output,
            counts: counts.into(),
        }
    }
}

/// A call of a collective, with the addresses of its memory.
#[pyclass(frozen, module = "weft._weft")]
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    pub(crate) op: Op,
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) counts: Counts,
}

#[pymethods]
impl Request {
    /// Without `source`, a collective that works in place reads its target.
    #[new]
    #[pyo3(signature = (operation, counts, source=None, target=None))]
    fn new(
        operation: &PyOperation,
        counts: CountsArgument,
        source: Option<usize>,
        target: Option<usize>,
    ) -> Self {
        operation.on(counts, source, target)
    }

    /// Its fields, by name; `counts` are elements of `dtype`.
    fn stated<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stated = PyDict::new(py);
        stated.set_item("collective", self.collective.name())?;
        stated.set_item("root", self.collective.root())?;
        stated.set_item("dtype", self.dtype.name())?;
        stated.set_item("op", self.op.name())?;
        if let Op::PremulSum(factor) = self.op {
            stated.set_item("factor", factor)?;
        }
        stated.set_item("input", self.input)?;
        stated.set_item("output", self.output)?;
        stated.set_item("counts", CountsArgument::from(self.counts.clone()))?;
        Ok(stated)
    }
}

impl Request {
    /// The call for the runtime.
    pub(crate) fn call(&self, keywords: CallKeywords) -> Call {
        Call {
            collective: self.collective,
            dtype: self.dtype,
            op: self.op,
            input: self.input as *const u8,
            output: self.output as *mut u8,
            counts: self.counts.clone(),
            priority: keywords.priority,
            timeout: keywords.timeout,
            algorithm: keywords.algorithm,
            tiling: keywords.tiling,
            wire: keywords.wire,
        }
    }
}

/// The reduction that Python names, if it is defined for elements of this type.
fn operation(py: Python<'_>, op: Option<&Bound<'_, PyAny>>, dtype: DType) -> PyResult<Op> {
    let Some(op) = op else {
        return Ok(Op::Sum);
    };
    let found = match op.extract::<&str>() {
        Ok(name) => call::op(name),
        Err(_) => (op.getattr("factor"))
            .and_then(|factor| Ok(Op::PremulSum(factor.extract()?)))
            .or_else(|_| Ok::<_, PyErr>(Op::AverageOf(op.getattr("contributions")?.extract()?)))
            .ok(),
    };
    let found = found.ok_or_else(|| {
        let shown = op
            .repr()
            .map_or_else(|_| String::new(), |text| text.to_string());
        let text = format!(
            "op={shown} is not allowed: expected one of {} or weft.PremulSum(factor)",
            OPS.map(Op::name).join(", ")
        );
        argument_error(py, text)
    })?;
    // The kernels truncate an integer's product, which Python users would not notice.
    let fractional = matches!(found, Op::PremulSum(_)) && !dtype.is_float();
    let integers = || format!("PremulSum is defined for floating-point elements, not for {dtype}");
    let refused = fractional.then(integers).or_else(|| found.refusal(dtype));
    refused.map_or(Ok(found), |text| Err(unsupported(py, text)))
}

/// The keywords that every collective accepts.
#[derive(Default)]
pub(crate) struct CallKeywords {
    priority: i32,
    timeout: Option<std::time::Duration>,
    algorithm: Option<String>,
    tiling: Tiling,
    wire: Option<WireFormat>,
}

impl CallKeywords {
    /// The keywords of [`CallKeywords::of`].
    const KEYWORDS: &str = "priority, timeout, algorithm, wire, tile_bytes, tiles_in_flight";

    /// Reads the keywords of a call.
    ///
    /// # Errors
    ///
    /// `TypeError` names an unknown keyword, and all allowed ones.
    pub(crate) fn of(
        py: Python<'_>,
        collective: Collective,
        timeout: Option<f64>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let mut found = Self {
            timeout: optional_duration(py, timeout)?,
            ..Self::default()
        };
        for (keyword, value) in keywords.into_iter().flatten() {
            match keyword.extract::<&str>()? {
                "priority" => found.priority = value.extract()?,
                "algorithm" => found.algorithm = value.extract()?,
                "wire" => found.wire = call::wire_format(&value)?,
                "tile_bytes" => found.tiling.tile_bytes = value.extract()?,
                "tiles_in_flight" => found.tiling.tiles_in_flight = value.extract()?,
                other => return Err(Self::unexpected(collective, other)),
            }
        }
        Ok(found)
    }

    fn unexpected(collective: Collective, keyword: &str) -> PyErr {
        let method = collective.name().replace('-', "_");
        PyTypeError::new_err(format!(
            "{method}() got an unexpected keyword argument {keyword:?}: expected {}. For a handle to wait for later, \
             call {method}_async",
            Self::KEYWORDS
        ))
    }
}
