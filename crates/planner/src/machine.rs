//! A simulated machine from the fields that differ from the default.

use serde_json::{Map, Value};
use weft_simulate::{Host, Machine, NetworkLink};

use crate::PlannerError;

/// The default machine with these numbers of ranks on its hosts, and with these changes.
///
/// # Errors
/// There is no such field, or its value is of the wrong type or invalid.
pub(crate) fn machine(changes: &Value, hosts: &[u32]) -> Result<Machine, PlannerError> {
    let unreadable = |error| PlannerError::Machine(format!("the machine cannot be read: {error}"));
    let mut default = Machine::even(1, 1, Host::default(), NetworkLink::default())
        .map_err(|error| PlannerError::Machine(error.to_string()))?;
    default.hosts = Vec::new();
    let mut value = serde_json::to_value(&default).map_err(unreadable)?;
    merge("machine", &mut value, changes)?;
    let mut machine: Machine = serde_json::from_value(value).map_err(unreadable)?;
    machine.hosts = hosts.to_vec();
    machine
        .check()
        .map_err(|error| PlannerError::Machine(error.to_string()))?;
    Ok(machine)
}

/// Puts `changes` into `value`, field by field.
fn merge(name: &str, value: &mut Value, changes: &Value) -> Result<(), PlannerError> {
    match (value, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (field, change) in changes {
                let field_name = format!("{name}.{field}");
                let known = known(fields);
                let Some(inner) = fields.get_mut(field) else {
                    return Err(PlannerError::MachineField {
                        field: field_name,
                        known,
                    });
                };
                merge(&field_name, inner, change)?;
            }
            Ok(())
        }
        (Value::Object(fields), change) => Err(PlannerError::MachinePart {
            part: name.to_owned(),
            value: change.to_string(),
            known: known(fields),
        }),
        (value, change) => {
            *value = change.clone();
            Ok(())
        }
    }
}

fn known(fields: &Map<String, Value>) -> String {
    fields.keys().cloned().collect::<Vec<_>>().join(", ")
}
