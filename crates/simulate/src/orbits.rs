//! Representative ranks: the common symmetry of an algorithm and of the machine.
//!
//! [Note: Representatives] Let a shift (a rotation by k, or an exclusive or with k, of all ranks,
//! or of the ranks of every host among themselves) map every host to a host, every switch to a
//! switch, and the program of each rank to the program of its image. Then it maps every simulation
//! to a simulation. As the simulation is unique, all images of a rank do the same at the same
//! times, so one rank of each orbit is enough: here the first of each *crew*, the ranks of a host
//! that shifts inside hosts take to each other, in the first *section*, which is a host or the
//! hosts below the outermost switch that matters. A message to a representative comes from some
//! rank outside; at that very time the image of that rank in the first section sends the image of
//! the message. So each message of a representative to a peer is delivered to the representative of
//! the peer, as coming from the image of the sender under the shift that takes the peer there. The
//! same holds for flows: on the resources of the first section there is, for each flow that leaves
//! it, the image of one that enters it, at the same rate. And where only some of the ranks that
//! share a resource are simulated, as many of the others' flows have the same rate at all times:
//! the same rates come out if those that are simulated have their part of the resource to
//! themselves.

use weft_algorithms::{Shifts, Symmetry};
use weft_schedule::Rank;

use crate::Machine;

/// Where a shift takes ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shift {
    Identity,
    Rotation,
    Exclusive,
}

impl Shift {
    /// The shift by multiples of `apart` among this many ranks, if the symmetry allows it.
    fn of(symmetry: Symmetry, ranks: u32, apart: u32) -> Self {
        let exclusive = ranks.is_power_of_two() && apart.is_power_of_two();
        match symmetry {
            _ if !ranks.is_multiple_of(apart) || ranks == apart => Shift::Identity,
            Symmetry::Rotation => Shift::Rotation,
            Symmetry::Exclusive if exclusive => Shift::Exclusive,
            Symmetry::Exclusive | Symmetry::None => Shift::Identity,
        }
    }

    /// The image of a rank under the shift, among this many ranks, that maps `by` to 0.
    fn back(self, rank: u32, by: u32, ranks: u32) -> u32 {
        match self {
            Shift::Identity => rank,
            Shift::Rotation => (rank + ranks - by) % ranks,
            Shift::Exclusive => rank ^ by,
        }
    }
}

/// The classes of ranks that do the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Orbits {
    ranks: u32,
    /// The shift by multiples of a section.
    of_sections: Shift,
    /// The ranks of a section.
    section: u32,
    /// The shift of the ranks of every crew.
    of_crews: Shift,
    /// The ranks of a crew.
    crew: u32,
}

impl Orbits {
    /// Every rank stands for itself alone.
    pub(crate) fn trivial(ranks: u32) -> Self {
        Orbits {
            ranks,
            of_sections: Shift::Identity,
            section: ranks,
            of_crews: Shift::Identity,
            crew: 1,
        }
    }

    /// The classes under these symmetries of the programs, as far as the machine has them too.
    pub(crate) fn of(machine: &Machine, shifts: Shifts) -> Self {
        let trivial = Orbits::trivial(machine.ranks());
        let even = machine.hosts.iter().all(|host| *host == machine.hosts[0]);
        if !even || !machine.is_uniform() {
            return trivial;
        }
        trivial
            .with_sections(machine, shifts)
            .with_crews(machine, shifts)
    }

    fn with_sections(self, machine: &Machine, shifts: Shifts) -> Self {
        let hosts = machine.hosts.len() as u32;
        let matters = |switch: &&crate::Switch| {
            (switch.oversubscription > 1.0 || switch.latency_s > 0.0) && switch.hosts < hosts
        };
        let outermost = machine.switches.iter().rev().find(matters);
        // One host is mapped to itself by any shift.
        let least = match hosts {
            1 => 1,
            _ => machine.hosts[0] * outermost.map_or(1, |switch| switch.hosts),
        };
        let section = least.max(shifts.apart);
        let of_sections = Shift::of(shifts.all, self.ranks, section);
        let fits = section.is_multiple_of(shifts.apart) && section.is_multiple_of(least);
        match of_sections {
            Shift::Rotation | Shift::Exclusive if fits => Orbits {
                of_sections,
                section,
                ..self
            },
            _ => self,
        }
    }

    fn with_crews(self, machine: &Machine, shifts: Shifts) -> Self {
        let of_crews = Shift::of(shifts.inside, shifts.unit, 1);
        let fits = machine.hosts[0].is_multiple_of(shifts.unit)
            && self.section.is_multiple_of(shifts.unit);
        match of_crews {
            Shift::Rotation | Shift::Exclusive if fits => Orbits {
                of_crews,
                crew: shifts.unit,
                ..self
            },
            _ => self,
        }
    }

