//! For which group and call something is asked: what `plan` and `simulate` have in common.

use serde::Deserialize;
use weft_algorithms::{Memory, Reach, Request, Requirements, Selection, Sizes, Topology};
use weft_schedule::{Collective, Mapped, Rank};

use crate::placement::{Domains, Hosts};

/// A call of a group, as JSON says it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    collective: String,
    ranks: u32,
    root: Option<Rank>,
    /// All ranks are on one host, if it is left out.
    hosts: Option<Hosts>,
    /// Hosts are not divided, if it is left out.
    domains: Option<Domains>,
    memory: MemoryName,
    sizes: SizesName,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum MemoryName {
    Ordinary,
    Symmetric,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SizesName {
    Equal,
    PerRank,
}

/// A question that makes sense.
pub(crate) struct Setting {
    pub(crate) collective: Collective,
    pub(crate) ranks: u32,
    /// The host of each rank.
    pub(crate) hosts: Vec<u32>,
    /// The number of ranks on each host.
    pub(crate) ranks_of_hosts: Vec<u32>,
    pub(crate) memory: Memory,
    sizes: Sizes,
    pub(crate) topology: Topology,
}

impl Question {
    /// What is asked, for at most `ranks_max` ranks.
    ///
    /// # Errors
    /// What makes no sense, with what is allowed.
    pub(crate) fn setting(&self, ranks_max: u32) -> Result<Setting, String> {
        let ranks = self.ranks;
        if ranks == 0 || ranks > ranks_max {
            return Err(format!("ranks={ranks}: from 1 to {ranks_max}"));
        }
        let placement = self.hosts.as_ref().unwrap_or(&Hosts::Number(1));
        let hosts = placement.of_ranks(ranks)?;
        let ranks_of_hosts = placement.sizes(ranks)?;
        let memory = match self.memory {
            MemoryName::Ordinary => Memory::Ordinary,
            MemoryName::Symmetric if ranks_of_hosts.len() > 1 => {
                return Err(format!(
                    "memory=\"symmetric\" on {} hosts: symmetric memory is shared by the ranks of one host",
                    ranks_of_hosts.len()
                ));
            }
            MemoryName::Symmetric => Memory::Symmetric,
        };
        let sizes = match self.sizes {
            SizesName::Equal => Sizes::Equal,
            SizesName::PerRank => Sizes::PerRank,
        };
        Ok(Setting {
            collective: collective(&self.collective, self.root, ranks)?,
            ranks,
            topology: match &self.domains {
                None => Topology::hosts(&hosts),
                Some(domains) => Topology::domains(&[domains.of_ranks(&ranks_of_hosts)?], &hosts)?,
            },
            hosts,
            ranks_of_hosts,
            memory,
            sizes,
        })
    }
}

impl Setting {
    /// What an algorithm is asked for.
    pub(crate) fn request(&self, rank: Rank) -> Request<'_> {
        Request {
            collective: self.collective,
            ranks: self.ranks,
            rank,
            memory: self.memory,
            sizes: self.sizes,
            topology: &self.topology,
            parts: &[],
        }
    }

    /// Whether blocks have a size per rank.
    pub(crate) fn per_rank_sizes(&self) -> bool {
        self.sizes == Sizes::PerRank
    }

    /// Whether the caller's buffers are mapped by all.
    pub(crate) fn mapped_user_memory(&self) -> bool {
        self.memory == Memory::Symmetric
    }

    /// Why a selection cannot be taken, if it cannot.
    pub(crate) fn refusal(&self, selection: &Selection) -> Option<String> {
        let requires = selection.requires_in(&self.topology);
        let hosts = self.ranks_of_hosts.len();
        if requires.mapped == Reach::All && hosts > 1 {
            Some(format!(
                "needs ranks that all share memory, but there are {hosts} hosts"
            ))
        } else if requires.symmetric && self.memory == Memory::Ordinary {
            Some("needs symmetric memory".to_owned())
        } else if !requires.per_rank_sizes && self.sizes == Sizes::PerRank {
            Some("knows blocks of equal size only".to_owned())
        } else {
            None
        }
    }

    /// What a selection may assume that the ranks of a host map of each other.
    pub(crate) fn mapped(&self, requires: Requirements) -> Mapped {
        match (self.memory, requires.mapped) {
            (Memory::Symmetric, _) => Mapped::All,
            (Memory::Ordinary, Reach::None) => Mapped::None,
            (Memory::Ordinary, Reach::Unit | Reach::All) => Mapped::Scratch,
        }
    }
}

/// The collective of this name and root.
pub(crate) fn collective(name: &str, root: Option<Rank>, ranks: u32) -> Result<Collective, String> {
    let found = Collective::named(name, root.unwrap_or(0)).ok_or_else(|| {
        format!(
            "collective={name:?}: one of all-reduce, reduce, broadcast, all-gather, reduce-scatter, all-to-all, \
             gather, scatter, barrier"
        )
    })?;
    match (found.root(), root) {
        (None, Some(root)) => Err(format!("root={root}: {name} has none, so leave it out")),
        (Some(root), _) if root >= ranks => Err(format!("root={root}: from 0 to {}", ranks - 1)),
        _ => Ok(found),
    }
}
