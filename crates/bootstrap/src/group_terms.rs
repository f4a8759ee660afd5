//! Terms that the ranks of a group bring to its rendezvous: forced algorithms, reproducible sums,
//! levels of units, and tables of profiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_call::Error;
use weft_call::{Tiling, mix};
use weft_schedule::WireFormat;

use super::domains::Domain;

/// The algorithm for messages of up to a size.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProfileRow {
    /// The largest message that it is for, all blocks together; unlimited if none.
    pub up_to_bytes: Option<u64>,
    /// The algorithm's name, with its parts.
    pub algorithm: String,
    /// How the message is cut.
    pub tiling: Tiling,
}

impl ProfileRow {
    /// The largest message that it is for, in bytes.
    pub fn limit(&self) -> u64 {
        self.up_to_bytes.unwrap_or(u64::MAX)
    }
}

/// For collectives, by name: their rows, in ascending order of size.
pub type ProfileTable = BTreeMap<String, Vec<ProfileRow>>;

/// User schedules, by name: the programs of all ranks in text form.
pub type Schedules = BTreeMap<String, String>;

/// A table that was made for a certain placement of ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Its source, for messages.
    pub source: String,
    /// The number of ranks of each host, in the order of their lowest ranks; empty if it suits any
    /// group.
    pub ranks_per_host: Vec<u32>,
    /// Levels of domains inside hosts: for each rank, the lowest rank of its domain; empty if it
    /// suits any.
    pub domains: Vec<Vec<u32>>,
    /// Whether a group that it does not suit is refused, instead of made without it.
    pub required: bool,
    /// The rows by collective.
    pub table: ProfileTable,
    /// The user schedules that the table names.
    pub schedules: Schedules,
}

/// A user's requirements on every choice of a group. The same on all ranks.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// For collectives, by name: the only algorithm that may be used.
    pub algorithms: BTreeMap<String, String>,
    /// Whether the bits of sums must not depend on algorithm, tile size and placement.
    pub reproducible: bool,
    /// Levels of units, innermost first: for each level the unit of each rank, by any number.
    /// Without levels, a unit consists of ranks that share memory.
    pub levels: Vec<Vec<u32>>,
    /// The user schedules that calls, `algorithms` and tables may name. A schedule is for one
    /// number of ranks.
    pub schedules: Schedules,
    /// Levels of domains inside hosts, innermost first: for each level the domain of each rank, by
    /// any number that is unique within its host; no level if hosts are not divided. If none, the
    /// domains that the operating system reports. Ignored if there are `levels`.
    pub domains: Option<Vec<Vec<u32>>>,
    /// The encoding of `float32` sums between ranks that share no memory, where a call does not
    /// choose.
    #[serde(with = "WireFormatWord")]
    pub wire: WireFormat,
}

/// [`WireFormat`] in published policies.
#[derive(Serialize, Deserialize)]
#[serde(remote = "WireFormat")]
enum WireFormatWord {
    Full,
    Fp16,
    Bf16,
    Fp8E4m3,
    Fp8E5m2,
}

impl Policy {
    /// The form that is published at the rendezvous: with hashes in place of the schedules.
    pub fn published(&self) -> Policy {
        let hash = |text: &String| format!("{:016x}", text.bytes().map(u64::from).fold(1, mix));
        let hashed = |(name, text): (&String, &String)| (name.clone(), hash(text));
        Policy {
            schedules: self.schedules.iter().map(hashed).collect(),
            ..self.clone()
        }
    }

    /// A number that differs if anything does.
    pub fn digest(&self) -> u64 {
        let bytes = postcard::to_stdvec(self).expect("writing to memory does not fail");
        bytes.into_iter().map(u64::from).fold(1, mix)
    }

