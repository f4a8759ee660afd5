//! Costs of composed algorithms according to their sources, from the costs of their parts.
//!
//! [Note: Dimensions] In units of a ranks, of which there are h, a message of n: the inside of
//! units costs what its component costs for a ranks and n. Where every rank owns a slice (Cho et
//! al. 2019: "dimensions"), each then takes part in the exchange between units for h ranks and n /
//! a; where a leader owns everything (Jia et al. 2018), only leaders do, for h ranks and n. Steps
//! add up, and so do the bytes that all ranks send. With units of several sizes all ranks wait for
//! the largest, and slices differ in size: the formulas give the bytes of all ranks together, and
//! bound steps and the bytes of one of them.

use weft_schedule::Share;

use crate::composition::hierarchy::{algorithm, memory};
use crate::patterns::units::{Owners, Units};
use crate::{
    Algorithm, InsideComponent, MemoryClass, Part, Parts, ScheduleRequest, Selection, Sizes,
    Textbook, Topology, Volume,
};

impl Selection {
    /// Returns its cost according to its source in a group of several ranks. `None` for
    /// compositions in symmetric memory: there the parts signal their entries together.
    pub fn textbook(&self, request: &ScheduleRequest) -> Option<Textbook> {
        match self.algorithm.requires.parts {
            Parts::Levels { .. } if request.memory == MemoryClass::Symmetric => None,
            Parts::Levels { inner, owners, .. } => Some(self.asked(request, |request| {
                Levels { inner, owners }.textbook(request)
            })),
            Parts::None | Parts::Units | Parts::Count { .. } => {
                self.asked(request, |request| self.algorithm.textbook(request))
            }
        }
    }
}

/// How an algorithm is composed.
struct Levels {
    inner: &'static [InsideComponent],
    owners: Owners,
}

impl Levels {
    fn textbook(&self, request: &ScheduleRequest) -> Textbook {
        match request.parts {
            [top @ Part::Algorithm(_)] => alone(
                algorithm(request.collective, *top),
                &ScheduleRequest {
                    parts: &[],
                    ..*request
                },
            ),
            [_, outer @ ..] if request.topology.depth() == 0 => self.textbook(&ScheduleRequest {
                parts: outer,
                ..*request
            }),
            [inside, outer @ ..] => self.level(request, *inside, outer),
            [] => unreachable!("a composed algorithm has components"),
        }
    }

    fn level(&self, request: &ScheduleRequest, inside: Part, outer: &[Part]) -> Textbook {
        let units = Units::new(request, self.owners);
        let named = |inner: &&InsideComponent| inside == Part::Algorithm(inner.name);
        let component = self.inner.iter().find(named);
        let phase = |algorithm: Option<&Algorithm>, inward, ranks| {
            let inside = ScheduleRequest {
                collective: self.owners.inside(inward, 0),
                ranks,
                rank: 0,
                memory: memory(request),
                sizes: Sizes::Equal,
                topology: &Topology::flat(ranks),
                parts: &[],
            };
            algorithm.map_or(Textbook::NOTHING, |of| alone(of, &inside))
        };
        let between = match units.count() {
            1 => Textbook::NOTHING,
            ranks => self.textbook(&ScheduleRequest {
                collective: units.among_owners(request.collective),
                ranks,
                rank: 0,
                topology: request.topology.outer(),
                parts: outer,
                ..*request
            }),
        };
        let mut all = Textbook {
            steps: 0,
            sent: Volume {
                most: NONE,
                ..between.sent
            },
            read: Volume {
                most: NONE,
                ..between.read
            },
        };
        for ranks in units.lengths() {
            let inward = phase(component.and_then(|c| c.inward), true, ranks);
            let outward = phase(component.and_then(|c| c.outward), false, ranks);
            let steps = inward.steps + between.steps + outward.steps;
            let [sent, read] = match self.owners {
                Owners::Slices => {
                    let busiest = |of: fn(&Textbook) -> Volume| {
                        let [inward, between, outward] = [&inward, &between, &outward].map(of);
                        sum([inward.most, divided(between.most, ranks), outward.most])
                    };
                    [busiest(|phase| phase.sent), busiest(|phase| phase.read)]
                }
                Owners::Leader => [
                    greater(
                        inward.sent.most,
                        sum([between.sent.most, outward.sent.most]),
                    ),
                    greater(
                        inward.read.most,
                        sum([of_others(inward.read, ranks), outward.read.most]),
                    ),
                ],
            };
            all.steps = all.steps.max(steps);
            all.sent.most = greater(all.sent.most, sent);
            all.read.most = greater(all.read.most, read);
            all.sent.total = sum([all.sent.total, inward.sent.total, outward.sent.total]);
            all.read.total = sum([all.read.total, inward.read.total, outward.read.total]);
        }
        all
    }
}

const NONE: Share = Volume::NOTHING.most;

/// The cost of an algorithm without levels.
fn alone(algorithm: &Algorithm, request: &ScheduleRequest) -> Textbook {
    let textbook = algorithm.textbook(request);
    textbook.expect("components have no levels")
}

/// The share of each rank but the busiest.
fn of_others(volume: Volume, ranks: u32) -> Share {
    let (most, total) = (volume.most, volume.total);
    let rest = total.numerator * most.denominator - most.numerator * total.denominator;
    let others = u64::from(ranks - 1).max(1);
    Share::new(rest, total.denominator * most.denominator * others)
}

fn sum<const N: usize>(shares: [Share; N]) -> Share {
    shares.into_iter().fold(NONE, |a, b| {
        Share::new(
            a.numerator * b.denominator + b.numerator * a.denominator,
            a.denominator * b.denominator,
        )
    })
}

fn divided(share: Share, by: u32) -> Share {
    Share::new(share.numerator, share.denominator * u64::from(by))
}

fn greater(a: Share, b: Share) -> Share {
    match a.numerator * b.denominator < b.numerator * a.denominator {
        true => b,
        false => a,
    }
}
