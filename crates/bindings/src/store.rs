//! Stores: the runtime's stores as Python classes, and adapters for stores written in Python.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weft_runtime::{
    Error, PrefixStore, Retry, Secret, Store, StoreAccess, TcpStoreServer, TlsCredentials, TlsFiles,
};

use crate::error::checked;
use crate::interrupt::{Cancellation, duration, interruptible};

/// The longest `get` of a store written in Python before the runtime checks whether to give up.
const SLICE: Duration = Duration::from_millis(40);

/// The most keys in one request to a store written in Python.
const KEYS_AT_ONCE: usize = 1024;

/// A store within one process.
#[pyclass(name = "MemoryStore", frozen, module = "weft._weft")]
pub(crate) struct PyMemoryStore(Arc<weft_runtime::MemoryStore>);

#[pymethods]
impl PyMemoryStore {
    #[new]
    fn new() -> Self {
        Self(Arc::new(weft_runtime::MemoryStore::new()))
    }

    /// Sets a key.
    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        set(py, &*self.0, key, value)
    }

    /// The value of a key; None if it is not set within `timeout` seconds.
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        timeout: f64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        get(py, &*self.0, key, timeout)
    }
}

/// A store that one process serves to others over TCP.
#[pyclass(name = "TcpStore", frozen, module = "weft._weft")]
pub(crate) struct PyTcpStore {
    client: Arc<weft_runtime::TcpStore>,
    server: Option<TcpStoreServer>,
}

#[pymethods]
impl PyTcpStore {
    #[new]
    #[pyo3(signature = (host, port, serve, timeout, cancel, secret=None, insecure=false, tls=None, on_delay=None, tls_name=None))]
    #[expect(clippy::too_many_arguments, reason = "they are arguments in Python")]
    fn new(
        py: Python<'_>,
        host: &str,
        port: u16,
        serve: bool,
        timeout: f64,
        cancel: &Cancellation,
        secret: Option<&[u8]>,
        insecure: bool,
        tls: Option<[PathBuf; 3]>,
        on_delay: Option<Py<PyAny>>,
        tls_name: Option<&str>,
    ) -> PyResult<Self> {
        let deadline = Instant::now() + duration(py, timeout)?;
        let access = checked(py, access(secret, tls, insecure, tls_name))?;
        let address = join(host, port);
        let (client, server) = interruptible(py, cancel, |flag| {
            let retry = Retry {
                deadline,
                cancel: flag,
                on_delay: &|why| report(on_delay.as_ref(), why),
            };
            let server = serve.then(|| TcpStoreServer::start_with_retry(&address, &access, &retry));
            let server = server.transpose()?;
            let client = match &server {
                Some(server) => {
                    weft_runtime::TcpStore::connect_own(server, &address, access, deadline, flag)
                }
                None => weft_runtime::TcpStore::connect_with_retry(&address, access, &retry),
            }?;
            Ok((Arc::new(client), server))
        })?;
        Ok(Self { client, server })
    }

    /// Whether this process serves it at all addresses, because the requested one is not one of its
    /// host.
    #[getter]
    fn listens_everywhere(&self) -> bool {
        (self.server.as_ref()).is_some_and(TcpStoreServer::listens_everywhere)
    }

    /// The status of the job whose ranks meet here, as JSON.
    fn status(&self, py: Python<'_>, timeout: f64, cancel: &Cancellation) -> PyResult<String> {
        let deadline = Instant::now() + duration(py, timeout)?;
        interruptible(py, cancel, |flag| self.client.status(deadline, flag))
    }

    /// Sets a key.
    fn set(&self, py: Python<'_>, key: &str, value: &[u8]) -> PyResult<()> {
        set(py, &*self.client, key, value)
    }

    /// The value of a key; None if it is not set within `timeout` seconds.
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        timeout: f64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        get(py, &*self.client, key, timeout)
    }
}

fn access(
    secret: Option<&[u8]>,
    tls: Option<[PathBuf; 3]>,
    insecure: bool,
    tls_name: Option<&str>,
) -> Result<StoreAccess, Error> {
    Ok(match (secret, tls) {
        (Some(_), Some(_)) => {
            return Err(Error::Config(
                "a secret and certificates were given: expected only one of them".into(),
            ));
        }
        (Some(secret), None) => StoreAccess::Secret(Secret::new(secret)?),
        (None, Some([cert, key, ca])) => {
            let credentials = TlsCredentials::load(&TlsFiles { cert, key, ca })?;
            StoreAccess::Tls(credentials.of_server_named(tls_name))
        }
        (None, None) if insecure => StoreAccess::Anybody,
        (None, None) => StoreAccess::ThisHost,
    })
}

