//! Conversion of the runtime's errors to exceptions of `weft.errors`.

use pyo3::prelude::*;
use weft_runtime::Error;

/// The exception for an error of the runtime.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = py.import("weft.errors")?.getattr(class_name(error))?;
    let text = error.to_string();
    let value = match error {
        Error::PeerLost { rank, host, .. } => {
            class.call1((text, rank.map_or(-1, i64::from), host))?
        }
        _ => class.call1((text,))?,
    };
    Ok(PyErr::from_value(value))
}

fn class_name(error: &Error) -> &'static str {
    match error {
        Error::PeerLost { .. } => "PeerLost",
        Error::Timeout { .. } => "Timeout",
        Error::Desync { .. } => "Desync",
        Error::Aborted { .. } => "Aborted",
        Error::Config(_) => "ConfigError",
        Error::Auth(_) => "AuthError",
        Error::Unsupported(_) => "UnsupportedError",
        Error::Internal(_) => "InternalError",
    }
}

/// An `ArgumentError` of `weft.errors`.
pub(crate) fn argument_error(py: Python<'_>, text: String) -> PyErr {
    raised(py, "ArgumentError", text)
}

/// An `UnsupportedError` of `weft.errors`.
pub(crate) fn unsupported(py: Python<'_>, text: String) -> PyErr {
    raised(py, "UnsupportedError", text)
}

fn raised(py: Python<'_>, class: &str, text: String) -> PyErr {
    let class = py
        .import("weft.errors")
        .and_then(|module| module.getattr(class));
    match class.and_then(|class| class.call1((text,))) {
        Ok(value) => PyErr::from_value(value),
        Err(failure) => failure,
    }
}

/// A result of the runtime as a result of a Python call.
pub(crate) fn checked<T>(py: Python<'_>, result: Result<T, Error>) -> PyResult<T> {
    result.map_err(|error| exception(py, &error))
}
