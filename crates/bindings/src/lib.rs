//! The Python module `weft._weft`: argument conversion, release of the interpreter lock, and error
//! mapping, without further logic.

use pyo3::prelude::*;

mod bench;
mod call;
mod checksum;
mod counters;
mod descriptors;
mod dlpack;
mod domains;
mod endpoint;
mod error;
mod failure;
mod group;
mod interrupt;
mod options;
mod plain;
mod planner;
mod registration;
mod request;
mod selection;
mod steps;
mod store;
mod symmetric;
mod update;
mod word;
mod work;

/// The native layer of weft.
#[pymodule]
fn _weft(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(call::element_types, module)?)?;
    module.add_function(wrap_pyfunction!(call::operations, module)?)?;
    module.add_function(wrap_pyfunction!(call::wire_formats, module)?)?;
    module.add_function(wrap_pyfunction!(checksum::checksum, module)?)?;
    module.add_function(wrap_pyfunction!(endpoint::ciphers, module)?)?;
    module.add_function(wrap_pyfunction!(endpoint::named_addresses, module)?)?;
    module.add_function(wrap_pyfunction!(endpoint::rdma_ports, module)?)?;
    module.add_function(wrap_pyfunction!(registration::try_device_memory, module)?)?;
    module.add_class::<bench::PyControlBlock>()?;
    module.add_class::<bench::Timed>()?;
    module.add_class::<counters::PyCounters>()?;
    module.add_class::<descriptors::PyAboveStandardStreams>()?;
    module.add_class::<dlpack::DlpackTensor>()?;
    module.add_class::<selection::PyExplanation>()?;
    module.add_class::<selection::PyUserSchedule>()?;
    module.add_class::<domains::HostDomains>()?;
    module.add_function(wrap_pyfunction!(domains::domains, module)?)?;
    module.add_class::<endpoint::PyEndpoint>()?;
    module.add_function(wrap_pyfunction!(endpoint::flight_records, module)?)?;
    module.add_class::<failure::Failure>()?;
    module.add_class::<group::PyGroup>()?;
    module.add_class::<interrupt::Cancellation>()?;
    module.add_class::<registration::PyRegistration>()?;
    module.add_class::<request::PyOperation>()?;
    module.add_class::<request::Request>()?;
    module.add_function(wrap_pyfunction!(store::fail_meeting, module)?)?;
    module.add_class::<store::PyMemoryStore>()?;
    module.add_class::<store::PyTcpStore>()?;
    module.add_class::<steps::PyHostPart>()?;
    module.add_class::<steps::PySteps>()?;
    module.add_class::<symmetric::PySymmetric>()?;
    module.add_class::<symmetric::SymmetricPart>()?;
    module.add_class::<update::PyAdamUpdate>()?;
    module.add_function(wrap_pyfunction!(update::sgd_update, module)?)?;
    module.add_class::<work::PyWork>()?;
    module.add_function(wrap_pyfunction!(word::wait_for_word, module)?)?;
    planner::register(module)
}
