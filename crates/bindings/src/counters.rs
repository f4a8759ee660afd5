//! The class `Counters`, and rows of a group's traffic.

use std::sync::Arc;

use pyo3::prelude::*;
use weft_runtime::LinkTraffic;

/// (endpoint, host, transport, bytes sent, bytes received, packets sent again, connections made
/// anew).
pub(crate) type TrafficRow = (u128, String, String, u64, u64, u64, u64);

/// The counters of a group, which stay valid after it is closed.
#[pyclass(name = "Counters", frozen, module = "weft._weft")]
pub(crate) struct PyCounters {
    inner: Arc<weft_runtime::Counters>,
}

impl PyCounters {
    pub(crate) fn new(inner: Arc<weft_runtime::Counters>) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl PyCounters {
    /// For each kind of operation: (name, calls that have ended, bytes, seconds).
    fn totals(&self) -> Vec<(&'static str, u64, u64, f64)> {
        let totals = self.inner.totals();
        totals
            .map(|t| (t.operation, t.calls, t.bytes, t.nanoseconds as f64 * 1e-9))
            .collect()
    }

    /// The number of operations that have not ended.
    #[getter]
    fn in_flight(&self) -> u64 {
        self.inner.in_flight()
    }
}

pub(crate) fn traffic_row(link: LinkTraffic) -> TrafficRow {
    let traffic = link.traffic;
    (
        link.peer.0,
        link.host,
        link.kind.to_string(),
        traffic.sent_bytes,
        traffic.received_bytes,
        traffic.retransmissions,
        traffic.renewals,
    )
}
