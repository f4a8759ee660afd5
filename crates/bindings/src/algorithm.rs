//! The function `algorithms`: the table of algorithms.

use pyo3::prelude::*;
use serde::Serialize;
use weft_algorithms::{Memory, Reach, Requirements, registry, select};

use crate::json;

/// What an algorithm is called, needs and can do.
#[derive(Serialize)]
struct Row {
    collective: &'static str,
    name: &'static str,
    /// The name with its parts where it has some: those that are taken if none are named.
    full_name: String,
    summary: &'static str,
    needs: Needs,
    about: About,
    /// What its source says that it costs.
    textbook: &'static str,
}

/// What else people are told.
#[derive(Serialize)]
struct About {
    how: &'static str,
    formulas: Vec<Formula>,
    wins: &'static str,
    source: &'static str,
}

/// What it costs.
#[derive(Serialize)]
struct Formula {
    /// In which memory: `ordinary`, `symmetric`, or `any`.
    memory: &'static str,
    steps: String,
    sent: String,
    read: String,
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

impl About {
    fn of(algorithm: &weft_algorithms::Algorithm) -> Self {
        let about = algorithm.about;
        let formula = |formula: weft_algorithms::FormulaText| Formula {
            memory: match formula.memory {
                None => "any",
                Some(Memory::Ordinary) => "ordinary",
                Some(Memory::Symmetric) => "symmetric",
            },
            steps: formula.steps,
            sent: formula.sent,
            read: formula.read,
        };
        About {
            how: about.how,
            formulas: algorithm.formulas().into_iter().map(formula).collect(),
            wins: about.wins,
            source: about.source,
        }
    }
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
    let row = |algorithm: &weft_algorithms::Algorithm| {
        let selection = select(algorithm.collective, algorithm.name)?;
        Ok(Row {
            collective: algorithm.collective,
            name: algorithm.name,
            full_name: selection.name(),
            summary: algorithm.summary,
            needs: Needs::of(selection.requires()),
            about: About::of(algorithm),
            textbook: algorithm.about.quote,
        })
    };
    json::answered(py, "null", |()| {
        registry().map(row).collect::<Result<Vec<_>, String>>()
    })
}
