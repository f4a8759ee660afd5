//! The units of one level, and the ownership of the shares of the message inside them.

use weft_schedule::{Collective, Fraction, Grid, Rank};

use crate::ScheduleRequest;
use crate::patterns::cuts::{Cuts, ShareRange, WHOLE};

/// The assignment of segments to owners inside a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owners {
    /// Every rank a slice of its own.
    Slices,
    /// One rank everything: the root if it is in the unit, otherwise the lowest.
    Leader,
}

impl Owners {
    /// The collective inside a unit, before the owners' exchange or after it.
    pub(crate) fn inside(self, inward: bool, leader: Rank) -> Collective {
        match (self, inward) {
            (Owners::Slices, true) => Collective::ReduceScatter,
            (Owners::Slices, false) => Collective::AllGather,
            (Owners::Leader, true) => Collective::Reduce { root: leader },
            (Owners::Leader, false) => Collective::Broadcast { root: leader },
        }
    }
}

/// The units of one level, as one rank sees them.
pub(crate) struct Units<'a> {
    owners: Owners,
    members: &'a [Vec<Rank>],
    /// Every size that units have, ascending.
    sizes: &'a [u32],
    /// The unit with the root, and its place there.
    root: Option<(u32, u32)>,
    /// The rank's unit.
    pub(crate) own: u32,
    /// The rank's place in its unit.
    pub(crate) member: u32,
    /// The cuts between segments: shares of the message that have one owner in each unit.
    cuts: Vec<Fraction>,
    /// The greatest number of segments that one rank owns.
    pub(crate) segments_of_one: u32,
}

impl<'a> Units<'a> {
    /// The innermost units of the request's topology, which must have a level.
    pub(crate) fn new(request: &ScheduleRequest<'a>, owners: Owners) -> Self {
        let (units, sizes) = request.topology.innermost_units();
        let place = |rank: Rank| {
            let lowest = request.topology.unit_of(0, rank);
            let own = units.partition_point(|unit| unit[0] < lowest);
            let member = units[own].partition_point(|other| *other < rank);
            (own as u32, member as u32)
        };
        let (own, member) = place(request.rank);
        let root = match request.collective {
            Collective::Reduce { root } | Collective::Broadcast { root } => Some(place(root)),
            _ => None,
        };
        let cuts = match owners {
            Owners::Slices => {
                let grids: Vec<Grid> = sizes.iter().map(|size| Grid::Equal(*size)).collect();
                Cuts::of(grids.iter().map(|grid| (grid, WHOLE))).into_fractions()
            }
            Owners::Leader => vec![WHOLE.start, WHOLE.end],
        };
        let mut units = Units {
            owners,
            members: units,
            sizes,
            root,
            own,
            member,
            cuts,
            segments_of_one: 1,
        };
        units.segments_of_one = units.most_segments();
        units
    }

    /// The rank that sees this.
    pub(crate) fn rank(&self) -> Rank {
        self.members()[self.member as usize]
    }

    /// The number of units.
    pub(crate) fn count(&self) -> u32 {
        self.members.len() as u32
    }

    /// The ranks of this rank's unit.
    pub(crate) fn members(&self) -> &[Rank] {
        &self.members[self.own as usize]
    }

    /// The number of ranks in this rank's unit.
    pub(crate) fn size(&self) -> u32 {
        self.members().len() as u32
    }

    /// Every size that units have.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = u32> {
        self.sizes.iter().copied()
    }

    /// The size of each unit.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = u32> {
        self.members.iter().map(|unit| unit.len() as u32)
    }

    /// The place of this unit's leader in it.
    pub(crate) fn leader(&self) -> u32 {
        self.leader_of(self.own)
    }

    fn leader_of(&self, unit: u32) -> u32 {
        match self.root {
            Some((of_root, member)) if of_root == unit => member,
            _ => 0,
        }
    }

    /// The collective that the owners of a segment carry out among themselves.
    pub(crate) fn among_owners(&self, collective: Collective) -> Collective {
        match (collective, self.root) {
            (Collective::Reduce { .. }, Some((root, _))) => Collective::Reduce { root },
            (Collective::Broadcast { .. }, Some((root, _))) => Collective::Broadcast { root },
            _ => collective,
        }
    }

    /// The number of segments.
    pub(crate) fn segments(&self) -> usize {
        self.cuts.len() - 1
    }

    /// A segment.
    pub(crate) fn segment(&self, index: usize) -> ShareRange {
        self.cuts[index]..self.cuts[index + 1]
    }

    /// The segments that this rank owns: they follow each other.
    pub(crate) fn owned_segments(&self) -> impl Iterator<Item = usize> {
        let owned = |index: &usize| self.owner(*index, self.own) == self.member;
        (0..self.segments()).filter(owned)
    }

    /// The share of the message that one rank owns in a unit of this size.
    pub(crate) fn owned_share(&self, size: u32, member: u32) -> f64 {
        match self.owners {
            Owners::Slices => 1.0 / f64::from(size),
            Owners::Leader if member == 0 => 1.0,
            Owners::Leader => 0.0,
        }
    }

    /// The rank of a unit that owns a segment.
    pub(crate) fn owner_in(&self, unit: u32, segment: usize) -> Rank {
        self.members[unit as usize][self.owner(segment, unit) as usize]
    }

    /// The place in its unit of the rank that owns a segment.
    fn owner(&self, segment: usize, unit: u32) -> u32 {
        match self.owners {
            Owners::Leader => self.leader_of(unit),
            Owners::Slices => self.slice(segment, self.members[unit as usize].len() as u32),
        }
    }

    /// Which of this many equal slices a segment is in.
    fn slice(&self, segment: usize, slices: u32) -> u32 {
        self.cuts[segment].of(u64::from(slices)) as u32
    }

    fn most_segments(&self) -> u32 {
        if self.owners == Owners::Leader {
            return 1;
        }
        let counts = self.sizes().map(|size| {
            let slices: Vec<u32> = (0..self.segments())
                .map(|segment| self.slice(segment, size))
                .collect();
            let runs = slices.chunk_by(|a, b| a == b).map(<[u32]>::len);
            runs.max().unwrap_or_default() as u32
        });
        counts.max().unwrap_or(1)
    }
}
