//! Units of a topology for programs that are written for them: the exchanges between ranks of
//! different units.
//!
//! Rank m of a unit meets rank m of every other one, so every rank carries its part of the data
//! between units (a "rail"). In a smaller unit, ranks meet several: rank m modulo their number.
//! Where no unit is known, every rank is one of its own.

use std::borrow::Cow;
use std::ops::Range;

use weft_schedule::Rank;

use crate::ScheduleRequest;
use crate::patterns::builder::Area;

/// The units as one rank sees them.
pub(crate) struct Rails<'a> {
    units: Cow<'a, [Vec<Rank>]>,
    /// Its unit.
    unit: usize,
    /// Its place there.
    place: usize,
}

impl<'a> Rails<'a> {
    pub(crate) fn new(request: &ScheduleRequest<'a>) -> Self {
        let rank = request.rank;
        let units = units(request);
        let lowest = match request.topology.depth() {
            0 => rank,
            _ => request.topology.unit_of(0, rank),
        };
        let unit = units.partition_point(|unit| unit[0] < lowest);
        let place = units[unit].partition_point(|member| *member < rank);
        Rails { units, unit, place }
    }

    /// The number of its unit.
    pub(crate) fn unit(&self) -> usize {
        self.unit
    }

    /// The ranks of its unit, in their order.
    pub(crate) fn members(&self) -> &[Rank] {
        &self.units[self.unit]
    }

    /// The ranks of its unit behind it, then those before it, with their places there.
    pub(crate) fn peers(&self) -> Vec<(usize, Rank)> {
        let members = self.members();
        let places = (1..members.len()).map(|distance| (self.place + distance) % members.len());
        places.map(|place| (place, members[place])).collect()
    }

    /// The other units, beginning behind its own.
    pub(crate) fn others(&self) -> impl Iterator<Item = &[Rank]> {
        let count = self.units.len();
        (1..count).map(move |distance| self.units[(self.unit + distance) % count].as_slice())
    }

    /// Which rank of another unit it meets.
    pub(crate) fn met_in(&self, unit: &[Rank]) -> Rank {
        unit[self.place % unit.len()]
    }

    /// The ranks of other units that meet this one, beginning behind its own.
    pub(crate) fn meeting(&self) -> Vec<Rank> {
        self.meeting_member(self.place)
    }

    /// As [`Rails::meeting`], of the member of its unit at this place.
    pub(crate) fn meeting_member(&self, place: usize) -> Vec<Rank> {
        let size = self.members().len();
        let of_unit = |unit: &[Rank]| unit.iter().copied().skip(place).step_by(size).collect();
        self.others().flat_map::<Vec<Rank>, _>(of_unit).collect()
    }

    /// The leader of a unit: the root if it is there, otherwise the lowest.
    pub(crate) fn leader(unit: &[Rank], root: Rank) -> Rank {
        match unit.contains(&root) {
            true => root,
            false => unit[0],
        }
    }
}

/// The units of a request's topology.
pub(crate) fn units<'a>(request: &ScheduleRequest<'a>) -> Cow<'a, [Vec<Rank>]> {
    match request.topology.depth() {
        0 => Cow::Owned((0..request.ranks).map(|rank| vec![rank]).collect()),
        _ => Cow::Borrowed(request.topology.innermost_units().0),
    }
}

/// The ranks of a unit as ranges of consecutive ones.
pub(crate) fn runs(unit: &[Rank]) -> impl Iterator<Item = Range<Rank>> {
    let consecutive = unit.chunk_by(|rank, next| rank + 1 == *next);
    consecutive.map(|ranks| ranks[0]..ranks[0] + ranks.len() as u32)
}

/// Temporary memory for the blocks of any unit: an entry for each run of consecutive ranks, so one
/// where ranks are numbered host by host.
pub(crate) struct UnitArea(Vec<Area>);

impl UnitArea {
    /// An area of entries, each of the number of chunks that `widths` lists.
    pub(crate) fn new(request: &ScheduleRequest, add: impl FnMut(u32) -> Area) -> Self {
        let mut widths: Vec<u32> = Vec::new();
        for unit in units(request).iter() {
            for (index, run) in runs(unit).enumerate() {
                widths.resize(widths.len().max(index + 1), 0);
                widths[index] = widths[index].max(run.len() as u32);
            }
        }
        UnitArea(widths.into_iter().map(add).collect())
    }

    /// The runs of a unit, each with its entry.
    pub(crate) fn runs(&self, unit: &[Rank]) -> impl Iterator<Item = (Range<Rank>, Area)> {
        runs(unit)
            .zip(&self.0)
            .map(|(run, area)| (run.clone(), area.starting_at(run.start)))
    }

    /// The entry with the block of one rank of a unit.
    pub(crate) fn of(&self, unit: &[Rank], rank: Rank) -> Area {
        let found = self.runs(unit).find(|(run, _)| run.contains(&rank));
        found.expect("the rank is in the unit").1
    }
}

/// The greatest number of ranks of other units that meet one rank; 1 at least.
pub(crate) fn most_meeting(request: &ScheduleRequest) -> u32 {
    let units = units(request);
    let sizes = || units.iter().map(|unit| unit.len() as u32);
    // It is the first one of a smallest unit.
    let smallest = sizes().min().unwrap_or(1);
    let meeting: u32 = sizes().map(|size| size.div_ceil(smallest)).sum();
    (meeting - 1).max(1)
}

/// The number of ranks of the largest unit.
pub(crate) fn largest_unit(request: &ScheduleRequest) -> u32 {
    let sizes = units(request).iter().map(|unit| unit.len() as u32).max();
    sizes.unwrap_or(1)
}
