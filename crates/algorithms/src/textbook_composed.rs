//! What composed algorithms cost according to their sources, from the lines of their parts.
//!
//! [Note: Dimensions] In units of a ranks, of which there are h, a message of n: the inside of units costs what its component costs for
//! a ranks and n. Where every rank owns a slice (Cho et al. 2019: "dimensions"), each then takes part in what is between units for h
//! ranks and n / a; where a leader owns everything (Jia et al. 2018), only leaders do, for h ranks and n. Steps add up, and so does
//! what all ranks send. With units of several sizes everybody waits for the largest, and slices differ in size: the formulas give what all
//! ranks send together, and bound steps and what one of them sends.

use weft_schedule::{Collective, Share};

use crate::hierarchy::{algorithm, memory};
use crate::units::{Owners, Units};
use crate::{
    Algorithm, Inner, Memory, Part, Parts, Request, Selection, Sizes, Terms, Textbook, Topology,
    Volume,
};

impl Selection {
    /// What it costs according to its source in a group of several ranks. `None` for what is composed, in symmetric memory: there the
    /// parts tell each other of their entries at once.
    pub fn textbook(&self, request: &Request) -> Option<Textbook> {
        match self.algorithm.requires.parts {
            Parts::None => Some(alone(self.algorithm, request.ranks, request.memory)),
            Parts::Count { textbook, .. } => Some(self.asked(request, textbook)),
            Parts::Levels { .. } if request.memory == Memory::Symmetric => None,
            Parts::Levels {
                inner,
                owners,
                quote,
                ..
            } => {
                let levels = |request: &Request| Levels { inner, owners }.textbook(request);
                let found = levels(&Request {
                    parts: &self.parts,
                    topology: &request.topology.seen_by(self.levels()),
                    ..*request
                });
                Some(Textbook { quote, ..found })
            }
        }
    }
}

impl Algorithm {
    /// The source of its formulas and what it says, or what is obvious without one.
    pub fn quote(&self) -> &'static str {
        let topology = Topology::flat(2);
        match self.requires.parts {
            Parts::None => alone(self, 2, Memory::Ordinary).quote,
            Parts::Levels { quote, .. } => quote,
            Parts::Count { textbook, .. } => {
                let request = Request {
                    collective: Collective::AllReduce,
                    ranks: 2,
                    rank: 0,
                    memory: Memory::Ordinary,
                    sizes: Sizes::Equal,
                    topology: &topology,
                    parts: &[],
                };
                textbook(&request).quote
            }
        }
    }
}

/// How an algorithm is composed.
struct Levels {
    inner: &'static [Inner],
    owners: Owners,
}

impl Levels {
    fn textbook(&self, request: &Request) -> Textbook {
        match request.parts {
            [Part::Algorithm(_)] => {
                let top = algorithm(request.collective, request.parts[0]);
                match top.requires.parts {
                    Parts::Count { textbook, .. } => textbook(&Request {
                        parts: &[],
                        ..*request
                    }),
                    _ => alone(top, request.ranks, request.memory),
                }
            }
            [_, outer @ ..] if request.topology.depth() == 0 => self.textbook(&Request {
                parts: outer,
                ..*request
            }),
            [inside, outer @ ..] => self.level(request, *inside, outer),
            [] => unreachable!("a composed algorithm has components"),
        }
    }

    fn level(&self, request: &Request, inside: Part, outer: &[Part]) -> Textbook {
        let units = Units::new(request, self.owners);
        let named = |inner: &&Inner| inside == Part::Algorithm(inner.name);
        let component = self.inner.iter().find(named);
        let phase = |algorithm: Option<&Algorithm>, ranks| {
            algorithm.map_or(NOTHING, |of| alone(of, ranks, memory(request)))
        };
        let between = match units.count() {
            1 => NOTHING,
            ranks => self.textbook(&Request {
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
            ..between
        };
        for ranks in units.lengths() {
            let inward = phase(component.and_then(|c| c.inward), ranks);
            let outward = phase(component.and_then(|c| c.outward), ranks);
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
const NOTHING: Textbook = Textbook {
    quote: "",
    steps: 0,
    sent: Volume::NOTHING,
    read: Volume::NOTHING,
};

/// What an algorithm without parts costs; one rank alone does not communicate.
fn alone(algorithm: &Algorithm, ranks: u32, memory: Memory) -> Textbook {
    match algorithm.textbook {
        Some(textbook) if ranks > 1 => textbook(&Terms::new(ranks, memory)),
        _ => NOTHING,
    }
}

/// What each rank but the busiest moves.
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
