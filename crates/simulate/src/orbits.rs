//! Which ranks stand for all: the symmetry of an algorithm together with that of the machine.
//!
//! [Note: Representatives] Let a shift (a rotation by k, or an exclusive or with k) map every host to a host, every switch to a switch,
//! and the program of each rank to the program of its image. Then it maps every play to a play. As the play is unique,
//! all images of a rank do the same at the same times, so one rank of each orbit is enough: here those of the first
//! *unit*, which is a host or what hangs on the outermost switch that matters.
//! What a representative is sent comes from some rank outside; at that very time the image of that rank in the first unit sends the
//! image of the message. So each message of a representative to a peer is delivered to the representative of the peer, as coming from
//! the image of the sender under the shift that takes the peer there. The same holds for flows: on the resources of the
//! first unit there is, for each flow that leaves it, the image of one that enters it, at the same rate.

use weft_algorithms::Symmetry;
use weft_schedule::Rank;

use crate::Machine;

/// How a rank's representative is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shift {
    Identity,
    Rotation,
    Exclusive,
}

/// The classes of ranks that do the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Orbits {
    shift: Shift,
    ranks: u32,
    unit: u32,
}

impl Orbits {
    /// Every rank stands for itself alone.
    pub(crate) fn trivial(ranks: u32) -> Self {
        Orbits {
            shift: Shift::Identity,
            ranks,
            unit: ranks,
        }
    }

    /// The classes under this symmetry of the programs by multiples of so many ranks, as far as the machine has it too.
    pub(crate) fn of(machine: &Machine, symmetry: Symmetry, apart: u32) -> Self {
        let ranks = machine.ranks();
        let trivial = Orbits::trivial(ranks);
        let even = machine.hosts.iter().all(|host| *host == machine.hosts[0]);
        if !even || !machine.is_uniform() {
            return trivial;
        }
        let hosts = machine.hosts.len() as u32;
        let matters = |switch: &&crate::Switch| {
            (switch.oversubscription > 1.0 || switch.latency_s > 0.0) && switch.hosts < hosts
        };
        let outermost = machine.switches.iter().rev().find(matters);
        let unit = machine.hosts[0] * outermost.map_or(1, |switch| switch.hosts);
        let (least, unit) = (unit, unit.max(apart));
        if !ranks.is_multiple_of(unit) || !unit.is_multiple_of(apart) || !unit.is_multiple_of(least)
        {
            return trivial;
        }
        let shift = match symmetry {
            Symmetry::None => return trivial,
            Symmetry::Rotation => Shift::Rotation,
            Symmetry::Exclusive if ranks.is_power_of_two() && unit.is_power_of_two() => {
                Shift::Exclusive
            }
            Symmetry::Exclusive => return trivial,
        };
        Orbits { shift, ranks, unit }
    }

    /// How many ranks are played: the first ones.
    pub(crate) fn representatives(&self) -> u32 {
        self.unit
    }

    /// Whether some ranks are not played.
    pub(crate) fn shorten(&self) -> bool {
        self.unit < self.ranks
    }

    /// The rank that stands for this one.
    pub(crate) fn representative(&self, rank: Rank) -> Rank {
        rank % self.unit
    }

    /// As whom the representative of `peer` sees the representative `rank`, when that one talks to `peer`.
    pub(crate) fn image(&self, rank: Rank, peer: Rank) -> Rank {
        let by = peer - self.representative(peer);
        match self.shift {
            Shift::Identity => rank,
            Shift::Rotation => (rank + self.ranks - by) % self.ranks,
            Shift::Exclusive => rank ^ by,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Host, Link, Switch};

    fn machine(ranks: u32, hosts: u32) -> Machine {
        Machine::even(ranks, hosts, Host::default(), Link::default()).unwrap()
    }

    #[test]
    fn the_first_host_stands_for_all() {
        let orbits = Orbits::of(&machine(12, 4), Symmetry::Rotation, 1);
        assert_eq!(orbits.representatives(), 3);
        // Rank 1 talks to rank 5 of the second host: rank 2 is told by rank 10, of the last.
        assert_eq!((orbits.representative(5), orbits.image(1, 5)), (2, 10));
        let orbits = Orbits::of(&machine(16, 4), Symmetry::Exclusive, 1);
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
        assert_eq!(
            Orbits::of(&machine, Symmetry::Rotation, 1).representatives(),
            6
        );
        machine.switches[0].oversubscription = 1.0;
        assert_eq!(
            Orbits::of(&machine, Symmetry::Rotation, 1).representatives(),
            2
        );
    }

    #[test]
    fn what_is_not_alike_is_played_in_full() {
        let uneven = Machine {
            hosts: vec![2, 3],
            ..machine(4, 2)
        };
        let mut varied = machine(4, 2);
        varied.variation.slowdown_max = 0.1;
        for machine in [uneven, varied] {
            assert!(!Orbits::of(&machine, Symmetry::Rotation, 1).shorten());
        }
        assert!(!Orbits::of(&machine(4, 2), Symmetry::None, 1).shorten());
        assert!(!Orbits::of(&machine(6, 3), Symmetry::Exclusive, 1).shorten());
    }
}
