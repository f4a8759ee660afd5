//! What a collective in phases costs: its components' costs, each at its share of the message.
//!
//! Inside a unit, ranks differ: a leader sends where others receive, and units differ in size. There are few ranks in a unit, so
//! what each of them moves is counted in the components' programs; per figure, the rank that moves most in all phases together
//! gives the figures of every phase. Rounds are those of the largest unit.

use weft_schedule::{Grid, Rank, Schedule, Slice, Step};

use crate::cost::{Cost, Phase};
use crate::hierarchy::{Scheme, algorithm, memory};
use crate::units::Units;
use crate::{Algorithm, Request, Sizes, Topology};

/// The cost of what [`hierarchy::build`](crate::hierarchy::build) makes.
pub(crate) fn cost(request: &Request, scheme: Scheme) -> Cost {
    match request.parts {
        [] => panic!("a composed {} needs components", request.collective),
        [top] => (algorithm(request.collective, *top).cost)(&Request {
            parts: &[],
            ..*request
        }),
        [_, outer @ ..] if request.topology.depth() == 0 => cost(
            &Request {
                parts: outer,
                ..*request
            },
            scheme,
        ),
        _ => level_cost(request, scheme),
    }
}

fn level_cost(request: &Request, scheme: Scheme) -> Cost {
    let units = Units::new(request, scheme.owners);
    let component = scheme.component(request.parts[0]);
    let [inward, outward] = [(component.inward, true), (component.outward, false)]
        .map(|(algorithm, inward)| Some(Inside::new(request, scheme, &units, algorithm?, inward)));
    let middle = (units.count() > 1).then(|| {
        cost(
            &Request {
                collective: units.among_owners(request.collective),
                ranks: units.count(),
                rank: 0,
                memory: memory(request),
                topology: &request.topology.without_innermost(),
                parts: &request.parts[1..],
                ..*request
            },
            scheme,
        )
    });
    let middle = middle.unwrap_or_default();
    let moved_among = Moved::of(&middle);

    let mut roles = Vec::new();
    for (index, size) in units.sizes().enumerate() {
        for member in 0..size as usize {
            let owned = units.owned_share(size, member as u32);
            let moved = |inside: &Option<Inside>| match inside {
                Some(inside) => inside.moved[index][member],
                None => Moved::default(),
            };
            roles.push([moved(&inward), moved_among.times(owned), moved(&outward)]);
        }
    }
    let busiest = Moved::busiest(&roles);
    let segments = units.segments_of_one;
    let mut phases = Vec::new();
    phases.extend(
        inward
            .map(|inside| busiest[0].applied_to(inside.cost))
            .into_iter()
            .flatten(),
    );
    let taken_in_turns = middle.phases.into_iter().map(|phase| Phase {
        messages: phase.messages * segments,
        share: phase.share / f64::from(segments),
        ..phase
    });
    phases.extend(busiest[1].applied_to(Cost {
        phases: taken_in_turns.collect(),
    }));
    phases.extend(
        outward
            .map(|inside| busiest[2].applied_to(inside.cost))
            .into_iter()
            .flatten(),
    );
    Cost { phases }
}

/// What happens inside units, before or after the owners' exchange.
struct Inside {
    /// In the largest unit.
    cost: Cost,
    /// By size of units, then by member.
    moved: Vec<Vec<Moved>>,
}

impl Inside {
    fn new(
        request: &Request,
        scheme: Scheme,
        units: &Units,
        algorithm: &Algorithm,
        inward: bool,
    ) -> Self {
        let mut inside = Inside {
            cost: Cost::default(),
            moved: Vec::new(),
        };
        for size in units.sizes() {
            let topology = Topology::flat(size);
            let part = Request {
                collective: scheme.owners.inside(inward, 0),
                ranks: size,
                rank: 0,
                memory: memory(request),
                sizes: Sizes::Equal,
                topology: &topology,
                parts: &[],
            };
            inside.cost = (algorithm.cost)(&part);
            let program = |rank: Rank| (algorithm.build)(&Request { rank, ..part });
            inside.moved.push(match size {
                1 => vec![Moved::default()],
                _ => Moved::by_rank((0..size).map(program)),
            });
        }
        inside
    }
}

/// What one rank moves, as shares of the message.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Moved {
    sent: f64,
    received: f64,
    read: f64,
    reduced: f64,
    copied: f64,
}

impl Moved {
    fn of(cost: &Cost) -> Self {
        Moved {
            sent: cost.sum(Phase::sent),
            received: cost.sum(|phase| phase.received),
            read: cost.sum(|phase| phase.read),
            reduced: cost.sum(|phase| phase.reduced),
            copied: cost.sum(|phase| phase.copied),
        }
    }

