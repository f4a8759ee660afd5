//! Candidates of a group for a collective: algorithms with their parts, or user schedules, with
//! their tiling.

use std::sync::Arc;

use weft_algorithms::{
    Conditions, MemoryClass, Refusal, Requirements, ScheduleRequest, Selection, Sizes, Topology,
    on_wire,
};
use weft_call::{Tiling, mix};
use weft_channel::{ChannelLayout, SLOTS};
use weft_kernels::DType;
use weft_schedule::{Collective, Schedule, WireFormat};

use super::defaults::small_symmetric_bytes;
use super::traits::{GroupTraits, Site};
use super::user_schedules::UserSchedule;
use crate::Error;

/// The source of a schedule.
#[derive(Clone, Debug)]
pub(crate) enum ScheduleSource {
    /// One of weft's algorithms.
    Family(Selection),
    /// A user's schedules.
    User(Arc<UserSchedule>),
}

/// One way to execute one collective.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) collective: &'static str,
    pub(crate) name: String,
    pub(crate) source: ScheduleSource,
    pub(crate) tiling: Tiling,
    pub(crate) requires: Requirements,
    /// The same on all ranks for the same candidate.
    hash: u64,
}

impl Candidate {
    pub(crate) fn family(
        collective: &'static str,
        selection: Selection,
        tiling: Tiling,
        topology: &Topology,
    ) -> Candidate {
        let name = selection.name();
        Candidate {
            requires: selection.requires_in(topology),
            hash: hash_of(collective, &name, tiling, units_of(&selection, topology)),
            source: ScheduleSource::Family(selection),
            collective,
            name,
            tiling,
        }
    }

    pub(crate) fn of_user(schedule: Arc<UserSchedule>, tiling: Tiling) -> Candidate {
        let collective = schedule.collective.name();
        Candidate {
            collective,
            name: schedule.name.clone(),
            requires: schedule.requires,
            hash: hash_of(collective, &schedule.name, tiling, schedule.hash),
            source: ScheduleSource::User(schedule),
            tiling,
        }
    }

    /// Whether its programs support elements of this type.
    pub(crate) fn takes(&self, dtype: DType) -> bool {
        match &self.source {
            ScheduleSource::Family(_) => true,
            ScheduleSource::User(schedule) => schedule.takes(dtype),
        }
    }

    /// The programs of all ranks in text form, for a user schedule.
    pub(crate) fn own_text(&self) -> Option<&str> {
        match &self.source {
            ScheduleSource::Family(_) => None,
            ScheduleSource::User(schedule) => Some(&schedule.text),
        }
    }

    /// Whether a call of `bytes` bytes should run directly on symmetric memory if it has any. It is
    /// not worth it for few bytes.
    pub(crate) fn takes_symmetric(&self, bytes: u64) -> bool {
        match &self.source {
            ScheduleSource::Family(_) => bytes > small_symmetric_bytes(self.collective),
            ScheduleSource::User(schedule) => schedule.requires.symmetric,
        }
    }

    /// The plan's hash, the same on all ranks. Shown to users.
    pub(crate) fn hash(&self, memory: MemoryClass, wire: WireFormat) -> u64 {
        mix(self.hash, memory as u64 | (wire as u64) << 8)
    }

    /// The plan's hash in fingerprints. Never 0, which stands for a plan that is not chosen yet.
    pub(crate) fn plan(&self, memory: MemoryClass, wire: WireFormat) -> u64 {
        self.hash(memory, wire).max(1)
    }

    /// The most concurrent tiles.
    pub(crate) fn tiles_in_flight(&self, layout: ChannelLayout) -> usize {
        let requested = self.tiling.tiles_in_flight;
        requested.map_or(layout.slots, |tiles| tiles as usize)
    }

    /// The schedules of all ranks.
    pub(crate) fn schedules(
        &self,
        site: &Site,
        collective: Collective,
        kind: CallKind,
    ) -> Result<Vec<Schedule>, Error> {
        let of_rank = |rank| {
            let site = Site {
                rank,
                ..site.clone()
            };
            self.schedule(&site, collective, kind)
        };
        (0..site.ranks).map(of_rank).collect()
    }

    /// The schedule of the site's rank.
    pub(crate) fn schedule(
        &self,
        site: &Site,
        collective: Collective,
        kind: CallKind,
    ) -> Result<Schedule, Error> {
        let selection = match &self.source {
            ScheduleSource::Family(selection) => selection,
            ScheduleSource::User(schedule) if schedule.collective == collective => {
                return Ok(schedule.schedules[site.rank as usize].clone());
            }
            ScheduleSource::User(schedule) => {
                return Err(Error::Config(format!(
                    "the schedule {:?} is for {}, not for {collective}",
                    schedule.name, schedule.collective
                )));
            }
        };
        let schedule = selection.build(&ScheduleRequest {
            collective,
            ranks: site.ranks,
            rank: site.rank,
            memory: kind.memory,
            sizes: kind.sizes(),
            topology: &site.topology,
            parts: &[],
        });
        Ok(on_wire(schedule, kind.wire))
    }
}

/// Distinguishes the units that a composed algorithm sees; 0 for all others.
fn units_of(selection: &Selection, topology: &Topology) -> u64 {
    let levels = selection.levels();
    let seen = topology.seen_by(levels);
    let levels = 0..levels.min(seen.depth());
    let units = levels.flat_map(|level| (0..seen.ranks()).map(move |rank| (level, rank)));
    units
        .map(|(level, rank)| u64::from(seen.unit_of(level, rank)))
        .fold(0, mix)
}

fn hash_of(collective: &str, name: &str, tiling: Tiling, schedules: u64) -> u64 {
    let text = [collective, "\0", name].map(str::bytes);
    let hash = text.into_iter().flatten().map(u64::from).fold(1, mix);
    let in_flight = tiling.tiles_in_flight.unwrap_or(SLOTS as u32);
    [
        tiling.tile_bytes.unwrap_or(0),
        u64::from(in_flight),
        schedules,
    ]
    .into_iter()
    .fold(hash, mix)
}

/// The memory, the counts and the wire format of a call, as far as the choice depends on them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CallKind {
    /// Symmetric if all ranks passed the same piece of it, mapped by all.
    pub(crate) memory: MemoryClass,
    /// Whether blocks have a size per rank.
    pub(crate) per_rank: bool,
    /// The wire format. `Full` if all ranks share memory, regardless of the call.
    pub(crate) wire: WireFormat,
}

impl CallKind {
    fn sizes(self) -> Sizes {
        match self.per_rank {
            true => Sizes::PerRank,
            false => Sizes::Equal,
        }
    }
}

impl Candidate {
    /// Returns why it cannot be used, if it cannot.
    pub(crate) fn refusal(&self, traits: GroupTraits, kind: CallKind) -> Option<Refusal> {
        if matches!(self.source, ScheduleSource::User(_)) && kind.wire != WireFormat::Full {
            return Some(Refusal::WireFormat);
        }
        let reduces = Collective::named(self.collective, 0).is_some_and(Collective::reduces);
        self.requires.refusal(Conditions {
            mapped: traits.reach,
            memory: kind.memory,
            sizes: kind.sizes(),
            reproducible: traits.reproducible && reduces,
        })
    }
}
