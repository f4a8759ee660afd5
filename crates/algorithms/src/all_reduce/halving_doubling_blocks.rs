//! Halving-doubling for any number of ranks by binary blocks (Rabenseifner and Träff 2004).
//!
//! The ranks are divided into blocks of different powers of two, the largest first. Each block reduces by recursive halving, so that each of its
//! ranks has a segment of the message. The smallest block hands its segments to the next larger one, which adds them to its own and hands on
//! the sums, up to the largest. The results go the same way back.
//!
//! Halves are exchanged between neighbours first. The rank at a position of a block exchanges with the positions of the smaller and the larger block
//! that are congruent to its own: their segments contain each other.
//!
//! A result needs a landing place of its own: its sender does not know whether the receiver has consumed the contribution yet.

use std::ops::Range;

use weft_schedule::{Grid, Rank, Schedule};

use crate::builder::{Area, Builder};
use crate::cost::{Cost, Phase};
use crate::{
    About, Algorithm, Formula, Request, Requirements, Symmetry, Terms, Textbook, Volume, crossing,
};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "halving-doubling-blocks",
    collective: "all-reduce",
    summary: "as halving-doubling, but where ranks are no power of two, by blocks that are; few bytes, more messages",
    about: About {
        how: "Halving-doubling for powers of two. Other numbers are divided into blocks that are powers of two; \
              each reduces by halving, and the smaller hand their segments to the next larger one. A rank of \
              a small block sends to many of a large one: 33 ranks are a block of 32 and one rank that sends \
              32 messages.",
        formulas: &[Formula::any(
            "2 ⌊log₂ P⌋",
            "2 N (P − 1) / P for powers of two, else at most 2 N",
            "",
        )],
        wins: "As halving-doubling, with fewer bytes where P is not a power of two and its blocks are of \
              similar size.",
        source: "Rabenseifner and Träff, \"More efficient reduction algorithms for non-power-of-two number of \
              processors in message-passing parallel systems\", 2004",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Exclusive,
    cost,
    textbook: Some(textbook),
    build,
};

/// Ranks that are a power of two in number.
#[derive(Clone, Copy)]
struct Block {
    first: Rank,
    /// The binary logarithm of the number of ranks.
    depth: u32,
}

impl Block {
    fn ranks(self) -> u32 {
        1 << self.depth
    }

    /// The segment of a position among `chunks` chunks after this many exchanges: bit by bit of the position the lower or the upper half.
    fn segment(position: u32, exchanges: u32, chunks: u32) -> Range<u32> {
        (0..exchanges).fold(0..chunks, |segment, bit| {
            let middle = segment.start + segment.len() as u32 / 2;
            match position >> bit & 1 {
                0 => segment.start..middle,
                _ => middle..segment.end,
            }
        })
    }
}

/// The blocks, largest first.
fn blocks(ranks: u32) -> Vec<Block> {
    let mut first = 0;
    let mut blocks = Vec::new();
    for depth in (0..=ranks.ilog2()).rev() {
        if ranks >> depth & 1 == 1 {
            blocks.push(Block { first, depth });
            first += 1 << depth;
        }
    }
    blocks
}

/// A rank among the blocks.
struct Place {
    block: Block,
    position: u32,
    smaller: Option<Block>,
    larger: Option<Block>,
}

impl Place {
    fn of(ranks: u32, rank: Rank) -> Place {
        let blocks = blocks(ranks);
        let behind = |block: &Block| block.first + block.ranks() > rank;
        let index = blocks
            .iter()
            .position(behind)
            .expect("blocks cover all ranks");
        let block = blocks[index];
        Place {
            block,
            position: rank - block.first,
            smaller: blocks.get(index + 1).copied(),
            larger: index.checked_sub(1).map(|larger| blocks[larger]),
        }
    }

    fn partner(&self, exchange: u32) -> Rank {
        self.block.first + (self.position ^ 1 << exchange)
    }

    /// The rank of the smaller block whose segment contains this one's.
    fn below(&self) -> Option<Rank> {
        let smaller = self.smaller?;
        Some(smaller.first + self.position % smaller.ranks())
    }

    /// The ranks of the larger block that share this one's segment, by their position and rank.
    fn above(&self) -> Vec<(u32, Rank)> {
        let Some(larger) = self.larger else {
            return Vec::new();
        };
        let positions = (self.position..larger.ranks()).step_by(self.block.ranks() as usize);
        positions
            .map(|position| (position, larger.first + position))
            .collect()
    }
}

fn cost(request: &Request) -> Cost {
    let crossings: Vec<f64> = (0..request.ranks.ilog2())
        .map(|exchange| {
            crossing::of(request, messages(request.ranks, exchange)) * share_at(exchange)
        })
        .collect();
    let of_block =
        |block: Block| phases(request, &Place::of(request.ranks, block.first), &crossings);
    Cost::of_busiest(request, blocks(request.ranks).into_iter().map(of_block))
}

/// What goes inward in one exchange of the largest block. What a block adds from the smaller one has the size of the block's last exchange, and
/// comes no later than in the next one of the largest.
fn messages(ranks: u32, exchange: u32) -> Vec<(Rank, Rank)> {
    let mut messages = Vec::new();
    for rank in 0..ranks {
        let place = Place::of(ranks, rank);
        if exchange < place.block.depth {
            messages.push((rank, place.partner(exchange)));
        }
        if place
            .larger
            .is_some_and(|larger| larger.depth == exchange + 1)
        {
            messages.extend(place.above().into_iter().map(|(_, above)| (rank, above)));
        }
    }
    messages
}

