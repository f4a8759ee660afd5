//! Multi-rail all-gather: each block to one rank of every other unit, and inside units to all.

use weft_schedule::{Rank, Schedule};

use crate::cost::Phase;
use crate::patterns::builder::{Area, ProgramBuilder, block};
use crate::patterns::rail_cost::{RailCounts, two_phases};
use crate::patterns::rails::{Rails, most_meeting};
use crate::{About, Algorithm, Cost, Costs, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "multi-rail",
    collective: "all-gather",
    summary: "every block passes to each other unit once, carried by every rank of it in turn, and spreads inside",
    about: About {
        how: "Every rank sends its block to the ranks of its unit (a host, say), and to one rank of each other \
              unit: rank m of a unit to rank m, or m modulo their number. That one hands it on inside. So each \
              block passes a network once per host, and all ranks of a host carry their part.",
        wins: "Several hosts with several ranks each.",
        source: "Träff and Hunold, \"Decomposing MPI collectives for exploiting multi-lane communication\", 2020",
        quote: "Träff and Hunold 2020, full lane: n / p between units by every rank, the rest inside",
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
        let between = Phase {
            received: blocks(role.meeting),
            crossing: counts.crossing * share,
            copied: blocks(1 + role.meeting),
            ..Phase::exchange(1, counts.units - 1, share)
        };
        // The own block passes while others are on their way; the others behind them.
        let inside = Phase {
            received: blocks(peers + role.meeting_others),
            copied: blocks(peers + role.meeting_others),
            ..Phase::exchange(1, peers * (1 + role.meeting), share)
        };
        [between, inside]
    });
    two_phases(request, [counts.between(), counts.inside()], roles)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, request.blocks());
    let rails = Rails::new(request);
    let landed = b.add_receive_buffer(1);
    let handed_on: Vec<Area> = (0..most_meeting(request))
        .map(|_| b.add_receive_buffer(1))
        .collect();
    let own = block(request.rank);
    let peers = rails.peers();

    let met = rails.others().map(|unit| rails.met_in(unit));
    let receivers: Vec<Rank> = met.chain(peers.iter().map(|(_, peer)| *peer)).collect();
    let mut dsts = vec![b.output(own.clone())];
    dsts.extend(
        receivers
            .iter()
            .map(|to| b.outbox(*to, landed, own.clone())),
    );
    b.copy(dsts, b.input(own));
    for to in receivers {
        b.signal(to);
    }
    for (_, peer) in &peers {
        b.accept(*peer, Some(landed), block(*peer));
    }
    let meeting = rails.meeting();
    for (source, area) in meeting.iter().zip(&handed_on) {
        b.wait(*source);
        let chunk = block(*source);
        let to_peers = peers
            .iter()
            .map(|(_, peer)| b.outbox(*peer, *area, chunk.clone()));
        let dsts = [b.output(chunk.clone())].into_iter().chain(to_peers);
        let dsts = dsts.collect();
        b.copy(dsts, b.inbox(*source, landed, chunk));
    }
    if !meeting.is_empty() {
        for (_, peer) in &peers {
            b.signal(*peer);
        }
    }
    for (place, peer) in peers {
        let meeting = rails.meeting_member(place);
        if !meeting.is_empty() {
            b.wait(peer);
        }
        for (source, area) in meeting.into_iter().zip(&handed_on) {
            let inbox = b.inbox(peer, *area, block(source));
            b.copy(vec![b.output(block(source))], inbox);
        }
    }
    b.build()
}
