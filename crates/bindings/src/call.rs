//! Names and numbers from Python as the runtime's types.

use pyo3::prelude::*;
use weft_kernels::DType;
use weft_runtime::{Counts, Op};
use weft_schedule::Collective;

use crate::error::argument_error;

/// How many elements, as Python says it: a number, a list with one per rank, or two such lists.
#[derive(FromPyObject)]
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

/// The operation with this name.
pub(crate) fn op(py: Python<'_>, name: &str, factor: f64) -> PyResult<Op> {
    Ok(match name {
        "sum" => Op::Sum,
        "avg" => Op::Average,
        "product" => Op::Product,
        "min" => Op::Min,
        "max" => Op::Max,
        "band" => Op::BitAnd,
        "bor" => Op::BitOr,
        "bxor" => Op::BitXor,
        "premul_sum" => Op::PremulSum(factor),
        _ => {
            return Err(argument_error(
                py,
                format!("there is no operation {name:?}"),
            ));
        }
    })
}
