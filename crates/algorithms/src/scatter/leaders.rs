//! Scatter by leaders: the blocks of each unit to its leader as one message, and from there to its
//! ranks.

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::Phase;
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::rail_cost::two_phases;
use crate::patterns::rails::{Rails, UnitArea, largest_unit, units};
use crate::{About, Algorithm, Cost, Costs, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "leaders",
    collective: "scatter",
    summary: "the root sends each unit's leader one message, which forwards the blocks; fewest messages between units",
    about: About {
        how: "The root sends the leader of each unit (a host, say) the blocks of the unit's ranks, one message \
              where these are consecutive, and the leader sends every rank its own. The root leads its own \
              unit. Equal counts.",
        wins: "Small blocks on many hosts with many ranks each.",
        source: "",
        quote: "one to one of each unit, and from there to all of the unit",
    },
    requires: Requirements::UNITS,
    symmetry: Symmetry::None,
    costs: Costs::OfUnits(
        cost,
        ["2: between units, and inside", "root: N (P − 1) / P", ""],
    ),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let (units, root) = (units(request), request.root());
    let ranks = request.ranks;
    let share = request.block_share();
    let blocks = |count: u32| f64::from(count) * share;
    let from_root = units.iter().filter(|unit| !unit.contains(&root));
    let from_root = from_root.map(|unit| (root, unit[0], unit.len() as u64));
    let crossing = crossing::of_blocks(request, from_root) * share;
    let sending = |messages: u32, sent: f64| Phase {
        messages,
        share: sent / f64::from(messages.max(1)),
        ..Phase::default()
    };
    let role = |between: Phase, inside: Phase| {
        [
            Phase {
                crossing,
                ..between
            },
            inside,
        ]
    };
    // A member's block counts inside: all have copied their block then.
    let member = Phase {
        received: share,
        copied: share,
        ..Phase::default()
    };
    let mut roles = vec![role(Phase::default(), member)];
    for unit in units.iter() {
        let members = unit.len() as u32;
        let own = Phase {
            copied: share,
            ..sending(members - 1, blocks(members - 1))
        };
        roles.push(match unit.contains(&root) {
            true => role(
                sending(units.len() as u32 - 1, blocks(ranks - members)),
                own,
            ),
            false => {
                let arriving = Phase {
                    received: blocks(members),
                    ..Phase::default()
                };
                role(arriving, own)
            }
        });
    }
    let takes_place = [units.len() > 1, largest_unit(request) > 1];
    two_phases(request, takes_place, roles)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    let rails = Rails::new(request);
    let (rank, root) = (request.rank, request.root());
    let unit = rails.members();
    let landed = b.add_receive_buffer(1);
    let packed = UnitArea::new(request, |width| b.add_receive_buffer(width));
    let own = block(rank);
    let leader = Rails::leader(unit, root);
    if rank != leader {
        b.accept(leader, Some(landed), own);
        return b.build();
    }
    if rank == root {
        for unit in rails.others() {
            for (run, area) in packed.runs(unit) {
                let outbox = b.outbox(unit[0], area, run.clone());
                b.copy(vec![outbox], b.input(run));
            }
            b.signal(unit[0]);
        }
    } else {
        b.wait(root);
    }
    let block_of = |b: &ProgramBuilder, member: Rank| match rank == root {
        true => b.input(block(member)),
        false => b.inbox(root, packed.of(unit, member), block(member)),
    };
    for (_, peer) in rails.peers() {
        let src = block_of(&b, peer);
        b.deliver(peer, src, Some(landed), block(peer));
    }
    b.copy(vec![b.output(own)], block_of(&b, rank));
    b.build()
}
