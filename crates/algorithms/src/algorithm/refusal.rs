//! Conditions under which an algorithm can carry out a call in a group, and the reasons for a
//! refusal.

use std::fmt;

use super::definition::{Reach, Requirements};
use crate::{MemoryClass, Sizes};

/// The properties of a group and a call on which the use of algorithms depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conditions {
    /// The ranks whose temporary memory every rank maps.
    pub mapped: Reach,
    /// The memory of the caller's buffers.
    pub memory: MemoryClass,
    /// Whether blocks are of equal size.
    pub sizes: Sizes,
    /// Whether every element's contributions must be combined by one reduction in the order of
    /// ranks: asked of collectives that reduce.
    pub reproducible: bool,
}

impl Conditions {
    /// Those of a call on ordinary memory, with blocks of equal size, combined in any order.
    pub fn ordinary(mapped: Reach) -> Self {
        Conditions {
            mapped,
            memory: MemoryClass::Ordinary,
            sizes: Sizes::Equal,
            reproducible: false,
        }
    }
}

/// Why an algorithm cannot carry out a call.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Ranks reach into each other's input and output.
    SymmetricMemory,
    /// Ranks read the temporary memory of all others.
    OneHost,
    /// Ranks read the temporary memory of those in their innermost unit.
    MappedUnits,
    /// Blocks are of equal size.
    EqualSizes,
    /// Contributions are combined in another order than that of ranks, or by several reductions.
    RankOrder,
    /// A schedule defines its own encodings.
    WireFormat,
    /// Tiles of a single element do not fit: see [`weft_schedule::TileLimits::fits`].
    TemporaryMemory,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::SymmetricMemory => "needs symmetric memory on every rank, all on one host",
            Refusal::OneHost => "needs all ranks on one host",
            Refusal::MappedUnits => "needs ranks that share memory in every innermost unit",
            Refusal::EqualSizes => "supports blocks of equal size only",
            Refusal::RankOrder => {
                "does not combine all contributions of an element in one reduction in rank order"
            }
            Refusal::WireFormat => {
                "defines its own encodings: a wire format is for weft's own algorithms"
            }
            Refusal::TemporaryMemory => "needs more temporary memory than a tile has",
        })
    }
}

impl Reach {
    /// The reach of ranks on this many hosts, where those of one host map each other's memory.
    pub fn across(hosts: usize) -> Reach {
        match hosts {
            0 | 1 => Reach::All,
            _ => Reach::Unit,
        }
    }
}

impl Requirements {
    /// Why they are not met, if so.
    pub fn refusal(&self, conditions: Conditions) -> Option<Refusal> {
        if self.symmetric && conditions.memory == MemoryClass::Ordinary {
            return Some(Refusal::SymmetricMemory);
        }
        if self.mapped > conditions.mapped {
            return Some(match self.mapped {
                Reach::All => Refusal::OneHost,
                Reach::None | Reach::Unit => Refusal::MappedUnits,
            });
        }
        if !self.per_rank_sizes && conditions.sizes == Sizes::PerRank {
            return Some(Refusal::EqualSizes);
        }
        if !self.reproducible && conditions.reproducible {
            return Some(Refusal::RankOrder);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Topology;
    use crate::{registry, select};

    /// The refusal of a selection where all ranks are on one host, after this change.
    fn refusal(collective: &str, name: &str, change: impl Fn(&mut Conditions)) -> Option<Refusal> {
        let mut conditions = Conditions::ordinary(Reach::All);
        change(&mut conditions);
        let topology = Topology::hosts(&[0, 0, 1, 1]);
        let selection = select(collective, name).unwrap();
        selection.refusal(&topology, conditions)
    }

    #[test]
    fn each_requirement_is_asked_for() {
        let all_reduce = |name: &str, mapped| refusal("all-reduce", name, |c| c.mapped = mapped);
        assert_eq!(all_reduce("ring", Reach::None), None);
        assert_eq!(all_reduce("slice-reduce", Reach::All), None);
        assert_eq!(
            all_reduce("slice-reduce", Reach::Unit),
            Some(Refusal::OneHost)
        );
        let rails = "multi-rail(slice-reduce, ring)";
        assert_eq!(all_reduce(rails, Reach::Unit), None);
        assert_eq!(all_reduce(rails, Reach::None), Some(Refusal::MappedUnits));

        let per_rank = |name| refusal("all-gather", name, |c| c.sizes = Sizes::PerRank);
        assert_eq!(per_rank("direct"), None);
        assert_eq!(per_rank("bruck"), Some(Refusal::EqualSizes));

        let in_order = |name| refusal("all-reduce", name, |c| c.reproducible = true);
        assert_eq!(in_order("two-shot"), None);
        assert_eq!(in_order("ring"), Some(Refusal::RankOrder));

        let symmetric = Requirements {
            symmetric: true,
            ..Requirements::NONE
        };
        let mut conditions = Conditions::ordinary(Reach::All);
        assert_eq!(
            symmetric.refusal(conditions),
            Some(Refusal::SymmetricMemory)
        );
        conditions.memory = MemoryClass::Symmetric;
        assert_eq!(symmetric.refusal(conditions), None);
    }

    #[test]
    fn one_host_takes_everything() {
        for algorithm in registry() {
            let conditions = Conditions::ordinary(Reach::across(1));
            assert_eq!(
                algorithm.requires.refusal(conditions),
                None,
                "{}",
                algorithm.name
            );
        }
    }
}
