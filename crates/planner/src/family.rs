//! The algorithms that a group can use for a collective.

use serde::Deserialize;
use weft_algorithms::{Conditions, Reach, Topology};
use weft_schedule::Collective;

use crate::PlannerError;

/// Asks which algorithms there are for a group and a collective.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FamilyRequest {
    /// The name of the collective.
    pub collective: String,
    /// The number of ranks on each host.
    pub ranks_per_host: Vec<u32>,
    /// Levels of domains inside hosts, innermost first: for each level the domain of each rank.
    #[serde(default)]
    pub domains: Vec<Vec<u32>>,
}

/// The names of all algorithms, with their parts, that such a group can use on ordinary memory.
///
/// # Errors
/// There is no such collective, or the domains are none of these hosts.
pub fn family(request: &FamilyRequest) -> Result<Vec<String>, PlannerError> {
    if Collective::named(&request.collective, 0).is_none() {
        return Err(PlannerError::Collective(request.collective.clone()));
    }
    let hosts = &request.ranks_per_host;
    let host_of_rank = (hosts.iter().zip(0..))
        .flat_map(|(ranks, host)| std::iter::repeat_n(host, *ranks as usize));
    let topology = Topology::domains(&request.domains, &host_of_rank.collect::<Vec<u32>>())
        .map_err(PlannerError::Domains)?;
    let conditions = Conditions::ordinary(Reach::across(hosts.len()));
    Ok(weft_algorithms::family(&request.collective, &topology)
        .iter()
        .filter(|selection| selection.refusal(&topology, conditions).is_none())
        .map(|selection| selection.name())
        .collect())
}
