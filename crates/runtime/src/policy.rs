//! What users ask of a group's choices: forced algorithms, reproducible sums, levels of units, and tables of profiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::call::mix;
use crate::channel::SLOTS;
use crate::own::Own;
use crate::rendezvous::Meeting;

/// How a message is cut, where the default is not wanted. The same on all ranks.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Tiling {
    /// The part of the largest chunk that one tile takes, in bytes; what fits into a slot if that is less.
    pub tile_bytes: Option<u64>,
    /// How many tiles may be under way at once: at most as many as there are slots.
    pub tiles_in_flight: Option<u32>,
}

impl Tiling {
    pub(crate) fn check(self) -> Result<(), Error> {
        if self.tile_bytes == Some(0) {
            return Err(Error::Config("tile_bytes=0: at least 1 is needed".into()));
        }
        match self.tiles_in_flight {
            Some(tiles) if tiles == 0 || tiles as usize > SLOTS => Err(Error::Config(format!(
                "tiles_in_flight={tiles}: 1 to {SLOTS} are possible"
            ))),
            _ => Ok(()),
        }
    }
}

/// What messages of up to so many bytes run by.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The largest message that it is for, all blocks together; without a limit if none.
    pub up_to_bytes: Option<u64>,
    /// The algorithm's name, with its parts.
    pub algorithm: String,
    /// How the message is cut.
    pub tiling: Tiling,
}

impl Row {
    /// The largest message that it is for, in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.up_to_bytes.unwrap_or(u64::MAX)
    }
}

/// For collectives, by name: what runs by what, in ascending order of size.
pub type Table = BTreeMap<String, Vec<Row>>;

/// Users' own schedules, by name: the programs of all ranks in text form.
pub type Schedules = BTreeMap<String, String>;

/// A table that was made for ranks placed in some way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Where it comes from, for messages.
    pub source: String,
    /// For each host, in the order of their lowest ranks, the number of its ranks; empty if it suits any group.
    pub ranks_per_host: Vec<u32>,
    /// Levels of domains inside hosts: for each rank, the lowest rank of its domain; empty if it is for any.
    pub domains: Vec<Vec<u32>>,
    /// Whether a group that it does not suit is refused, instead of made without it.
    pub required: bool,
    /// What runs by what.
    pub table: Table,
    /// The users' own schedules that the table names.
    pub schedules: Schedules,
}

/// What users ask of every choice of a group. The same on all ranks.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// For collectives, by name: the only algorithm that may be used.
    pub algorithms: BTreeMap<String, String>,
    /// Whether the bits of sums must not depend on algorithm, tile size and placement.
    pub reproducible: bool,
    /// Levels of units, innermost first: for each level the unit of each rank, by any number. Without levels, a unit is what
    /// shares memory.
    pub levels: Vec<Vec<u32>>,
    /// The users' own schedules that calls, `algorithms` and tables may name. A schedule is for one number of ranks.
    pub schedules: Schedules,
    /// Levels of domains inside hosts, innermost first: for each level the domain of each rank, by any number that counts within
    /// its host; no level, if hosts are not divided. Where nothing is said, what the operating system reports. Without meaning if
    /// there are `levels`.
    pub domains: Option<Vec<Vec<u32>>>,
}

impl Policy {
    /// What is told when ranks meet: as it is, but with hashes in place of the schedules.
    pub(crate) fn told(&self) -> Policy {
        let hash = |text: &String| format!("{:016x}", text.bytes().map(u64::from).fold(1, mix));
        let hashed = |(name, text): (&String, &String)| (name.clone(), hash(text));
        Policy {
            schedules: self.schedules.iter().map(hashed).collect(),
            ..self.clone()
        }
    }

    /// Refuses what another rank has been told differently, naming both. Both are as [`Policy::told`].
    pub(crate) fn same_as(&self, mine: &Policy, rank: usize) -> Result<(), Error> {
        let differs = |what: &str, theirs: String, mine: String| {
            Err(Error::Config(format!(
                "rank {rank} was given {what} {theirs}, this rank {mine}: it must be the same everywhere"
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

    /// What holds for some of the ranks.
    pub(crate) fn of_ranks(&self, ranks: &[u32]) -> Policy {
        let level = |units: &Vec<u32>| ranks.iter().map(|rank| units[*rank as usize]).collect();
        Policy {
            levels: self.levels.iter().map(level).collect(),
            domains: (self.domains.as_ref()).map(|levels| levels.iter().map(level).collect()),
            ..self.clone()
        }
    }

    /// What of it holds in a group that was not asked: schedules that are right there, and the algorithms that are not among the others.
    pub(crate) fn inherited(mut self, meeting: &Meeting) -> Policy {
        let suits = |name: &str, text: &str| Own::read(name, text, meeting).is_ok();
        let all = std::mem::take(&mut self.schedules);
        let (kept, left) = (all.into_iter()).partition(|(name, text)| suits(name, text));
        self.schedules = kept;
        let left: Schedules = left;
        self.algorithms.retain(|_, name| !left.contains_key(name));
        self
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

/// A profile that suits a group, and the schedules that it brings.
pub(crate) type Suited<'a> = (&'a Profile, Vec<Own>);

impl Profile {
    /// The schedules that it brings, or why a group cannot use it.
    fn suited(&self, meeting: &Meeting, domains: &[Vec<u32>]) -> Result<Vec<Own>, Error> {
        let here = meeting.ranks_per_host();
        if !self.ranks_per_host.is_empty() && self.ranks_per_host != here {
            return Err(Error::Config(format!(
                "{} was made for hosts with {:?} ranks; this group's hosts have {here:?}",
                self.source, self.ranks_per_host
            )));
        }
        if !self.domains.is_empty() && self.domains != domains {
            return Err(Error::Config(format!(
                "{} was made for ranks with the domains {:?}; this group's are {domains:?}",
                self.source, self.domains
            )));
        }
        let own = (self.schedules.iter()).map(|(name, text)| Own::read(name, text, meeting));
        own.collect::<Result<_, _>>()
            .map_err(|why| Error::Config(format!("{}: {why}", self.source)))
    }
}

/// The first profile that suits the group, those for its domains before those for any.
pub(crate) fn suitable<'a>(
    profiles: &'a [Profile],
    meeting: &Meeting,
    domains: &[Vec<u32>],
) -> Result<Option<Suited<'a>>, Error> {
    let particular = |profile: &&Profile| !profile.domains.is_empty();
    let any = profiles.iter().filter(|profile| !particular(profile));
    for profile in profiles.iter().filter(particular).chain(any) {
        match profile.suited(meeting, domains) {
            Ok(own) => return Ok(Some((profile, own))),
            Err(why) if profile.required => return Err(why),
            Err(_) => {}
        }
    }
    Ok(None)
}
