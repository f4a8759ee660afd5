//! A simulated machine, said by what is not as by default.

use serde_json::{Map, Value};
use weft_simulate::{Host, Link, Machine};

/// The default machine with these numbers of ranks on its hosts, and with these changes.
///
/// # Errors
/// There is no such field, or its value is of another kind; says what there is.
pub(crate) fn machine(changes: &Value, hosts: &[u32]) -> Result<Machine, String> {
    let mut default =
        Machine::even(1, 1, Host::default(), Link::default()).map_err(|error| error.to_string())?;
    default.hosts = Vec::new();
    let mut value = serde_json::to_value(&default).map_err(|error| error.to_string())?;
    merge("machine", &mut value, changes)?;
    let mut machine: Machine = serde_json::from_value(value)
        .map_err(|error| format!("the machine cannot be read: {error}"))?;
    machine.hosts = hosts.to_vec();
    Ok(machine)
}

/// Puts `changes` into `value`, field by field.
fn merge(name: &str, value: &mut Value, changes: &Value) -> Result<(), String> {
    match (value, changes) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (field, change) in changes {
                let name = format!("{name}.{field}");
                let known = known(fields);
                let Some(inner) = fields.get_mut(field) else {
                    return Err(format!("there is no {name}; there are: {known}"));
                };
                merge(&name, inner, change)?;
            }
            Ok(())
        }
        (Value::Object(fields), change) => Err(format!(
            "{name}={change}: expected an object with some of {}",
            known(fields)
        )),
        (value, change) => {
            *value = change.clone();
            Ok(())
        }
    }
}

fn known(fields: &Map<String, Value>) -> String {
    fields.keys().cloned().collect::<Vec<_>>().join(", ")
}
