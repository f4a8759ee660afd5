//! Planner requests as functions of JSON, executed without the interpreter lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_runtime::{Error, MemoryClass, untuned_preferences};

use crate::error::{argument_error, exception};

/// Defines a Python function for each kind of request.
macro_rules! requests {
    ($($(#[$about:meta])* $name:ident,)+) => {
        $(
            $(#[$about])*
            #[pyfunction]
            fn $name(py: Python<'_>, request: &str) -> PyResult<String> {
                answered(py, request, weft_planner::$name)
            }
        )+

        /// Adds all functions to the module.
        pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
            $(module.add_function(wrap_pyfunction!($name, module)?)?;)+
            module.add_function(wrap_pyfunction!(untuned, module)?)?;
            module.add_function(wrap_pyfunction!(algorithms, module)?)
        }
    };
}

requests! {
    /// The names of the algorithms that a group can use.
    family,
    /// The schedule of an algorithm for a group, and the verifier's report.
    plan,
    /// Times of calls on machines, by the simulator.
    price,
    /// Times of calls on a machine that need not exist, by algorithm and size.
    simulate,
    /// The verifier's report on schedules in text form.
    verify,
}

/// All algorithms.
#[pyfunction]
fn algorithms(py: Python<'_>) -> PyResult<String> {
    answered(py, "null", |(): &()| weft_planner::algorithms())
}

/// The algorithms that a group without a profile tries, best first, by size of the message: `None`
/// is the limit of the last ones.
#[pyfunction]
fn untuned(
    py: Python<'_>,
    collective: &str,
    ranks_per_host: Vec<u32>,
    symmetric: bool,
    round_trip_s: f64,
) -> PyResult<Vec<(Option<u64>, Vec<&'static str>)>> {
    let memory = match symmetric {
        true => MemoryClass::Symmetric,
        false => MemoryClass::Ordinary,
    };
    let round_trip = Duration::try_from_secs_f64(round_trip_s)
        .map_err(|error| argument_error(py, format!("round_trip_s={round_trip_s}: {error}")))?;
    let found = untuned_preferences(collective, &ranks_per_host, round_trip, memory);
    let limit = |up_to| (up_to < u64::MAX).then_some(up_to);
    let rows = found.into_iter();
    Ok(rows
        .map(|(up_to, names)| (limit(up_to), names.to_vec()))
        .collect())
}

/// Reads a request, and returns its answer.
///
/// An invalid request raises an `ArgumentError`, a panic an `InternalError`.
fn answered<Q, A>(
    py: Python<'_>,
    request: &str,
    answer: impl FnOnce(&Q) -> Result<A, weft_planner::PlannerError> + Send,
) -> PyResult<String>
where
    Q: DeserializeOwned,
    A: Serialize,
{
    let answered = py.detach(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let request = serde_json::from_str(request).map_err(|error| error.to_string())?;
            let answer = answer(&request).map_err(|error| error.to_string())?;
            serde_json::to_string(&answer).map_err(|error| error.to_string())
        }))
    });
    match answered {
        Ok(answer) => answer.map_err(|text| argument_error(py, text)),
        Err(_) => Err(exception(
            py,
            &Error::Internal(format!("a panic while answering {request}")),
        )),
    }
}
