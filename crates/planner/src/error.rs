//! Errors of invalid requests: the value given, and the allowed values.

use std::fmt;

use weft_algorithms::{Refusal, registry};
use weft_schedule::Rank;

/// Why a request is not answered.
#[derive(Clone, PartialEq, Debug)]
pub enum PlannerError {
    /// There is no collective of this name.
    Collective(String),
    /// A collective without a root has got one.
    NoRoot {
        /// The collective.
        collective: &'static str,
        /// The root.
        root: Rank,
    },
    /// A field names a rank that there is not.
    Rank {
        /// The field.
        field: &'static str,
        /// The rank.
        rank: Rank,
        /// The number of ranks.
        ranks: u32,
    },
    /// There are no ranks, or too many.
    Ranks {
        /// The number of ranks.
        ranks: u32,
        /// How many there may be.
        ranks_max: u32,
    },
    /// Ranks cannot be spread over this many hosts or domains.
    Units {
        /// Their kind: hosts or domains.
        units: &'static str,
        /// How many.
        number: u32,
        /// The number of ranks.
        ranks: u32,
    },
    /// Hosts or domains have other ranks than there are.
    UnitSizes {
        /// Their kind: hosts or domains.
        units: &'static str,
        /// The number of ranks in each.
        sizes: Vec<u32>,
        /// The number of ranks.
        ranks: u32,
    },
    /// Two ranks share a domain, but no host.
    SharedDomain {
        /// The two.
        ranks: [Rank; 2],
    },
    /// The domains are none of such a group; says why.
    Domains(String),
    /// Symmetric memory on several hosts.
    SymmetricMemory {
        /// The number of hosts.
        hosts: usize,
    },
    /// There is no such algorithm; names the existing ones.
    Algorithm(String),
    /// An algorithm makes no schedule for blocks of these sizes.
    Sizes {
        /// The collective.
        collective: &'static str,
        /// The algorithm.
        algorithm: String,
    },
    /// A message is smaller than one element.
    Bytes {
        /// Its size.
        bytes: u64,
        /// The size of an element.
        element_bytes: u64,
    },
    /// A machine has no such field.
    MachineField {
        /// The field.
        field: String,
        /// The fields that exist.
        known: String,
    },
    /// A part of a machine is given as something that has no fields.
    MachinePart {
        /// The part.
        part: String,
        /// The value that was given.
        value: String,
        /// The fields of the part.
        known: String,
    },
    /// A figure of the machine is of the wrong type or invalid; says why.
    Machine(String),
    /// A schedule in text form is refused; says where and why.
    Schedule {
        /// How the request names it.
        name: String,
        /// The parser's or the verifier's message.
        why: String,
    },
    /// There is no such wire format, or the call has none.
    Wire(String),
    /// A job names a machine or schedule that there is not.
    Index {
        /// The kind of the numbered item.
        what: &'static str,
        /// The number.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// A job cannot be priced.
    Job {
        /// The algorithm.
        algorithm: String,
        /// The simulator's reason.
        error: weft_simulate::SimulationError,
    },
}

impl fmt::Display for PlannerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlannerError::Collective(name) => {
                write!(
                    f,
                    "collective={name:?}: one of {}",
                    collectives().join(", ")
                )
            }
            PlannerError::NoRoot { collective, root } => {
                write!(f, "root={root}: {collective} has none, so leave it out")
            }
            PlannerError::Rank { field, rank, ranks } => {
                write!(f, "{field}={rank}: from 0 to {}", ranks - 1)
            }
            PlannerError::Ranks { ranks, ranks_max } => {
                write!(f, "ranks={ranks}: from 1 to {ranks_max}")
            }
            PlannerError::Units {
                units,
                number,
                ranks,
            } => {
                write!(
                    f,
                    "{units}: {number} {units} for {ranks} ranks: give 1 to {ranks}"
                )
            }
            PlannerError::UnitSizes {
                units,
                sizes,
                ranks,
            } => write!(
                f,
                "{units}: {units} of {sizes:?} ranks for {ranks} ranks: each has at least 1, all together {ranks}"
            ),
            PlannerError::SharedDomain { ranks: [a, b] } => {
                write!(f, "domains: ranks {a} and {b} share one, but no host")
            }
            PlannerError::Domains(why) => write!(f, "domains: {why}"),
            PlannerError::SymmetricMemory { hosts } => write!(
                f,
                "memory=\"symmetric\" on {hosts} hosts: symmetric memory is shared by the ranks of one host"
            ),
            PlannerError::Algorithm(why) | PlannerError::Machine(why) | PlannerError::Wire(why) => {
                f.write_str(why)
            }
            PlannerError::Sizes {
                collective,
                algorithm,
            } => {
                write!(
                    f,
                    "sizes=\"per-rank\": {collective} {algorithm} {}",
                    Refusal::EqualSizes
                )
            }
            PlannerError::Bytes {
                bytes,
                element_bytes,
            } => {
                write!(
                    f,
                    "bytes={bytes}: at least {element_bytes}, the size of an element"
                )
            }
            PlannerError::MachineField { field, known } => {
                write!(f, "there is no {field}; there are: {known}")
            }
            PlannerError::MachinePart { part, value, known } => {
                write!(f, "{part}={value}: expected an object with some of {known}")
            }
            PlannerError::Schedule { name, why } => write!(f, "schedule {name}: {why}"),
            PlannerError::Index { what, index, count } => {
                write!(f, "{what} {index}: there are {count}")
            }
            PlannerError::Job { algorithm, error } => write!(f, "{algorithm}: {error}"),
        }
    }
}

impl std::error::Error for PlannerError {}

/// The names of all collectives.
fn collectives() -> Vec<&'static str> {
    let mut names: Vec<&str> = registry().map(|algorithm| algorithm.collective).collect();
    names.dedup();
    names
}
