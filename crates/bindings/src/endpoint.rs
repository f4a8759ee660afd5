//! The class `Endpoint`.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use weft_runtime::{
    Cipher, Encryption, EndpointOptions, Interface, Resumption, TransportChoice, Unregistered,
};

use crate::error::{argument_error, checked};
use crate::failure;
use crate::interrupt::{duration, wait_interruptibly};

/// A participant: a pool of memory and the connections to other participants.
#[pyclass(name = "Endpoint", frozen, module = "weft._weft")]
pub(crate) struct PyEndpoint {
    pub(crate) inner: Arc<weft_runtime::Endpoint>,
}

#[pymethods]
impl PyEndpoint {
    #[new]
    #[pyo3(signature = (*, transport, pool_bytes, peer_timeout, interface=None, tcp_congestion="auto", tcp_connections=None, tcp_resume="auto", rdma_devices=None, rdma_gid_index=None, rdma_traffic_class=None, registration="pool", encrypt="0", require_shared_memory=false, route_to=None, flight_dir=None, flight_signal=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a Python call")]
    fn new(
        py: Python<'_>,
        transport: &str,
        pool_bytes: u64,
        peer_timeout: f64,
        interface: Option<String>,
        tcp_congestion: &str,
        tcp_connections: Option<usize>,
        tcp_resume: &str,
        rdma_devices: Option<String>,
        rdma_gid_index: Option<u8>,
        rdma_traffic_class: Option<u8>,
        registration: &str,
        encrypt: &str,
        require_shared_memory: bool,
        route_to: Option<String>,
        flight_dir: Option<PathBuf>,
        flight_signal: Option<i32>,
    ) -> PyResult<Self> {
        let options = EndpointOptions {
            transport: choice(py, transport)?,
            interface,
            tcp_congestion: tcp_congestion.into(),
            tcp_connections,
            tcp_resumption: resumption(py, tcp_resume)?,
            rdma_devices,
            rdma_gid_index,
            rdma_traffic_class,
            unregistered: unregistered(py, registration)?,
            encryption: encryption(py, encrypt)?,
            require_shared_memory,
            route_to,
            pool_bytes,
            peer_timeout: duration(py, peer_timeout)?,
            flight_directory: flight_dir,
            flight_signal,
            ..EndpointOptions::default()
        };
        let made = py.detach(|| weft_runtime::Endpoint::new(options));
        checked(py, made).map(|inner| Self { inner })
    }

    /// The bytes of the pool that are in use, those of them in quarantine, and the bound.
    fn pool_bytes(&self) -> (u64, u64, u64) {
        let pool = self.inner.pool();
        let bound = pool.segment().len();
        (bound - pool.available(), pool.quarantined(), bound)
    }

    /// Waits until all operations in the groups of this endpoint have ended, as `Group.finish`
    /// does.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        wait_interruptibly(py, |interrupted| {
            weft_runtime::finish_all(&self.inner, interrupted)
        })
        .map(drop)
    }

    /// Closes every connection, and waits for calls about failures.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            weft_runtime::close_endpoint(&self.inner);
            failure::wait_for_calls();
        });
    }
}

/// The ciphers that links can have, beginning with the faster one on this machine.
#[pyfunction]
pub(crate) fn ciphers() -> Vec<&'static str> {
    Cipher::by_speed().map(Cipher::name).to_vec()
}

/// The addresses that ranks with this choice of interfaces publish: for each the number of its
/// network, the name of its interface, and the address.
#[pyfunction]
pub(crate) fn named_addresses(
    py: Python<'_>,
    interface: String,
) -> PyResult<Vec<(u8, String, String)>> {
    let found = py.detach(|| Interface::Named(interface).named_addresses());
    let found = found.map_err(|why| argument_error(py, why.to_string()))?;
    let found = found.into_iter();
    Ok(found
        .map(|at| (at.network, at.interface, at.ip.to_string()))
        .collect())
}

/// The ports of this machine's RDMA devices: for each its name, a description, and whether it can
/// be used; or the reason why there are none.
#[pyfunction]
pub(crate) fn rdma_ports(py: Python<'_>) -> PyResult<Vec<(String, String, bool)>> {
    let ports = py.detach(weft_runtime::rdma_ports);
    let described =
        |port: &weft_runtime::RdmaPort| (port.name(), port.describe(), port.is_usable());
    match ports {
        Ok(ports) => Ok(ports.iter().map(described).collect()),
        Err(why) => Err(argument_error(py, why)),
    }
}

/// The flight records of this process's endpoints, as JSON in the layout of the files.
#[pyfunction]
pub(crate) fn flight_records(py: Python<'_>) -> Vec<String> {
    py.detach(weft_runtime::flight_records)
}

fn encryption(py: Python<'_>, name: &str) -> PyResult<Encryption> {
    Encryption::parse(name).ok_or_else(|| {
        let text =
            format!("encrypt={name:?} is not allowed: expected 0, 1, aes-gcm or chacha20-poly1305");
        argument_error(py, text)
    })
}

fn resumption(py: Python<'_>, name: &str) -> PyResult<Resumption> {
    Resumption::parse(name).ok_or_else(|| {
        let text = format!("tcp_resume={name:?} is not allowed: expected auto, always or never");
        argument_error(py, text)
    })
}

fn unregistered(py: Python<'_>, name: &str) -> PyResult<Unregistered> {
    match name {
        "pool" => Ok(Unregistered::Copied),
        "pipelined" => Ok(Unregistered::Pipelined),
        _ => {
            let text = format!("registration={name:?} is not allowed: expected pool or pipelined");
            Err(argument_error(py, text))
        }
    }
}

fn choice(py: Python<'_>, name: &str) -> PyResult<TransportChoice> {
    match name {
        "auto" => Ok(TransportChoice::Auto),
        "shm" => Ok(TransportChoice::Shm),
        "rdma" => Ok(TransportChoice::Rdma),
        "tcp" => Ok(TransportChoice::Tcp),
        "loopback" => Ok(TransportChoice::Loopback),
        _ => {
            let text = format!(
                "transport={name:?} is not allowed: expected auto, shm, rdma, tcp or loopback"
            );
            Err(argument_error(py, text))
        }
    }
}
