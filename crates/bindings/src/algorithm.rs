//! The table of algorithms.

use pyo3::prelude::*;
use weft_algorithms::registry;

/// What an algorithm is called, needs and can do.
#[pyclass(frozen, get_all, module = "weft._weft")]
pub(crate) struct Algorithm {
    /// Its name, unique within the collective.
    name: &'static str,
    /// What it carries out.
    collective: &'static str,
    /// One line for people.
    summary: &'static str,
    /// Whether all ranks must share memory.
    mapped_scratch: bool,
    /// Whether the caller's arrays must be symmetric.
    symmetric: bool,
    /// Whether blocks may have a size per rank.
    per_rank_sizes: bool,
}

/// All algorithms.
#[pyfunction]
pub(crate) fn algorithms() -> Vec<Algorithm> {
    let row = |algorithm: &weft_algorithms::Algorithm| Algorithm {
        name: algorithm.name,
        collective: algorithm.collective,
        summary: algorithm.summary,
        mapped_scratch: algorithm.requires.mapped != weft_algorithms::Reach::None,
        symmetric: algorithm.requires.symmetric,
        per_rank_sizes: algorithm.requires.per_rank_sizes,
    };
    registry().iter().map(row).collect()
}
