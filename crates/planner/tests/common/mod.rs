//! Helpers shared by the planner's tests.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use weft_planner::PlannerError;
use weft_simulate::{Host, Machine, NetworkLink};

/// Asks a question in JSON, as the tools do. An error is its message.
pub(crate) fn ask<Q: DeserializeOwned, A>(
    question: impl Fn(&Q) -> Result<A, PlannerError>,
    request: Value,
) -> Result<A, String> {
    let request = serde_json::from_value(request).map_err(|error| error.to_string())?;
    question(&request).map_err(|error| error.to_string())
}

/// A call on ordinary memory with blocks of equal size, all ranks on one host, with these changes.
pub(crate) fn call(collective: &str, ranks: u32, changes: Value) -> Value {
    let mut call = json!({
        "collective": collective, "ranks": ranks, "root": null, "hosts": null, "domains": null,
        "memory": "ordinary", "sizes": "equal",
    });
    for (field, value) in changes.as_object().unwrap() {
        call[field] = value.clone();
    }
    call
}

/// The default machine with this many ranks on each host.
pub(crate) fn machine(hosts: &[u32]) -> Value {
    let mut machine = Machine::even(1, 1, Host::default(), NetworkLink::default()).unwrap();
    machine.hosts = hosts.to_vec();
    serde_json::to_value(machine).unwrap()
}
