//! The class `Endpoint`.

use std::sync::Arc;

use pyo3::prelude::*;
use weft_runtime::{EndpointOptions, TransportChoice};

use crate::error::{argument_error, checked};
use crate::interrupt::duration;

/// A participant: a pool of memory and the connections to other participants.
#[pyclass(frozen, module = "weft._weft")]
pub(crate) struct Endpoint {
    pub(crate) inner: Arc<weft_runtime::Endpoint>,
}

#[pymethods]
impl Endpoint {
    #[new]
    #[pyo3(signature = (*, transport, pool_bytes, peer_timeout, interface=None, route_to=None))]
    fn new(
        py: Python<'_>,
        transport: &str,
        pool_bytes: u64,
        peer_timeout: f64,
        interface: Option<String>,
        route_to: Option<String>,
    ) -> PyResult<Self> {
        let options = EndpointOptions {
            transport: choice(py, transport)?,
            interface,
            route_to,
            pool_bytes,
            peer_timeout: duration(py, peer_timeout)?,
            ..EndpointOptions::default()
        };
        let made = py.detach(|| weft_runtime::Endpoint::new(options));
        checked(py, made).map(|inner| Self { inner })
    }

    /// Closes every connection.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.inner.close());
    }
}

fn choice(py: Python<'_>, name: &str) -> PyResult<TransportChoice> {
    match name {
        "auto" => Ok(TransportChoice::Auto),
        "shm" => Ok(TransportChoice::Shm),
        "tcp" => Ok(TransportChoice::Tcp),
        "loopback" => Ok(TransportChoice::Loopback),
        _ => {
            let text =
                format!("transport={name:?} is not allowed: expected auto, shm, tcp or loopback");
            Err(argument_error(py, text))
        }
    }
}
