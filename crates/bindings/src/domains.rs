//! The function `domains`: the domains of this host, and those that contain this process.

use pyo3::prelude::*;
use weft_runtime::{Domain, HostParts};

/// The domains that the operating system reports.
#[pyclass(frozen, get_all, module = "weft._weft")]
pub(crate) struct HostDomains {
    /// The cores of each last-level cache.
    caches: Vec<Vec<u32>>,
    /// The cores of each NUMA node.
    nodes: Vec<Vec<u32>>,
    /// The cache of this process, by its lowest core; None if it may run under several.
    cache: Option<u32>,
    /// The NUMA node of this process; None if it may run in several.
    node: Option<u32>,
}

/// Determines the domains.
#[pyfunction]
pub(crate) fn domains(py: Python<'_>) -> HostDomains {
    let (parts, domain) = py.detach(|| (HostParts::of_this_host(), Domain::of_this_process()));
    HostDomains {
        caches: parts.caches,
        nodes: parts.nodes,
        cache: domain.cache,
        node: domain.node,
    }
}