    /// By the ranks of a component's programs. What is copied from the input to the output is already there.
    fn by_rank(programs: impl ExactSizeIterator<Item = Schedule>) -> Vec<Self> {
        let mut moved = vec![Moved::default(); programs.len()];
        for program in programs {
            for step in &program.steps {
                Moved::count(&mut moved, &program, step);
            }
        }
        moved
    }

    fn count(moved: &mut [Moved], program: &Schedule, step: &Step) {
        let (dsts, srcs, reduces) = match step {
            Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src), false),
            Step::Reduce { dsts, srcs, .. } => (dsts, srcs.as_slice(), true),
            Step::Signal { .. } | Step::Wait { .. } => return,
        };
        let rank = program.rank;
        let share = share_of(&srcs[0], &program.grid);
        for dst in dsts.iter().filter(|dst| dst.rank != rank) {
            moved[dst.rank as usize].received += share;
        }
        let far = |slices: &[Slice]| slices.iter().filter(|s| s.rank != rank).count() as f64;
        let own = &mut moved[rank as usize];
        own.sent += far(dsts) * share;
        own.read += far(srcs) * share;
        if reduces {
            own.reduced += srcs.len() as f64 * share;
        } else if srcs[0].rank == rank {
            let kept = |dst: &&Slice| dst.rank == rank && !in_place(dst, &srcs[0]);
            own.copied += dsts.iter().filter(kept).count() as f64 * share;
        }
    }

    fn times(self, factor: f64) -> Self {
        self.each(|value| value * factor)
    }

    fn each(self, change: impl Fn(f64) -> f64) -> Self {
        Moved {
            sent: change(self.sent),
            received: change(self.received),
            read: change(self.read),
            reduced: change(self.reduced),
            copied: change(self.copied),
        }
    }

    /// By phase: each figure of the role for which its sum over all phases is greatest.
    fn busiest(roles: &[[Moved; 3]]) -> [Moved; 3] {
        let most = |figure: fn(&Moved) -> f64| {
            let sum = |role: &[Moved; 3]| role.iter().map(figure).sum::<f64>();
            let busiest = roles.iter().max_by(|a, b| sum(a).total_cmp(&sum(b)));
            busiest.map_or([0.0; 3], |role| [0, 1, 2].map(|phase| figure(&role[phase])))
        };
        let figures = [
            most(|moved| moved.sent),
            most(|moved| moved.received),
            most(|moved| moved.read),
            most(|moved| moved.reduced),
            most(|moved| moved.copied),
        ];
        [0, 1, 2].map(|phase| Moved {
            sent: figures[0][phase],
            received: figures[1][phase],
            read: figures[2][phase],
            reduced: figures[3][phase],
            copied: figures[4][phase],
        })
    }

    /// The phases of a cost, with these figures in all.
    fn applied_to(self, cost: Cost) -> Vec<Phase> {
        let all = Moved::of(&cost);
        let factor = |wanted: f64, found: f64| if found > 0.0 { wanted / found } else { 0.0 };
        let phases = cost.phases.into_iter();
        let changed = phases.map(|phase| Phase {
            messages: if self.sent > 0.0 { phase.messages } else { 0 },
            share: match self.sent > 0.0 {
                true => phase.share * factor(self.sent, all.sent),
                false => phase.share,
            },
            received: phase.received * factor(self.received, all.received),
            read: phase.read * factor(self.read, all.read),
            reduced: phase.reduced * factor(self.reduced, all.reduced),
            copied: phase.copied * factor(self.copied, all.copied),
            ..phase
        });
        changed.collect()
    }
}

fn share_of(slice: &Slice, grid: &Grid) -> f64 {
    match grid {
        Grid::Equal(chunks) | Grid::Blocks(chunks) => {
            slice.chunks.len() as f64 / f64::from(*chunks)
        }
        Grid::Cuts(cuts) => {
            let at = |chunk: u32| {
                let cut = cuts[chunk as usize];
                f64::from(cut.numerator) / f64::from(cut.denominator)
            };
            at(slice.chunks.end) - at(slice.chunks.start)
        }
    }
}

/// Whether both are the user's memory of one rank, which is one and the same in a composed program.
fn in_place(a: &Slice, b: &Slice) -> bool {
    use weft_schedule::Buffer::{Input, Output};
    let user = |slice: &Slice| matches!(slice.buffer, Input | Output);
    a.rank == b.rank && user(a) && user(b)
}
