//! Multi-rail reduce-scatter: each block combined inside every unit, and the units' sums at its
//! owner.

use weft_schedule::{Rank, Schedule, Slice};

use crate::cost::Phase;
use crate::patterns::builder::{Area, ProgramBuilder, block};
use crate::patterns::rail_cost::{RailCounts, two_phases};
use crate::patterns::rails::{Rails, most_meeting};
use crate::{About, Algorithm, Cost, Costs, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "multi-rail",
    collective: "reduce-scatter",
    summary: "each unit combines a block before it leaves; one message per block and unit, carried by all ranks in turn",
    about: About {
        how: "The block of each rank of another unit (a host, say) is combined inside the unit: that of rank m at \
              rank m, or m modulo their number, which sends the sum there. So each block leaves a host once, and \
              all ranks of a host carry their part.",
        wins: "Several hosts with several ranks each.",
        source: "Träff and Hunold, \"Decomposing MPI collectives for exploiting multi-lane communication\", 2020",
        quote: "Träff and Hunold 2020, full lane: all inside, then n / p between units by every rank",
    },
    requires: Requirements::UNITS_ANY_SIZES,
    symmetry: Symmetry::None,
    costs: Costs::OfUnits(
        cost,
        [
            "2: between units, and inside",
            "N (P − 1) / P, of which N (H − 1) / P between H units",
            "",
        ],
    ),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let counts = RailCounts::new(request);
    let share = request.block_share();
    let blocks = |count: u32| f64::from(count) * share;
    let roles = counts.roles.iter().map(|role| {
        let peers = role.members - 1;
        let combining = match peers {
            0 => 0,
            _ => role.members * role.meeting,
        };
        let inside = Phase {
            received: blocks(peers * (1 + role.meeting)),
            reduced: blocks(combining),
            ..Phase::exchange(1, peers + role.meeting_others, share)
        };
        let between = Phase {
            received: blocks(counts.units - 1),
            crossing: counts.crossing * share,
            reduced: blocks(role.members + counts.units - 1),
            ..Phase::exchange(1, role.meeting, share)
        };
        [inside, between]
    });
    two_phases(request, [counts.inside(), counts.between()], roles)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let own = block(request.rank);
    if request.ranks == 1 {
        b.copy(vec![b.output(own.clone())], b.input(own));
        return b.build();
    }
    let rails = Rails::new(request);
    let landed = b.add_receive_buffer(1);
    // For each owner that a rank combines for.
    let carried: Vec<[Area; 2]> = (0..most_meeting(request))
        .map(|_| [b.add_receive_buffer(1), b.add_scratch(1)])
        .collect();
    let peers = rails.peers();

    for (place, peer) in &peers {
        for (owner, [area, _]) in rails.meeting_member(*place).into_iter().zip(&carried) {
            let outbox = b.outbox(*peer, *area, block(owner));
            b.copy(vec![outbox], b.input(block(owner)));
        }
        b.deliver(*peer, b.input(block(*peer)), Some(landed), block(*peer));
    }
    for (_, peer) in &peers {
        b.wait(*peer);
    }
    for (owner, [area, sum]) in rails.meeting().into_iter().zip(&carried) {
        let outbox = b.outbox(owner, landed, block(owner));
        if peers.is_empty() {
            b.copy(vec![outbox], b.input(block(owner)));
        } else {
            let srcs = contributions(&b, &rails, *area, owner);
            let sum = b.scratch(*sum, block(owner));
            b.reduce(sum.clone(), srcs);
            b.copy(vec![outbox], sum);
        }
        b.signal(owner);
    }

    let met: Vec<Rank> = rails.others().map(|unit| rails.met_in(unit)).collect();
    for carrier in &met {
        b.wait(*carrier);
    }
    let mut srcs = contributions(&b, &rails, landed, request.rank);
    srcs.extend(
        met.iter()
            .map(|carrier| b.inbox(*carrier, landed, own.clone())),
    );
    b.reduce_final(vec![b.output(own)], srcs);
    b.build()
}

/// The contributions of the ranks of its unit to a block, which they have sent to this entry.
fn contributions(b: &ProgramBuilder, rails: &Rails, area: Area, owner: Rank) -> Vec<Slice> {
    let members = rails.members().iter();
    let of_member = members.map(|member| match *member == b.rank() {
        true => b.input(block(owner)),
        false => b.inbox(*member, area, block(owner)),
    });
    of_member.collect()
}
