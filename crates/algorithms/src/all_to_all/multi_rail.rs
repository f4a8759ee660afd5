//! Multi-rail all-to-all: a unit's blocks for one rank of another unit put together, and sent there
//! as one message.

use weft_schedule::{Grid, Schedule};

use crate::cost::Phase;
use crate::patterns::builder::{Area, ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::rail_cost::{RailCounts, two_phases};
use crate::patterns::rails::{Rails, largest_unit, most_meeting, runs};
use crate::{About, Algorithm, Cost, Costs, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "multi-rail",
    collective: "all-to-all",
    summary: "a unit's blocks for a rank of another are put together first; fewer, larger messages between units",
    about: About {
        how: "The blocks for a rank of another unit (a host, say) are put together inside the unit: those for \
              rank m at rank m, or m modulo their number, which sends them there as one message. All ranks of a \
              host carry their part. Equal counts.",
        wins: "Small and medium messages on several hosts with several ranks each.",
        source: "Träff and Hunold, \"Decomposing MPI collectives for exploiting multi-lane communication\", 2020",
        quote: "Träff and Hunold 2020, full lane: an all-to-all of n inside, then of n between units by every rank",
    },
    requires: Requirements::UNITS,
    symmetry: Symmetry::None,
    costs: Costs::OfUnits(
        cost,
        [
            "2: between units, and inside",
            "N (2 P − A − H) / P for H units of A ranks",
            "",
        ],
    ),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let counts = RailCounts::new(request);
    let share = request.block_share();
    let crossing = crossing::all_pairs(request) * share;
    let blocks = |count: u32| f64::from(count) * share;
    let roles = counts.roles.iter().map(|role| {
        let (ranks, members) = (request.ranks, role.members);
        let peers = members - 1;
        let inside = Phase {
            received: blocks(peers * (1 + role.meeting)),
            copied: blocks(members + members * role.meeting),
            ..Phase::exchange(1, peers + role.meeting_others, share)
        };
        let between = Phase {
            received: blocks(ranks - members),
            crossing,
            copied: blocks(ranks - members),
            ..Phase::exchange(1, role.meeting, blocks(members))
        };
        [inside, between]
    });
    two_phases(request, [counts.inside(), counts.between()], roles)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(request.ranks));
    let rails = Rails::new(request);
    let (most, largest) = (most_meeting(request), largest_unit(request));
    let landed = b.add_receive_buffer(1);
    let carried = b.add_receive_buffer(most).starting_at(0);
    let packed = b.add_receive_buffer(largest).starting_at(0);
    // Of its own for each message, which may still be under way when the next is put together.
    let scratch: Vec<Area> = (0..most)
        .map(|_| b.add_scratch(largest).starting_at(0))
        .collect();
    let own = block(request.rank);
    let peers = rails.peers();

    for (place, peer) in &peers {
        for (index, receiver) in (0..).zip(rails.meeting_member(*place)) {
            let outbox = b.outbox(*peer, carried, block(index));
            b.copy(vec![outbox], b.input(block(receiver)));
        }
        b.deliver(*peer, b.input(block(*peer)), Some(landed), own.clone());
    }
    b.copy(vec![b.output(own.clone())], b.input(own));
    for (_, peer) in &peers {
        b.accept(*peer, Some(landed), block(*peer));
    }
    for (index, receiver) in (0..).zip(rails.meeting()) {
        let put_together = scratch[index as usize];
        let members = rails.members();
        for (place, member) in (0..).zip(members) {
            let src = match *member == request.rank {
                true => b.input(block(receiver)),
                false => b.inbox(*member, carried, block(index)),
            };
            b.copy(vec![b.scratch(put_together, block(place))], src);
        }
        let all = 0..members.len() as u32;
        let outbox = b.outbox(receiver, packed, all.clone());
        b.copy(vec![outbox], b.scratch(put_together, all));
        b.signal(receiver);
    }
    for unit in rails.others() {
        let carrier = rails.met_in(unit);
        b.wait(carrier);
        let mut place = 0;
        for run in runs(unit) {
            let places = place..place + run.len() as u32;
            place = places.end;
            let inbox = b.inbox(carrier, packed, places);
            b.copy(vec![b.output(run)], inbox);
        }
    }
    b.build()
}
