//! Symmetry of ranks: ranks whose programs are equal up to renaming, for the simulation of a few
//! ranks in place of all.

use crate::{InsideComponent, Parts, ScheduleRequest, Selection, Symmetry};

/// Which ranks' programs are the same but for names, in the sense of [`Symmetry`].
///
/// Two kinds of shifts, which may be combined: of all ranks by a multiple of some number, and of
/// every unit's ranks among themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shifts {
    /// The effect of shifts by multiples of [`Shifts::apart`] ranks.
    pub all: Symmetry,
    /// By how many ranks.
    pub apart: u32,
    /// The effect of shifts among the ranks of each unit, the same in all units.
    pub inside: Symmetry,
    /// The number of ranks of such a unit; they are consecutive.
    pub unit: u32,
}

impl Shifts {
    /// No two ranks do the same.
    pub const NONE: Shifts = Shifts {
        all: Symmetry::None,
        apart: 1,
        inside: Symmetry::None,
        unit: 1,
    };

    fn of_all(all: Symmetry, apart: u32) -> Self {
        Shifts {
            all,
            apart,
            ..Shifts::NONE
        }
    }

    fn rotation(apart: Option<u32>) -> Self {
        apart.map_or(Shifts::NONE, |apart| {
            Shifts::of_all(Symmetry::Rotation, apart)
        })
    }
}

impl Selection {
    /// The ranks whose programs are the same, but for their numbers, in a group of this topology.
    /// Units of one size with consecutive ranks are interchangeable as far as their owners are; the
    /// ranks of a unit are, if each owns a slice.
    pub fn shifts(&self, request: &ScheduleRequest) -> Shifts {
        match self.algorithm.requires.parts {
            Parts::None => Shifts::of_all(self.algorithm.symmetry, 1),
            Parts::Count { period, .. } => Shifts::rotation(self.asked(request, period)),
            Parts::Units => Shifts::NONE,
            Parts::Levels { .. } => self.shifts_of_units(request),
        }
    }

    fn shifts_of_units(&self, request: &ScheduleRequest) -> Shifts {
        let seen = request.topology.seen_by(self.levels());
        let mut topology = seen.as_ref();
        let (Some(top), Some(outermost)) = (self.top(), topology.even_unit()) else {
            return Shifts::NONE;
        };
        let unit = topology.unit_size(0);
        for _ in 0..self.levels().min(topology.depth()) {
            topology = topology.outer();
        }
        let owners = ScheduleRequest {
            ranks: topology.ranks(),
            topology,
            parts: &[],
            ..*request
        };
        let among = match top.requires.parts {
            Parts::None => Shifts::of_all(top.symmetry, outermost),
            Parts::Count { period, .. } => {
                let of_owner = request.ranks / owners.ranks;
                Shifts::rotation(period(&owners).map(|apart| apart * of_owner))
            }
            Parts::Units | Parts::Levels { .. } => Shifts::NONE,
        };
        Shifts {
            inside: self
                .innermost()
                .map_or(Symmetry::None, InsideComponent::symmetry),
            unit,
            ..among
        }
    }
}
