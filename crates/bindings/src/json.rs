//! Questions and answers as JSON: how the tools that work on schedules talk to Python.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_runtime::Error;

use crate::error::{argument_error, exception};

/// Reads a question, answers it without the interpreter lock, and writes the answer.
///
/// An error of `answer` becomes an `ArgumentError`, so it says what is allowed; a panic becomes an `InternalError`.
pub(crate) fn answered<Q, A>(
    py: Python<'_>,
    question: &str,
    answer: impl FnOnce(Q) -> Result<A, String> + Send,
) -> PyResult<String>
where
    Q: DeserializeOwned,
    A: Serialize,
{
    let answered = py.detach(|| {
        catch_unwind(AssertUnwindSafe(|| {
            let question = serde_json::from_str(question).map_err(|error| error.to_string())?;
            let answer = answer(question)?;
            serde_json::to_string(&answer).map_err(|error| error.to_string())
        }))
    });
    match answered {
        Ok(answer) => answer.map_err(|text| argument_error(py, text)),
        Err(_) => Err(exception(
            py,
            &Error::Internal(format!("a panic while answering {question}")),
        )),
    }
}
