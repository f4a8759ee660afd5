//! The function `algorithms`: the table of algorithms.

use pyo3::prelude::*;
use serde::Serialize;
use weft_algorithms::{Reach, Requirements, registry};

use crate::json;

/// What an algorithm is called, needs and can do.
#[derive(Serialize)]
struct Row {
    collective: &'static str,
    name: &'static str,
    summary: &'static str,
    needs: Needs,
}

/// What an algorithm needs and can do.
#[derive(Serialize)]
pub(crate) struct Needs {
    /// Whose temporary memory a rank reads: `none`, `unit` (those of its own host), or `all`.
    mapped: &'static str,
    symmetric: bool,
    per_rank_sizes: bool,
    reproducible: bool,
}

impl Needs {
    pub(crate) fn of(requires: Requirements) -> Self {
        Needs {
            mapped: match requires.mapped {
                Reach::None => "none",
                Reach::Unit => "unit",
                Reach::All => "all",
            },
            symmetric: requires.symmetric,
            per_rank_sizes: requires.per_rank_sizes,
            reproducible: requires.reproducible,
        }
    }
}

/// All algorithms, as JSON.
#[pyfunction]
pub(crate) fn algorithms(py: Python<'_>) -> PyResult<String> {
    let row = |algorithm: &weft_algorithms::Algorithm| Row {
        collective: algorithm.collective,
        name: algorithm.name,
        summary: algorithm.summary,
        needs: Needs::of(algorithm.requires),
    };
    json::answered(py, "null", |()| {
        Ok(registry().iter().map(row).collect::<Vec<_>>())
    })
}
