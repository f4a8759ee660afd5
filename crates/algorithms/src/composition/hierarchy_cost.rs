//! Cost of a collective in phases: the costs of its components, each at its share of the message.
//!
//! Inside a unit, ranks differ: a leader sends where others receive, and units differ in size.
//! There are few ranks in a unit, so each rank's traffic is counted in the components' programs;
//! per figure, the rank that moves most in all phases together gives the figures of every phase.
//! Rounds are those of the largest unit.

use weft_schedule::{Rank, Schedule};

use crate::composition::hierarchy::{Scheme, algorithm, memory};
use crate::cost::latency;
use crate::cost::latency::shortened;
use crate::cost::moved::Moved;
use crate::cost::{Cost, Phase};
use crate::patterns::units::Units;
use crate::{Algorithm, ScheduleRequest, Sizes, Topology};

/// The cost of the programs of [`hierarchy::build`](crate::composition::hierarchy::build).
pub(crate) fn cost(request: &ScheduleRequest, scheme: Scheme) -> Cost {
    match request.parts {
        [] => panic!("a composed {} needs components", request.collective),
        [top] => algorithm(request.collective, *top).cost(&ScheduleRequest {
            parts: &[],
            ..*request
        }),
        [_, outer @ ..] if request.topology.depth() == 0 => cost(
            &ScheduleRequest {
                parts: outer,
                ..*request
            },
            scheme,
        ),
        _ => level_cost(request, scheme),
    }
}

fn level_cost(request: &ScheduleRequest, scheme: Scheme) -> Cost {
    let units = Units::new(request, scheme.owners);
    let component = scheme.component(request.parts[0]);
    let [inward, outward] =
        [(component.inward, true), (component.outward, false)].map(|(algorithm, inward)| {
            Some(InsideCost::new(request, scheme, &units, algorithm?, inward))
        });
    let middle = (units.count() > 1).then(|| {
        cost(
            &ScheduleRequest {
                collective: units.among_owners(request.collective),
                ranks: units.count(),
                rank: 0,
                memory: memory(request),
                topology: request.topology.outer(),
                parts: &request.parts[1..],
                ..*request
            },
            scheme,
        )
    });
    let middle = middle.unwrap_or_default();
    let [inward, outward] = overlapped(&units, inward, &middle, outward);
    let moved_among = Moved::of(&middle);

    let mut roles = Vec::new();
    for (index, size) in units.sizes().enumerate() {
        for member in 0..size as usize {
            let owned = units.owned_share(size, member as u32);
            let moved = |inside: &Option<InsideCost>| match inside {
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

/// The cost of a phase inside units, before or after the owners' exchange.
struct InsideCost {
    /// In the largest unit.
    cost: Cost,
    /// By size of units, then by member.
    moved: Vec<Vec<Moved>>,
    /// The programs of the largest unit.
    programs: Vec<Schedule>,
}

impl InsideCost {
    fn new(
        request: &ScheduleRequest,
        scheme: Scheme,
        units: &Units,
        algorithm: &Algorithm,
        inward: bool,
    ) -> Self {
        let mut inside = InsideCost {
            cost: Cost::default(),
            moved: Vec::new(),
            programs: Vec::new(),
        };
        for size in units.sizes() {
            let topology = Topology::flat(size);
            let part = ScheduleRequest {
                collective: scheme.owners.inside(inward, 0),
                ranks: size,
                rank: 0,
                memory: memory(request),
                sizes: Sizes::Equal,
                topology: &topology,
                parts: &[],
            };
            inside.cost = algorithm.cost(&part);
            let program = |rank: Rank| (algorithm.build)(&ScheduleRequest { rank, ..part });
            inside.programs = (0..size).map(program).collect();
            inside.moved.push(match size {
                1 => vec![Moved::default()],
                _ => Moved::by_rank(&inside.programs),
            });
        }
        inside
    }

    fn rounds(&self) -> u32 {
        rounds(&self.cost)
    }
}

fn rounds(cost: &Cost) -> u32 {
    cost.phases.iter().map(|phase| phase.rounds).sum()
}

/// Leaves out rounds that overlap with others: signals, such as those of entries, that ranks send
/// after the owners have all inputs and before the owners know the results.
fn overlapped(
    units: &Units,
    mut inward: Option<InsideCost>,
    middle: &Cost,
    mut outward: Option<InsideCost>,
) -> [Option<InsideCost>; 2] {
    let largest = units.sizes().max().unwrap_or_default();
    let owners = || (0..largest).filter(|member| units.owned_share(largest, *member) > 0.0);
    let mut begun = vec![0; largest as usize];
    if let Some(inward) = &mut inward {
        begun = latency::ends(&inward.programs, begun);
        let known = owners().map(|owner| begun[owner as usize]).max();
        let saved = inward.rounds().saturating_sub(known.unwrap_or_default());
        inward.cost.phases.reverse();
        inward.cost.phases = shortened(std::mem::take(&mut inward.cost.phases), saved);
        inward.cost.phases.reverse();
    }
    // In unequal units, a rank that owns several segments synchronizes the owners of all of them.
    let together = units.sizes().count() > 1;
    let latest = owners().map(|owner| begun[owner as usize]).max();
    for owner in owners() {
        let begun = &mut begun[owner as usize];
        *begun = if together {
            latest.unwrap_or(*begun)
        } else {
            *begun
        } + rounds(middle);
    }
    if let Some(outward) = &mut outward {
        let known = owners().map(|owner| begun[owner as usize]).max();
        let last = latency::ends(&outward.programs, begun).into_iter().max();
        let priced = known.unwrap_or_default() + outward.rounds();
        let saved = priced.saturating_sub(last.unwrap_or_default());
        outward.cost.phases = shortened(std::mem::take(&mut outward.cost.phases), saved);
    }
    [inward, outward]
}
