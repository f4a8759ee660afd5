//! Bruck's all-gather (Bruck, Ho, Kipnis, Upfal and Weathersby 1997): in step k every rank sends the blocks it has to the rank 2^k before it.
//!
//! A rank always has the blocks that follow its own. ⌈log2 P⌉ steps for any number of ranks, in all of which every rank does the same; the last one
//! sends only what is missing. Blocks lie at their place from the start, so nothing has to be rotated.

use std::ops::Range;

use weft_schedule::{Grid, Schedule};

use crate::builder::{Builder, block};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "bruck",
    collective: "all-gather",
    summary: "all blocks so far to the rank 1, 2, 4 ... before; fewest steps for any number of ranks, any transport",
    about: About {
        how: "In step k every rank sends all blocks that it has to the rank 2^k before it; it always has \
              those that follow its own, and the last step sends only what is missing. Every rank does the \
              same. Partners are far apart where the blocks are many, unlike with `doubling`.",
        formulas: &[
            Formula::ordinary("⌈log₂ P⌉", "N (P − 1) / P", ""),
            Formula::symmetric("1 + ⌈log₂ P⌉", "N (P − 1) / P", ""),
        ],
        wins: "Small and medium messages where the number of ranks is no power of two.",
        source: "Bruck, Ho, Kipnis, Upfal and Weathersby, \"Efficient algorithms for all-to-all \
              communications in multiport message-passing systems\", 1997",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Rotation,
    cost,
    textbook: Some(textbook),
    build,
};

/// The distance of each step, and how many blocks it moves.
fn steps(ranks: u32) -> impl Iterator<Item = (u32, u32)> {
    let distances = (0..ranks.next_power_of_two().ilog2()).map(|step| 1 << step);
    distances.map(move |distance| (distance, distance.min(ranks - distance)))
}

fn cost(request: &Request) -> Cost {
    let phases = steps(request.ranks).map(|(distance, blocks)| {
        let share = f64::from(blocks) * request.block_share();
        let own = if distance == 1 {
            request.block_share()
        } else {
            0.0
        };
        Phase {
            crossing: crossing::shift(request, request.ranks - distance) * share,
            copied: own + request.staged(share),
            ..Phase::exchange(1, 1, share)
        }
    });
    Cost::of(request, [request.entry()].into_iter().chain(phases))
}

fn textbook(
    &Terms {
        p, ceil_log, entry, ..
    }: &Terms,
) -> Textbook {
    Textbook {
        quote: "Bruck et al. 1997, concatenation: ⌈log2 p⌉ rounds, (p - 1) n / p",
        steps: ceil_log + entry,
        sent: Volume::all_but_one(p),
        read: Volume::NOTHING,
    }
}

fn build(request: &Request) -> Schedule {
    let ranks = request.ranks;
    let mut b = Builder::new(request, Grid::Equal(ranks));
    // Several blocks may wrap around the end of the message, which only an entry of its width has room for.
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
        let (to, from) = (b.before(distance), b.after(distance));
        for sent in wrapped(b.rank(), blocks, ranks) {
            let dst = b.destination(to, staging, sent.clone());
            b.copy(vec![dst], b.output(sent));
        }
        b.signal(to);
        b.wait(from);
        if let Some(area) = staging {
            for received in wrapped(from, blocks, ranks) {
                let landed = b.inbox(from, area, received.clone());
                b.copy(vec![b.output(received)], landed);
            }
        }
    }
    b.build()
}

/// So many blocks from the first one on, around the end of the message.
fn wrapped(first: u32, blocks: u32, ranks: u32) -> impl Iterator<Item = Range<u32>> {
    let end = first + blocks;
    let ranges = [first..end.min(ranks), 0..end.saturating_sub(ranks)];
    ranges.into_iter().filter(|range| !range.is_empty())
}
