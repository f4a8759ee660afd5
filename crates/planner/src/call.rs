//! The call and the group of a planner request, and their checks.

use serde::Deserialize;
use weft_algorithms::{
    Conditions, MemoryClass, Reach, Refusal, Requirements, ScheduleRequest, Selection, Sizes,
    Topology, on_wire,
};
use weft_schedule::{Collective, Mapped, Rank, Schedule, WireFormat};

use crate::PlannerError;
use crate::placement::{Domains, Hosts};

/// A call of a group that need not exist.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallRequest {
    /// The name of the collective.
    pub collective: String,
    /// The number of ranks.
    pub ranks: u32,
    /// The root of a rooted collective; rank 0, if it is left out.
    pub root: Option<Rank>,
    /// All ranks are on one host, if it is left out.
    pub hosts: Option<Hosts>,
    /// Hosts are not divided, if it is left out.
    pub domains: Option<Domains>,
    /// The memory of the caller's buffers.
    #[serde(with = "MemoryName")]
    pub memory: MemoryClass,
    /// Whether blocks are of equal size.
    #[serde(with = "SizesName")]
    pub sizes: Sizes,
    /// The name of the format in which elements travel between hosts; as they are, if it is left
    /// out.
    #[serde(default)]
    pub wire: Option<String>,
}

/// [`MemoryClass`] as requests write it.
#[derive(Deserialize)]
#[serde(remote = "MemoryClass", rename_all = "kebab-case")]
enum MemoryName {
    Ordinary,
    Symmetric,
}

/// [`Sizes`] as requests write them.
#[derive(Deserialize)]
#[serde(remote = "Sizes", rename_all = "kebab-case")]
enum SizesName {
    Equal,
    PerRank,
}

/// A call that makes sense.
pub(crate) struct CheckedCall {
    pub(crate) collective: Collective,
    pub(crate) ranks: u32,
    /// The host of each rank.
    pub(crate) hosts: Vec<u32>,
    /// The number of ranks on each host.
    pub(crate) ranks_of_hosts: Vec<u32>,
    pub(crate) memory: MemoryClass,
    sizes: Sizes,
    pub(crate) wire: WireFormat,
    pub(crate) topology: Topology,
}

impl CallRequest {
    /// The call, for at most `ranks_max` ranks.
    ///
    /// # Errors
    /// A value is invalid; the error names the allowed ones.
    pub(crate) fn checked(&self, ranks_max: u32) -> Result<CheckedCall, PlannerError> {
        let ranks = self.ranks;
        if ranks == 0 || ranks > ranks_max {
            return Err(PlannerError::Ranks { ranks, ranks_max });
        }
        let placement = self.hosts.as_ref().unwrap_or(&Hosts::Number(1));
        let hosts = placement.of_ranks(ranks)?;
        let ranks_of_hosts = placement.sizes(ranks)?;
        if self.memory == MemoryClass::Symmetric && ranks_of_hosts.len() > 1 {
            let hosts = ranks_of_hosts.len();
            return Err(PlannerError::SymmetricMemory { hosts });
        }
        let topology = match &self.domains {
            None => Topology::hosts(&hosts),
            Some(domains) => Topology::domains(&[domains.of_ranks(&ranks_of_hosts)?], &hosts)
                .map_err(PlannerError::Domains)?,
        };
        let collective = collective(&self.collective, self.root, ranks)?;
        Ok(CheckedCall {
            wire: self.wire(collective, ranks_of_hosts.len())?,
            collective,
            ranks,
            topology,
            hosts,
            ranks_of_hosts,
            memory: self.memory,
            sizes: self.sizes,
        })
    }

    /// The format in which elements travel.
    fn wire(&self, collective: Collective, hosts: usize) -> Result<WireFormat, PlannerError> {
        let name = self.wire.as_deref().unwrap_or(WireFormat::Full.name());
        let wire = WireFormat::named(name).map_err(PlannerError::Wire)?;
        let one_host = wire != WireFormat::Full && hosts == 1;
        let refused = wire.refusal(collective).or_else(|| {
            one_host
                .then(|| format!("wire={name:?} is for data between hosts: there is only one host"))
        });
        refused.map_or(Ok(wire), |why| Err(PlannerError::Wire(why)))
    }
}

impl CheckedCall {
    /// The programs of all ranks.
    pub(crate) fn build(&self, selection: &Selection) -> Vec<Schedule> {
        let request = |rank| ScheduleRequest {
            collective: self.collective,
            ranks: self.ranks,
            rank,
            memory: self.memory,
            sizes: self.sizes,
            topology: &self.topology,
            parts: &[],
        };
        (0..self.ranks)
            .map(|rank| on_wire(selection.build(&request(rank)), self.wire))
            .collect()
    }

    /// Why ranks that map this of each other's memory cannot use a selection for the call, if so.
    pub(crate) fn refusal(&self, selection: &Selection, mapped: Reach) -> Option<Refusal> {
        let conditions = Conditions {
            mapped,
            memory: self.memory,
            sizes: self.sizes,
            reproducible: false,
        };
        selection.refusal(&self.topology, conditions)
    }

    /// A refusal in words, with the number of hosts where that is the reason.
    pub(crate) fn explained(&self, refusal: Refusal) -> String {
        match (refusal, self.ranks_of_hosts.len()) {
            (Refusal::OneHost, hosts @ 2..) => {
                format!("needs ranks that all share memory, but there are {hosts} hosts")
            }
            _ => refusal.to_string(),
        }
    }

    /// The memory of each other that ranks of a host map, as the verifier may assume.
    pub(crate) fn verified_mapping(&self, requires: Requirements) -> Mapped {
        match (self.memory, requires.mapped) {
            (MemoryClass::Symmetric, _) => Mapped::All,
            (MemoryClass::Ordinary, Reach::None) => Mapped::None,
            (MemoryClass::Ordinary, Reach::Unit | Reach::All) => Mapped::Scratch,
        }
    }
}

/// The collective of this name and root; rank 0 is the root, if it is left out.
pub(crate) fn collective(
    name: &str,
    root: Option<Rank>,
    ranks: u32,
) -> Result<Collective, PlannerError> {
    let found = Collective::named(name, root.unwrap_or(0));
    let found = found.ok_or_else(|| PlannerError::Collective(name.to_owned()))?;
    match (found.root(), root) {
        (None, Some(root)) => Err(PlannerError::NoRoot {
            collective: found.name(),
            root,
        }),
        (Some(rank), _) if rank >= ranks => Err(PlannerError::Rank {
            field: "root",
            rank,
            ranks,
        }),
        _ => Ok(found),
    }
}
