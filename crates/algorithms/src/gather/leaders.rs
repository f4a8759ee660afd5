//! Gather by leaders: blocks to one leader of each unit, and from there to the root as one message.

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::Phase;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::rail_cost::two_phases;
use crate::patterns::rails::{Rails, UnitArea, largest_unit, units};
use crate::{About, Algorithm, Cost, Costs, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "gather",
    summary: "inside each unit to its leader, which sends the root one message; fewest messages between units",
    about: About {
        how: "The ranks of a unit (a host, say) send their blocks to its leader, which packs them into one \
              message to the root. The root leads its own unit. Equal counts.",
        wins: "Small blocks on many hosts with many ranks each.",
        source: "",
        quote: "all of a unit to one, and one of each unit to the root",
    },
    requires: Requirements::UNITS,
    symmetry: Symmetry::None,
    costs: Costs::OfUnits(
        cost,
        [
            "2: between units, and inside",
            "leaders: N A / P, for A ranks of a unit",
            "",
        ],
    ),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let (units, root) = (units(request), request.root());
    let ranks = request.ranks;
    let share = request.block_share();
    let blocks = |count: u32| f64::from(count) * share;
    let to_root = units.iter().filter(|unit| !unit.contains(&root));
    let to_root = to_root.map(|unit| (unit[0], root, unit.len() as u64));
    let crossing = crossing::of_blocks(request, to_root) * share;
    let role = |inside: Phase, between: Phase| {
        [
            inside,
            Phase {
                crossing,
                ..between
            },
        ]
    };
    let sending = |share| Phase {
        messages: 1,
        share,
        ..Phase::default()
    };
    let mut roles = vec![role(sending(share), Phase::default())];
    for unit in units.iter() {
        let members = unit.len() as u32;
        let landed = Phase {
            received: blocks(members - 1),
            ..Phase::default()
        };
        roles.push(match unit.contains(&root) {
            false => {
                let packed = if members > 1 { blocks(members) } else { 0.0 };
                let collecting = Phase {
                    copied: packed,
                    ..landed
                };
                role(collecting, sending(blocks(members)))
            }
            true => {
                let arriving = Phase {
                    received: blocks(ranks - members),
                    copied: blocks(ranks),
                    ..Phase::default()
                };
                role(landed, arriving)
            }
        });
    }
    let takes_place = [largest_unit(request) > 1, units.len() > 1];
    two_phases(request, takes_place, roles)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    let rails = Rails::new(request);
    let (rank, root) = (request.rank, request.root());
    let unit = rails.members();
    let landed = b.add_receive_buffer(1);
    let packed = UnitArea::new(request, |width| b.add_receive_buffer(width));
    let collected = UnitArea::new(request, |width| b.add_scratch(width));
    let own = block(rank);
    let leader = Rails::leader(unit, root);
    if rank != leader {
        b.copy(vec![b.outbox(leader, landed, own.clone())], b.input(own));
        b.signal(leader);
        return b.build();
    }
    if rank != root && unit.len() == 1 {
        let outbox = b.outbox(root, packed.of(unit, rank), own.clone());
        b.copy(vec![outbox], b.input(own));
        b.signal(root);
        return b.build();
    }
    let place_of = |b: &ProgramBuilder, member: Rank| match rank == root {
        true => b.output(block(member)),
        false => b.scratch(collected.of(unit, member), block(member)),
    };
    // The leader's own block first: others may still be under way.
    b.copy(vec![place_of(&b, rank)], b.input(own));
    for (_, peer) in rails.peers() {
        b.wait(peer);
        let inbox = b.inbox(peer, landed, block(peer));
        b.copy(vec![place_of(&b, peer)], inbox);
    }
    if rank != root {
        for ((run, to), (_, from)) in packed.runs(unit).zip(collected.runs(unit)) {
            let outbox = b.outbox(root, to, run.clone());
            b.copy(vec![outbox], b.scratch(from, run));
        }
        b.signal(root);
        return b.build();
    }
    for unit in rails.others() {
        b.wait(unit[0]);
        for (run, area) in packed.runs(unit) {
            let inbox = b.inbox(unit[0], area, run.clone());
            b.copy(vec![b.output(run)], inbox);
        }
    }
    b.build()
}