    /// How many ranks are simulated.
    pub(crate) fn representatives(&self) -> u32 {
        self.section / self.crew
    }

    /// Whether some ranks are not simulated.
    pub(crate) fn shorten(&self) -> bool {
        self.representatives() < self.ranks
    }

    /// Whether every host is simulated, by one rank at least.
    pub(crate) fn every_host(&self) -> bool {
        self.section == self.ranks
    }

    /// The simulated part of the ranks that share a resource, for resources that `sharing` ranks
    /// share.
    pub(crate) fn part(&self, sharing: u32) -> f64 {
        f64::from(self.representatives()) / f64::from(self.section.max(sharing))
    }

    /// Which representative stands for a rank.
    pub(crate) fn representative(&self, rank: Rank) -> u32 {
        rank % self.section / self.crew
    }

    /// Which rank a representative is.
    pub(crate) fn rank(&self, representative: u32) -> Rank {
        representative * self.crew
    }

    /// As whom the representative of `peer` sees the representative `rank`, when that one talks to
    /// `peer`.
    pub(crate) fn image(&self, rank: Rank, peer: Rank) -> Rank {
        let (section, place) = (peer - peer % self.section, peer % self.crew);
        let rank = self.of_sections.back(rank, section, self.ranks);
        let member = rank % self.crew;
        rank - member + self.of_crews.back(member, place, self.crew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, NetworkLink, Switch};

    fn machine(ranks: u32, hosts: u32) -> Machine {
        Machine::even(ranks, hosts, Host::default(), NetworkLink::default()).unwrap()
    }

    fn rotation() -> Shifts {
        Shifts {
            all: Symmetry::Rotation,
            ..Shifts::NONE
        }
    }

    fn exclusive() -> Shifts {
        Shifts {
            all: Symmetry::Exclusive,
            ..Shifts::NONE
        }
    }

    #[test]
    fn one_rank_represents_its_crew() {
        let shifts = Shifts {
            inside: Symmetry::Rotation,
            unit: 3,
            ..Shifts::NONE
        };
        let orbits = Orbits::of(&machine(12, 2), shifts);
        assert_eq!((orbits.representatives(), orbits.part(6)), (4, 1.0 / 3.0));
        assert!(orbits.shorten() && orbits.every_host());
        // Rank 6 sends to rank 5, of the second crew: rank 3 receives from rank 7.
        assert_eq!((orbits.rank(2), orbits.representative(5)), (6, 1));
        assert_eq!(orbits.image(6, 5), 7);
        let both = Shifts {
            all: Symmetry::Rotation,
            apart: 3,
            ..shifts
        };
        let orbits = Orbits::of(&machine(12, 2), both);
        assert_eq!((orbits.representatives(), orbits.image(3, 11)), (2, 10));
    }

    #[test]
    fn one_host_is_mapped_to_itself() {
        let orbits = Orbits::of(&machine(8, 1), rotation());
        assert_eq!((orbits.representatives(), orbits.part(8)), (1, 0.125));
        assert_eq!(Orbits::of(&machine(8, 1), exclusive()).representatives(), 1);
        assert!(!Orbits::of(&machine(6, 1), exclusive()).shorten());
    }

    #[test]
    fn the_first_host_stands_for_all() {
        let orbits = Orbits::of(&machine(12, 4), rotation());
        assert_eq!(orbits.representatives(), 3);
        // Rank 1 sends to rank 5 of the second host: rank 2 receives from rank 10, of the last.
        assert_eq!((orbits.representative(5), orbits.image(1, 5)), (2, 10));
        let orbits = Orbits::of(&machine(16, 4), exclusive());
        assert_eq!((orbits.representative(13), orbits.image(1, 13)), (1, 13));
    }

    #[test]
    fn a_switch_that_matters_makes_a_unit() {
        let mut machine = machine(24, 12);
        machine.switches = vec![Switch {
            hosts: 3,
            oversubscription: 2.0,
            latency_s: 0.0,
        }];
        assert_eq!(Orbits::of(&machine, rotation()).representatives(), 6);
        machine.switches[0].oversubscription = 1.0;
        assert_eq!(Orbits::of(&machine, rotation()).representatives(), 2);
    }

    #[test]
    fn asymmetric_ranks_are_simulated_in_full() {
        let uneven = Machine {
            hosts: vec![2, 3],
            ..machine(4, 2)
        };
        let mut varied = machine(4, 2);
        varied.variation.slowdown_max = 0.1;
        for machine in [uneven, varied] {
            assert!(!Orbits::of(&machine, rotation()).shorten());
        }
        assert!(!Orbits::of(&machine(4, 2), Shifts::NONE).shorten());
        assert!(!Orbits::of(&machine(6, 3), exclusive()).shorten());
    }
}