fn report(on_delay: Option<&Py<PyAny>>, why: &str) {
    Python::attach(|py| {
        let Some(Err(raised)) = on_delay.map(|on_delay| on_delay.call1(py, (why,))) else {
            return;
        };
        raised.write_unraisable(py, None);
    });
}

fn join(host: &str, port: u16) -> String {
    match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

fn set(py: Python<'_>, store: &dyn Store, key: &str, value: &[u8]) -> PyResult<()> {
    let result = py.detach(|| store.set(key, value));
    checked(py, result)
}

fn get<'py>(
    py: Python<'py>,
    store: &dyn Store,
    key: &str,
    timeout: f64,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let deadline = Instant::now() + duration(py, timeout)?;
    let result = py.detach(|| store.get(key, deadline, &AtomicBool::new(false)));
    match result {
        Err(Error::Timeout { .. }) => Ok(None),
        other => checked(py, other).map(|value| Some(PyBytes::new(py, &value))),
    }
}

/// Ends a meeting that this rank cannot join, and reports the reason to the other ranks
/// immediately.
#[pyfunction]
pub(crate) fn fail_meeting(
    py: Python<'_>,
    store: &Bound<'_, PyAny>,
    prefix: &str,
    rank: u32,
    size: u32,
    reason: String,
    cancel: &Cancellation,
) -> PyResult<()> {
    let store = of_python(store);
    interruptible(py, cancel, |flag| {
        let store = PrefixStore::new(prefix, &*store);
        weft_runtime::fail_meeting(&store, rank, size, &Error::Config(reason), flag);
        Ok(())
    })
}

/// The store of a Python object: one of the above, or any object with `set` and `get`.
pub(crate) fn of_python(object: &Bound<'_, PyAny>) -> Arc<dyn Store> {
    if let Ok(store) = object.cast::<PyMemoryStore>() {
        return store.get().0.clone();
    }
    if let Ok(store) = object.cast::<PyTcpStore>() {
        return store.get().client.clone();
    }
    Arc::new(PythonStore(object.clone().unbind()))
}

/// A store written in Python: `set(key, value)` and `get(key, timeout) -> bytes | None`.
struct PythonStore(Py<PyAny>);

impl Store for PythonStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        Python::attach(|py| {
            let value = PyBytes::new(py, value);
            self.0.call_method1(py, "set", (key, value)).map(drop)
        })
        .map_err(|raised| failed("set", key, &raised))
    }

    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error> {
        poll("get", key, deadline, cancel, |time| {
            self.get_within(key, time)
        })
    }

    fn multi_get(
        &self,
        keys: &[String],
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let has_it = Python::attach(|py| self.0.bind(py).hasattr("multi_get").unwrap_or(false));
        if !has_it {
            let each = keys.iter().map(|key| self.get(key, deadline, cancel));
            return each.collect();
        }
        let mut values = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_AT_ONCE) {
            let range = format!("{} to {}", some[0], some[some.len() - 1]);
            let found = poll("multi_get", &range, deadline, cancel, |time| {
                self.multi_get_within(some, time)
            })?;
            if found.len() != some.len() {
                return Err(Error::Config(format!(
                    "the store's multi_get returned {} values for {} keys",
                    found.len(),
                    some.len()
                )));
            }
            values.extend(found);
        }
        Ok(values)
    }
}

impl PythonStore {
    fn get_within(&self, key: &str, time: Duration) -> PyResult<Option<Vec<u8>>> {
        Python::attach(|py| {
            let value = self.0.call_method1(py, "get", (key, time.as_secs_f64()))?;
            value.extract(py)
        })
    }

    fn multi_get_within(&self, keys: &[String], time: Duration) -> PyResult<Option<Vec<Vec<u8>>>> {
        Python::attach(|py| {
            let arguments = (keys.to_vec(), time.as_secs_f64());
            let values = self.0.call_method1(py, "multi_get", arguments)?;
            values.extract(py)
        })
    }
}

/// Calls a store written in Python repeatedly, until it returns a value or the call is cancelled.
fn poll<V>(
    method: &str,
    key: &str,
    deadline: Instant,
    cancel: &AtomicBool,
    within: impl Fn(Duration) -> PyResult<Option<V>>,
) -> Result<V, Error> {
    let started = Instant::now();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let value = within(left.min(SLICE));
        if let Some(value) = value.map_err(|raised| failed(method, key, &raised))? {
            return Ok(value);
        }
        if cancel.load(Ordering::Relaxed) {
            return Err(Error::Aborted {
                reason: "cancelled".into(),
            });
        }
        if left.is_zero() {
            return Err(Error::Timeout {
                operation: "rendezvous".into(),
                waiting_for: format!("the store's key {key:?} to be set"),
                after: started.elapsed(),
            });
        }
    }
}

fn failed(method: &str, key: &str, raised: &PyErr) -> Error {
    Error::Config(format!("the store's {method}({key:?}) failed: {raised}"))
}
