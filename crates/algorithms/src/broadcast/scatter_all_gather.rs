//! Scatter-all-gather broadcast (van de Geijn): a scatter of the root's message along a tree, then
//! a ring all-gather of its blocks.
//!
//! No rank sends more than twice the message, however many ranks there are. A block leaves a rank
//! only after it has arrived there, so nothing is overwritten before it was forwarded.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{FLOOR_LOG, OTHER_BLOCKS, OTHERS};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::{ProgramBuilder, block};
use crate::patterns::crossing;
use crate::patterns::range_tree::{TreePosition, along_ranges, scattering};
use crate::patterns::ring::{ReceiveWindow, pass_around};
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "scatter-all-gather",
    collective: "broadcast",
    summary: "blocks are scattered along a tree, then travel around a ring; few bytes, any transport, for large messages",
    about: About {
        how: "The message is scattered over the ranks along a tree in which the ranks below a rank are its \
              neighbours, then its blocks travel around a ring.",
        wins: "Large messages on few ranks.",
        source: "Thakur, Rabenseifner and Gropp, \"Optimization of collective communication operations in \
              MPICH\", 2005, section 4.2 (van de Geijn)",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.2 (van de Geijn): ⌈log2 p⌉ rounds of a \
              scatter, p - 1 of a ring all-gather, together 2 (p - 1) n / p through the root",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::None,
    costs: Costs::Counted(cost, formula),
    build,
};

fn cost(request: &ScheduleRequest) -> Cost {
    let (ranks, share) = (request.ranks, request.block_share());
    let scatter = scattering(request, request.staged(share));
    let pass = Phase {
        crossing: crossing::shift(request, 1) * share,
        copied: request.staged(share),
        ..Phase::exchange(ranks - 1, 1, share)
    };
    let phases = [request.entry()].into_iter().chain(scatter).chain([pass]);
    Cost::of(request, phases)
}

fn formula(request: &ScheduleRequest) -> Formula {
    let steps = FLOOR_LOG + OTHERS + request.entries();
    let total = along_ranges(request.ranks) + OTHERS;
    Formula::sum(steps, OTHER_BLOCKS * 2).all_send(total)
}

fn build(request: &ScheduleRequest) -> Schedule {
    let ranks = request.ranks;
    let mut b = ProgramBuilder::new(request, Grid::Equal(ranks));
    if ranks == 1 {
        return b.build();
    }
    let scattered = b.add_staging(ranks / 2);
    let window = (!b.symmetric()).then(|| ReceiveWindow::new(&mut b, ranks - 1));
    let TreePosition {
        parent,
        range,
        children,
    } = TreePosition::of(ranks, request.root(), request.rank);
    let (left, right) = (b.before(1), b.after(1));
    b.open_to(left);
    if let Some(parent) = parent {
        b.open_to(parent);
    }
    b.await_open(right);
    for (child, _) in &children {
        b.await_open(*child);
    }
    if let Some(parent) = parent {
        b.wait(parent);
    }
    let held = |b: &ProgramBuilder, chunks| match (parent, scattered) {
        (Some(parent), Some(area)) => b.inbox(parent, area.starting_at(range.start), chunks),
        _ => b.output(chunks),
    };
    for (child, blocks) in children {
        let src = held(&b, blocks.clone());
        b.deliver(child, src, scattered, blocks);
    }
    let own = block(b.rank());
    let src = held(&b, own.clone());
    let place = window.as_ref().map(|window| window.place(0));
    let mut dsts = vec![b.destination(right, place, own.clone())];
    let output = b.output(own);
    if src != output {
        dsts.push(output);
    }
    b.copy(dsts, src);
    b.signal(right);
    pass_around(&mut b, window.as_ref());
    b.build()
}
