//! Bruck's all-to-all (Bruck, Ho, Kipnis, Upfal and Weathersby 1997), with blocks forwarded by
//! other ranks in ⌈log2 P⌉ steps.
//!
//! A block has to go some distance down the ranks. In step k it goes 2^k if the distance has that
//! bit. All blocks that a rank hands on in a step are packed into one message: about half of them
//! all, so the bytes grow with the logarithm of the ranks. For small blocks of equal size.
//!
//! In temporary memory the blocks of a step are in the order of their distances, regardless of
//! their sources and destinations.

use weft_schedule::{Grid, Schedule};

use crate::cost::expression::{BLOCK, CEIL_LOG};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::{Area, ProgramBuilder, block};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    collective: "all-to-all",
    summary: "blocks travel by way of others; fewest steps, more bytes, any transport, for small blocks",
    about: About {
        how: "A block travels its distance bit by bit: in step k all blocks whose distance has bit k go \
              2^k ranks down, packed into one message. Equal counts.",
        wins: "Small blocks on many ranks.",
        source: "Bruck, Ho, Kipnis, Upfal and Weathersby, \"Efficient algorithms for all-to-all \
              communications in multiport message-passing systems\", 1997, index with radix 2",
        quote: "Bruck et al. 1997, index with radix 2: ⌈log2 p⌉ rounds; in round k the blocks whose distance \
              has bit k, n / 2 at most",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    costs: Costs::Counted(cost, formula),
    build,
};

/// The distances of the blocks that travel in a step, ascending.
fn distances(ranks: u32, step: u32) -> Vec<u32> {
    (1..ranks)
        .filter(|distance| distance >> step & 1 == 1)
        .collect()
}

fn steps(ranks: u32) -> u32 {
    ranks.next_power_of_two().ilog2()
}

/// How many blocks arrive in a step: those whose distance has no greater bit.
fn arriving(ranks: u32, step: u32) -> u32 {
    (1 << step).min(ranks - (1 << step))
}

fn cost(request: &ScheduleRequest) -> Cost {
    let share = request.block_share();
    let phases = (0..steps(request.ranks)).map(|step| {
        let period = 2 << step;
        let whole = request.ranks / period * (1 << step);
        let blocks = whole + (request.ranks % period).saturating_sub(1 << step);
        let own = u32::from(step == 0);
        let copied = blocks + arriving(request.ranks, step) + own;
        let sent = f64::from(blocks) * share;
        Phase {
            crossing: crossing::shift(request, request.ranks - (1 << step)) * sent,
            copied: f64::from(copied) * share,
            ..Phase::exchange(1, 1, sent)
        }
    });
    Cost::of(request, phases)
}

fn formula(request: &ScheduleRequest) -> Formula {
    let blocks = (1..request.ranks).map(|distance| distance.count_ones());
    Formula::sum(CEIL_LOG, BLOCK * blocks.sum::<u32>()).sent_described("at most N / 2 per step")
}

fn build(request: &ScheduleRequest) -> Schedule {
    let ranks = request.ranks;
    let mut b = ProgramBuilder::new(request, Grid::Equal(ranks));
    let own = block(b.rank());
    b.copy(vec![b.output(own.clone())], b.input(own));
    if ranks == 1 {
        return b.build();
    }
    let steps: Vec<Vec<u32>> = (0..steps(ranks))
        .map(|step| distances(ranks, step))
        .collect();
    let width = steps.iter().map(Vec::len).max().unwrap_or_default() as u32;
    let packed = b.add_scratch(width).starting_at(0);
    let receive = b.add_receive_buffer(width).starting_at(0);
    for (step, travelling) in steps.iter().enumerate() {
        let distance = 1 << step;
        pack(&mut b, &steps, step, packed, receive);
        let (to, all) = (b.before(distance), 0..travelling.len() as u32);
        b.copy(
            vec![b.outbox(to, receive, all.clone())],
            b.scratch(packed, all),
        );
        b.signal(to);
        b.wait(b.after(distance));
        unpack(&mut b, step as u32, receive);
    }
    b.build()
}

/// Puts the blocks that travel in a step together: from the input if it is their first, else from
/// where their former step brought them.
fn pack(b: &mut ProgramBuilder, steps: &[Vec<u32>], step: usize, packed: Area, receive: Area) {
    let travelling = &steps[step];
    let former = |distance: u32| (distance & ((1 << step) - 1)).checked_ilog2();
    let mut next = 0;
    while next < travelling.len() {
        let distance = travelling[next];
        let Some(before) = former(distance) else {
            let src = b.input(block(b.before(distance)));
            b.copy(vec![b.scratch(packed, block(next as u32))], src);
            next += 1;
            continue;
        };
        let follows = |(index, other): (usize, &u32)| {
            *other == distance + index as u32 && former(*other) == Some(before)
        };
        let run = travelling[next..]
            .iter()
            .enumerate()
            .take_while(|item| follows(*item))
            .count() as u32;
        let came = &steps[before as usize];
        let at = came.partition_point(|other| *other < distance) as u32;
        let src = b.inbox(b.after(1 << before), receive, at..at + run);
        b.copy(vec![b.scratch(packed, next as u32..next as u32 + run)], src);
        next += run as usize;
    }
}

/// Copies the blocks that have gone all the way to the output: those of distances from 2^step on
/// are first, each from the rank at this distance behind.
fn unpack(b: &mut ProgramBuilder, step: u32, receive: Area) {
    let from = b.after(1 << step);
    let count = arriving(b.ranks(), step);
    let until_wrap = count.min(b.ranks() - from);
    for (at, chunk, blocks) in [(0, from, until_wrap), (until_wrap, 0, count - until_wrap)] {
        if blocks > 0 {
            let src = b.inbox(from, receive, at..at + blocks);
            b.copy(vec![b.output(chunk..chunk + blocks)], src);
        }
    }
}