/// The share of the message that a message of an exchange carries.
fn share_at(exchange: u32) -> f64 {
    0.5_f64.powi(exchange as i32 + 1)
}

/// What one rank does.
fn phases(request: &Request, place: &Place, crossings: &[f64]) -> Vec<Phase> {
    let mut inward = Vec::new();
    let mut outward = Vec::new();
    for (exchange, &crossing) in (0..).zip(crossings) {
        let share = share_at(exchange);
        let exchanges = u32::from(exchange < place.block.depth);
        let adds = u32::from(place.smaller.is_some() && place.block.depth == exchange + 1);
        let hands_on = match place.larger {
            Some(larger) if larger.depth == exchange + 1 => larger.ranks() / place.block.ranks(),
            _ => 0,
        };
        let (sends, receives) = (exchanges + hands_on, exchanges + adds);
        let phase = Phase {
            share,
            crossing,
            ..Phase::signals(1)
        };
        inward.push(Phase {
            messages: sends,
            received: f64::from(receives) * share,
            reduced: 2.0 * f64::from(receives) * share,
            ..phase
        });
        outward.push(Phase {
            messages: receives,
            received: f64::from(sends) * share,
            copied: request.staged(f64::from(sends) * share),
            ..phase
        });
    }
    inward
        .into_iter()
        .chain(outward.into_iter().rev())
        .collect()
}

fn textbook(&Terms { p, floor_log, .. }: &Terms) -> Textbook {
    Textbook {
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.5: 2 log2 p rounds, 2 (p - 1) n / p, for a \
              power of two; for others Rabenseifner and Träff 2004, binary blocks: no rank sends more than 2 n",
        steps: 2 * floor_log,
        sent: by_blocks(p, floor_log),
        read: Volume::NOTHING,
    }
}

/// What halving-doubling by binary blocks sends.
///
/// Of a block of q ranks each sends 2 (q - 1) / q inside, n / q up to a larger block and n / q back to a smaller one.
fn by_blocks(p: u64, depth: u64) -> Volume {
    let segments = 1_u64 << depth;
    let blocks: Vec<u64> = (0..=depth)
        .rev()
        .map(|bit| p & 1 << bit)
        .filter(|block| *block > 0)
        .collect();
    let of_rank = |(index, block): (usize, &u64)| {
        let ends = u64::from(index > 0) + u64::from(index + 1 < blocks.len());
        (2 * (block - 1) + ends) * (segments / block)
    };
    let each = || blocks.iter().enumerate().map(of_rank);
    let total = each().zip(&blocks).map(|(sent, block)| sent * block).sum();
    Volume::new(
        (each().max().unwrap_or_default(), segments),
        (total, segments),
    )
}

fn build(request: &Request) -> Schedule {
    let chunks = 1 << request.ranks.ilog2();
    let mut b = Builder::new(request, Grid::Equal(chunks));
    if request.ranks == 1 {
        return b.build();
    }
    let contributions = b.add_landing(chunks / 2);
    let results = b.add_staging(chunks / 2);
    let place = Place::of(request.ranks, request.rank);
    let exchanged = |position, exchanges| Block::segment(position, exchanges, chunks);
    let own = exchanged(place.position, place.block.depth);

    for exchange in 0..place.block.depth {
        let partner = place.partner(exchange);
        let sent = exchanged(place.position ^ 1 << exchange, exchange + 1);
        b.copy(
            vec![b.outbox(partner, contributions, sent.clone())],
            b.output(sent),
        );
        b.signal(partner);
        let alone = place.larger.is_none() && place.smaller.is_none();
        let last = alone && exchange + 1 == place.block.depth;
        add(
            &mut b,
            partner,
            contributions,
            exchanged(place.position, exchange + 1),
            last,
        );
    }
    if let Some(below) = place.below() {
        add(
            &mut b,
            below,
            contributions,
            own.clone(),
            place.larger.is_none(),
        );
    }
    let above: Vec<(Rank, Range<u32>)> = (place.above().into_iter())
        .map(|(position, rank)| {
            (
                rank,
                exchanged(position, place.larger.map_or(0, |l| l.depth)),
            )
        })
        .collect();
    for (rank, sent) in above.clone() {
        b.copy(
            vec![b.outbox(rank, contributions, sent.clone())],
            b.output(sent),
        );
        b.signal(rank);
    }

    for (rank, result) in above {
        b.accept(rank, results, result);
    }
    if let Some(below) = place.below() {
        b.deliver(below, b.output(own.clone()), results, own);
    }
    for exchange in (0..place.block.depth).rev() {
        let partner = place.partner(exchange);
        let held = exchanged(place.position, exchange + 1);
        b.deliver(partner, b.output(held.clone()), results, held);
        b.accept(
            partner,
            results,
            exchanged(place.position ^ 1 << exchange, exchange + 1),
        );
    }
    b.build()
}

/// Waits for a peer's contributions and adds them, the lower rank's first.
fn add(b: &mut Builder, peer: Rank, landing: Area, chunks: Range<u32>, last: bool) {
    b.wait(peer);
    let own = b.output(chunks.clone());
    let mut srcs = vec![own.clone(), b.inbox(peer, landing, chunks)];
    if peer < b.rank() {
        srcs.swap(0, 1);
    }
    if last {
        b.reduce_last(vec![own], srcs);
    } else {
        b.reduce(own, srcs);
    }
}
