//! Detection of ranks that share memory: each rank tries one other of its machine, and rank 0
//! combines the results.
//!
//! The ranks of a machine form a binomial tree by their order: a rank tries its parent, the rank
//! before it at a distance that is a power of two. So a rank is tried by at most the logarithm of
//! their number, and where ranks are numbered host by host, ranks that try each other are control
//! neighbours, which need the link anyway. Sharing memory counts as transitive along the tree.
//! Where a rank cannot reach its parent (containers of one machine), it tries the others.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use weft_call::Error;
use weft_call::remedy;
use weft_transport::LinkError;

use crate::endpoint::EndpointAddress;

/// The most pairs for which all ranks are sent the reason that they share no memory.
const UNSHARED_MAX: usize = 16;
/// The longest reason, in bytes.
const REASON_MAX: usize = 400;

/// A rank's result on its machine.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct HostProbe {
    /// A lower rank with which it shares memory; its own rank without one.
    pub(super) neighbour: u32,
    /// The reason that it shares none with its parent.
    pub(super) refused: Option<Refused>,
    /// Whether its user requires that ranks of one machine share memory.
    pub(super) required: bool,
}

/// The reason that a link by shared memory could not be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Refused {
    why: String,
    apart: bool,
}

/// Two ranks of one machine that share no memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unshared {
    /// The rank that tried.
    pub rank: u32,
    /// The other one.
    pub other: u32,
    /// The reason of the failure.
    pub why: String,
    /// Whether this is expected: they run in containers or network namespaces of their own, where
    /// neither finds the other's socket.
    pub apart: bool,
}

/// Rank 0's answer.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct HostPlacement {
    /// The host of each rank: see [`Member::host`](super::Member::host).
    pub(super) hosts: Vec<u32>,
    /// Pairs that share no memory, the first ones if there are many.
    pub(super) unshared: Vec<Unshared>,
}

impl Refused {
    pub(super) fn by(error: &LinkError) -> Self {
        let mut why = match error {
            LinkError::Io(error) => format!("{error}{}", remedy(error)),
            error => error.to_string(),
        };
        let end = (0..=REASON_MAX.min(why.len())).rfind(|end| why.is_char_boundary(*end));
        why.truncate(end.unwrap_or_default());
        Refused {
            why,
            apart: matches!(error, LinkError::Absent(_)),
        }
    }
}

impl HostPlacement {
    /// The answer, from each rank's result.
    ///
    /// # Errors
    ///
    /// A user requires that ranks of one machine share memory, and some do not.
    pub(super) fn of(found: &[HostProbe], addresses: &[EndpointAddress]) -> Result<Self, Error> {
        let parents = parents(addresses);
        let refused = (0..).zip(found).zip(&parents);
        let unshared = refused.filter_map(|((rank, found), parent)| {
            let Refused { why, apart } = found.refused.clone()?;
            Some(Unshared {
                rank,
                other: *parent,
                why,
                apart,
            })
        });
        let unshared: Vec<_> = unshared.take(UNSHARED_MAX).collect();
        let demanding = found.iter().position(|found| found.required);
        if let (
            Some(demanding),
            Some(Unshared {
                rank, other, why, ..
            }),
        ) = (demanding, unshared.first())
        {
            return Err(Error::Config(format!(
                "rank {rank} shares no memory with rank {other}, though both run on {}: {why}. Rank {demanding} was \
                 given the option require_shared_memory, without which such ranks use TCP",
                addresses[*rank as usize].host_name
            )));
        }
        let neighbours: Vec<u32> = found.iter().map(|found| found.neighbour).collect();
        Ok(HostPlacement {
            hosts: settled(&neighbours, &parents),
            unshared,
        })
    }
}

/// The parent of each rank; the first rank of a machine has itself.
pub(super) fn parents(addresses: &[EndpointAddress]) -> Vec<u32> {
    let mut machines: HashMap<&str, Vec<u32>> = HashMap::new();
    (0..)
        .zip(addresses)
        .map(|(rank, address)| {
            let before = machines.entry(&address.boot_id).or_default();
            before.push(rank);
            let place = before.len() - 1;
            before[place & place.wrapping_sub(1)]
        })
        .collect()
}

/// The ranks that a rank tries, in this order.
pub(super) fn candidates(addresses: &[EndpointAddress], rank: u32) -> Vec<u32> {
    let boot_id = |rank: u32| &addresses[rank as usize].boot_id;
    let parent = parents(&addresses[..=rank as usize])[rank as usize];
    let others = (0..rank).filter(|other| *other != parent && boot_id(*other) == boot_id(rank));
    let parent = Some(parent).filter(|parent| *parent != rank);
    parent.into_iter().chain(others).collect()
}

/// The host of each rank, from each rank's result: see [`Member::host`](super::Member::host).
fn settled(found: &[u32], parents: &[u32]) -> Vec<u32> {
    let mut hosts: Vec<u32> = Vec::with_capacity(found.len());
    for (rank, (found, parent)) in (0..).zip(found.iter().zip(parents)) {
        let host = match hosts.get(*found as usize) {
            Some(host) if found == parent => *host,
            // Where sharing is not transitive (the found rank has found another one), a rank counts
            // as a host of its own.
            Some(host) if host == found => *host,
            _ => rank,
        };
        hosts.push(host);
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_transport::EndpointId;

    fn on(machines: &[&str]) -> Vec<EndpointAddress> {
        let on = |boot_id: &&str| EndpointAddress {
            id: EndpointId(0),
            host_name: String::new(),
            pid: 0,
            boot_id: (*boot_id).into(),
            transports: vec![],
        };
        machines.iter().map(on).collect()
    }

    #[test]
    fn ranks_of_a_machine_form_a_tree() {
        assert_eq!(parents(&on(&["a"; 9])), [0, 0, 0, 2, 0, 4, 4, 6, 0]);
        assert_eq!(parents(&on(&["a", "b", "a", "b", "a"])), [0, 1, 0, 1, 0]);
        let parents = parents(&on(&["a"; 256]));
        let children = |of: u32| parents.iter().filter(|parent| **parent == of).count();
        assert_eq!((0..256).map(children).max(), Some(9)); // Itself, and 8.
    }

    #[test]
    fn rank_without_parent_tries_the_others() {
        let machines = on(&["a", "a", "b", "a", "a"]);
        assert_eq!(candidates(&machines, 4), [3, 0, 1]);
        assert!(candidates(&machines, 2).is_empty());
    }

    #[test]
    fn hosts_follow_from_the_results() {
        let parents = parents(&on(&["a"; 5]));
        assert_eq!(parents, [0, 0, 0, 2, 0]);
        assert_eq!(settled(&[0, 0, 0, 2, 0], &parents), [0; 5]);
        // Two containers: 0 and 1, and 2, 3 and 4.
        assert_eq!(settled(&[0, 0, 2, 2, 2], &parents), [0, 0, 2, 2, 2]);
        // Rank 3 has found a rank of another host, and not its parent.
        assert_eq!(settled(&[0, 0, 2, 1, 0], &parents), [0, 0, 2, 3, 0]);
        // Invalid results.
        assert_eq!(settled(&[0, 7, 2, 4, u32::MAX], &parents), [0, 1, 2, 3, 4]);
    }
}