    /// Rejects another rank whose policy differs from `mine`, that of the rank called `name`. Both
    /// are as from [`Policy::published`].
    ///
    /// # Errors
    /// [`Error::Config`] that names both ranks, the option and both values.
    pub fn same_as(&self, mine: &Policy, rank: u32, name: &str) -> Result<(), Error> {
        let differs = |option: &str, theirs: String, mine: String| {
            Err(Error::Config(format!(
                "rank {rank} was given {option} {theirs}, {name} {mine}: it must be the same everywhere"
            )))
        };
        if self.algorithms != mine.algorithms {
            return differs(
                "algorithm",
                names(&self.algorithms),
                names(&mine.algorithms),
            );
        }
        if self.reproducible != mine.reproducible {
            let show = |policy: &Policy| format!("reproducible={}", policy.reproducible);
            return differs("the option", show(self), show(mine));
        }
        if self.wire != mine.wire {
            let show = |policy: &Policy| format!("wire={}", policy.wire);
            return differs("the option", show(self), show(mine));
        }
        if self.schedules != mine.schedules {
            return differs(
                "schedules (name=hash)",
                names(&self.schedules),
                names(&mine.schedules),
            );
        }
        if self.levels != mine.levels {
            let show = |policy: &Policy| format!("{:?}", policy.levels);
            return differs("topology", show(self), show(mine));
        }
        if self.domains != mine.domains {
            let show = |policy: &Policy| match &policy.domains {
                None => "auto".into(),
                Some(levels) => format!("{levels:?}"),
            };
            return differs("domains", show(self), show(mine));
        }
        Ok(())
    }

    /// The part that applies to some of the ranks.
    pub fn of_ranks(&self, ranks: &[u32]) -> Policy {
        let level = |units: &Vec<u32>| ranks.iter().map(|rank| units[*rank as usize]).collect();
        Policy {
            levels: self.levels.iter().map(level).collect(),
            domains: (self.domains.as_ref()).map(|levels| levels.iter().map(level).collect()),
            ..self.clone()
        }
    }
}

/// "all-reduce=ring,broadcast=binomial".
fn names(pairs: &BTreeMap<String, String>) -> String {
    if pairs.is_empty() {
        return "(none)".into();
    }
    let pairs: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}

/// The formats that two builds must have in common to understand each other, as hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Formats {
    /// The form of the messages between ranks.
    pub messages: u64,
    /// The layout of the memory that they grant each other.
    pub memory: u64,
}

impl Formats {
    /// Rejects a rank whose build differs, naming both and the difference.
    pub(super) fn same_as(self, mine: Formats, (rank, own): (u32, u32)) -> Result<(), Error> {
        let differing = [
            ("message format", self.messages, mine.messages),
            ("memory layout", self.memory, mine.memory),
        ];
        let differing = differing
            .into_iter()
            .find(|(_, theirs, mine)| theirs != mine);
        differing.map_or(Ok(()), |(format, theirs, mine)| {
            Err(Error::Config(format!(
                "rank {rank} has {format} {theirs:016x}, rank {own} {mine:016x}, though both report the \
                 same version of weft: install the same build everywhere"
            )))
        })
    }
}

/// The job of a process, as named by launchers and users: names of variables and their values, the
/// most specific first.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct JobIdentity(pub Vec<(String, String)>);

impl JobIdentity {
    /// Rejects a rank of another job. Jobs are compared by the first name that both sides have;
    /// `name` is the name of the rank with `mine` in messages.
    pub(super) fn same_as(&self, mine: &JobIdentity, rank: u32, name: &str) -> Result<(), Error> {
        let of_both = mine.0.iter().find_map(|(variable, mine)| {
            let theirs = self.0.iter().find(|(other, _)| other == variable)?;
            Some((variable, &theirs.1, mine))
        });
        match of_both {
            Some((variable, theirs, mine)) if theirs != mine => Err(Error::Config(format!(
                "rank {rank} at the rendezvous belongs to another job: it has {variable}={theirs}, {name} \
                 {variable}={mine}. Give each job an address of its own (MASTER_PORT); if these are ranks of one \
                 job, set WEFT_JOB_ID to the same text on all of them"
            ))),
            _ => Ok(()),
        }
    }
}

/// A rank's contribution to a rendezvous.
#[derive(Clone, Default, Debug)]
pub struct GroupTerms {
    /// The job of the process, if it is known.
    pub job: JobIdentity,
    /// Further options that must be the same on all ranks, by name, with their values as text.
    pub settings: BTreeMap<String, String>,
    /// The policy, which must be the same on all ranks.
    pub policy: Policy,
    /// Tables for choosing algorithms. Those of rank 0 count.
    pub profiles: Vec<Profile>,
    /// The parts of its host that contain this process.
    pub domain: Domain,
    /// The formats of its build. [`crate::meet`] fills them in.
    pub formats: Formats,
}
