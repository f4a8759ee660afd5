//! What users ask of a group's choices: forced algorithms, reproducible sums, levels of units, and tables of profiles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::channel::SLOTS;
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

/// A table that was made for ranks placed in some way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Profile {
    /// Where it comes from, for messages.
    pub source: String,
    /// For each host, in the order of their lowest ranks, the number of its ranks; empty if it suits any group.
    pub ranks_per_host: Vec<u32>,
    /// Whether a group that it does not suit is refused, instead of made without it.
    pub required: bool,
    /// What runs by what.
    pub table: Table,
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
}

impl Policy {
    /// Refuses what another rank has been told differently, naming both.
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
        if self.levels != mine.levels {
            let show = |policy: &Policy| format!("{:?}", policy.levels);
            return differs("topology", show(self), show(mine));
        }
        Ok(())
    }

    /// What holds for some of the ranks.
    pub(crate) fn of_ranks(&self, ranks: &[u32]) -> Policy {
        let level = |units: &Vec<u32>| ranks.iter().map(|rank| units[*rank as usize]).collect();
        Policy {
            levels: self.levels.iter().map(level).collect(),
            ..self.clone()
        }
    }
}

/// "all-reduce=ring,broadcast=binomial".
fn names(algorithms: &BTreeMap<String, String>) -> String {
    if algorithms.is_empty() {
        return "(none)".into();
    }
    let pairs: Vec<String> = algorithms.iter().map(|(c, a)| format!("{c}={a}")).collect();
    pairs.join(",")
}

impl Profile {
    /// Why a group cannot use it, if so.
    pub(crate) fn unfit(&self, meeting: &Meeting) -> Option<String> {
        let here = meeting.ranks_per_host();
        (!self.ranks_per_host.is_empty() && self.ranks_per_host != here).then(|| {
            format!(
                "{} was made for hosts with {:?} ranks; this group's hosts have {here:?}",
                self.source, self.ranks_per_host
            )
        })
    }
}

/// The first profile that suits the group.
pub(crate) fn suitable<'a>(
    profiles: &'a [Profile],
    meeting: &Meeting,
) -> Result<Option<&'a Profile>, Error> {
    for profile in profiles {
        match profile.unfit(meeting) {
            None => return Ok(Some(profile)),
            Some(why) if profile.required => return Err(Error::Config(why)),
            Some(_) => {}
        }
    }
    Ok(None)
}
