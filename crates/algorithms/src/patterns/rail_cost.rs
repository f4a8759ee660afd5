//! Costs of programs that are written for units: the work of each role, and phases in which roles
//! differ.

use std::collections::BTreeMap;

use crate::ScheduleRequest;
use crate::cost::{Cost, Phase};
use crate::patterns::rails::units;

/// The work, for costs, of all ranks that have this number of fellows.
#[derive(Clone, Copy)]
pub(crate) struct Role {
    /// The ranks of its unit, itself included.
    pub(crate) members: u32,
    /// The ranks of other units that meet it.
    pub(crate) meeting: u32,
    /// Those that meet the other ranks of its unit.
    pub(crate) meeting_others: u32,
}

/// The numbers that costs are made of.
pub(crate) struct RailCounts {
    pub(crate) units: u32,
    /// The ranks of the largest unit.
    pub(crate) largest: u32,
    /// Every role that ranks have.
    pub(crate) roles: Vec<Role>,
    /// The blocks that pass the busiest border where every block passes each once that it has to.
    pub(crate) crossing: f64,
}

impl RailCounts {
    pub(crate) fn new(request: &ScheduleRequest) -> Self {
        let mut units_of_size = BTreeMap::new();
        for unit in units(request).iter() {
            *units_of_size.entry(unit.len() as u32).or_insert(0_u32) += 1;
        }
        let units = units_of_size.values().sum();
        let role = |members: u32, place: u32| {
            let of_sizes = units_of_size.iter().map(|(size, count)| {
                let count = count - u32::from(*size == members);
                count * size.saturating_sub(place).div_ceil(members)
            });
            let meeting = of_sizes.sum();
            Role {
                members,
                meeting,
                meeting_others: request.ranks - members - meeting,
            }
        };
        let sizes = || units_of_size.keys().copied();
        let border = sizes().map(|size| (request.ranks - size).max(size * (units - 1)));
        let level = request.topology.hosts_level();
        RailCounts {
            units,
            largest: sizes().max().unwrap_or(1),
            roles: sizes()
                .flat_map(|size| (0..size).map(move |place| (size, place)))
                .map(|(size, place)| role(size, place))
                .collect(),
            crossing: match level {
                Some(_) => f64::from(border.max().unwrap_or_default()),
                None => 0.0,
            },
        }
    }

    /// Whether any rank has a peer in its unit.
    pub(crate) fn inside(&self) -> bool {
        self.largest > 1
    }

    /// Whether there is anything between units.
    pub(crate) fn between(&self) -> bool {
        self.units > 1
    }
}

/// The cost of two phases with different work of ranks. In a phase that does not take place,
/// nothing is sent; its copies and reductions count in the other one.
pub(crate) fn two_phases(
    request: &ScheduleRequest,
    takes_place: [bool; 2],
    roles: impl IntoIterator<Item = [Phase; 2]>,
) -> Cost {
    let roles = roles.into_iter().map(|[mut one, mut other]| {
        [one.rounds, other.rounds] = takes_place.map(u32::from);
        let (idle, busy) = match takes_place[0] {
            false => (&one, &mut other),
            true => (&other, &mut one),
        };
        if idle.rounds == 0 {
            busy.copied += idle.copied;
            busy.reduced += idle.reduced;
        }
        vec![one, other]
    });
    Cost::of_busiest(request, roles)
}
