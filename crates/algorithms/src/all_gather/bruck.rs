//! Bruck's all-gather (Bruck, Ho, Kipnis, Upfal and Weathersby 1997), with sends of all present
//! blocks to the rank 2^k before in step k.
//!
//! A rank always has the blocks that follow its own. ⌈log2 P⌉ steps for any number of ranks, in all
//! of which every rank does the same; the last one sends only what is missing. Blocks are at their
//! place from the start, so nothing has to be rotated.

use std::ops::Range;

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::expression::{CEIL_LOG, OTHER_BLOCKS};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::{Area, ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    collective: "all-gather",
    summary: "all blocks so far to the rank 1, 2, 4 ... before; fewest steps for any number of ranks, any transport",
    about: About {
        how: "In step k every rank sends all blocks that it has to the rank 2^k before it; it always has \
              those that follow its own, and the last step sends only what is missing. Every rank does the \
              same. Partners are far apart where the blocks are many, unlike with `doubling`.",
        wins: "Small and medium messages where the number of ranks is no power of two.",
        source: "Bruck, Ho, Kipnis, Upfal and Weathersby, \"Efficient algorithms for all-to-all \
              communications in multiport message-passing systems\", 1997",
        quote: "Bruck et al. 1997, concatenation: ⌈log2 p⌉ rounds, (p - 1) n / p",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Counted(cost, formula),
    build,
};

fn formula(request: &ScheduleRequest) -> Formula {
    Formula::sum(CEIL_LOG + request.entries(), OTHER_BLOCKS)
}

/// The message of each step: the distance to its receiver, and its number of blocks.
fn steps(ranks: u32) -> impl Iterator<Item = (u32, u32)> {
    let distances = std::iter::successors(Some(1), |distance: &u32| distance.checked_mul(2));
    let distances = distances.take_while(move |distance| *distance < ranks);
    distances.map(move |distance| (distance, distance.min(ranks - distance)))
}

fn cost(request: &ScheduleRequest) -> Cost {
    let own = request.block_share();
    let phases = (steps(request.ranks).enumerate()).map(|(step, (distance, blocks))| {
        let sent = f64::from(blocks) * own;
        Phase {
            crossing: crossing::shift(request, request.ranks - distance) * sent,
            copied: request.staged(sent) + if step == 0 { own } else { 0.0 },
            ..Phase::exchange(1, 1, sent)
        }
    });
    Cost::of(request, [request.entry()].into_iter().chain(phases))
}

fn build(request: &ScheduleRequest) -> Schedule {
    let ranks = request.ranks;
    let mut b = ProgramBuilder::new(request, Grid::Equal(ranks));
    // Several blocks may wrap around the end of the message, which only an entry of its width has
    // room for.
    let several = steps(ranks).any(|(_, blocks)| blocks > 1);
    let staging = b.add_staging(if several { ranks } else { 1 });
    let own = block(b.rank());
    b.copy(vec![b.output(own.clone())], b.input(own));
    for (distance, _) in steps(ranks) {
        b.open_to(b.after(distance));
    }
    for (distance, _) in steps(ranks) {
        b.await_open(b.before(distance));
    }
    for (distance, blocks) in steps(ranks) {
        let to = b.before(distance);
        for sent in wrapped(b.rank(), blocks, ranks) {
            let dst = b.destination(to, staging, sent.clone());
            b.copy(vec![dst], b.output(sent));
        }
        b.signal(to);
        let from = b.after(distance);
        take_in(&mut b, from, blocks, staging);
    }
    b.build()
}

/// Receives this many blocks of a rank, beginning with its own.
fn take_in(b: &mut ProgramBuilder, from: Rank, blocks: u32, staging: Option<Area>) {
    b.wait(from);
    let Some(area) = staging else { return };
    for received in wrapped(from, blocks, b.ranks()) {
        let landed = b.inbox(from, area, received.clone());
        b.copy(vec![b.output(received)], landed);
    }
}

/// The ranges of `blocks` blocks that begin with `first`, around the end of the message.
fn wrapped(first: u32, blocks: u32, ranks: u32) -> impl Iterator<Item = Range<u32>> {
    let end = first + blocks;
    let ranges = [first..end.min(ranks), 0..end.saturating_sub(ranks)];
    ranges.into_iter().filter(|range| !range.is_empty())
}
