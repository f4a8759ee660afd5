//! Halving-doubling (Rabenseifner), for any number of ranks by 3-2 elimination (Rabenseifner and
//! Träff 2004).
//!
//! Level by level the ranks of a group pair up and divide the segment of the message that they
//! still work on: each sends its partner the half that the partner keeps, and reduces the other.
//! Those who keep the lower halves are a group of the next level, and so are the others. In a group
//! of an odd number the first rank is eliminated: it sends a half to each rank of the first pair.
//! When every rank is alone with a segment, the results go the same way back.
//!
//! Partners are neighbours at the first level, where the halves are largest. A rank that was in a
//! pair with a third one is the first of its next groups: if a rank is eliminated there, it is this
//! one.
//!
//! A result needs a receive buffer of its own: its sender does not know whether the receiver has
//! consumed the contribution yet.

use std::ops::Range;

use weft_schedule::{Grid, Rank, Schedule};

use crate::cost::expression::{Expr, FLOOR_LOG};
use crate::cost::{Cost, Phase};
use crate::patterns::builder::{Area, ProgramBuilder};
use crate::patterns::crossing;
use crate::{About, Algorithm, Costs, Formula, Requirements, ScheduleRequest, Symmetry};

pub(crate) const ALGORITHM: Algorithm = Algorithm {
    name: "halving-doubling",
    collective: "all-reduce",
    summary: "halves, quarters ... are exchanged and reduced, results go back; few steps and bytes, any transport",
    about: About {
        how: "Partners divide the segment of the message that they work on, exchange halves and reduce; then \
              quarters, and so on; the results go the same way back. Other numbers than powers of two by 3-2 \
              elimination: in a group of an odd number one rank sends its whole segment to a pair. Partners \
              are neighbours where the halves are largest.",
        wins: "Medium and large messages on many ranks: few steps and few bytes.",
        source: "Rabenseifner and Träff, \"More efficient reduction algorithms for non-power-of-two number of \
              processors in message-passing parallel systems\", 2004 (both messages of an elimination go at \
              once here)",
        quote: "Thakur, Rabenseifner and Gropp 2005, section 4.5: 2 log2 p rounds, 2 (p - 1) n / p, for a \
              power of two; for others Rabenseifner and Träff 2004: less than 3 n, and by 3-2 elimination at \
              most 2.5 n",
    },
    requires: Requirements::NONE,
    symmetry: Symmetry::Exclusive,
    costs: Costs::Counted(cost, formula),
    build,
};

/// A rank's place in a group at one level.
#[derive(Clone)]
struct EliminationLevel {
    /// The number of ranks in the group.
    ranks: u32,
    /// The rank's position in the group.
    position: u32,
    /// The chunks that the group works on.
    segment: Range<u32>,
}

impl EliminationLevel {
    /// 1 if the first rank of the group is eliminated.
    fn eliminated(&self) -> u32 {
        self.ranks % 2
    }

    /// Whether it is this rank.
    fn is_eliminated(&self) -> bool {
        self.position < self.eliminated()
    }

    /// Whether the group's first rank sends to this one.
    fn has_third(&self) -> bool {
        self.eliminated() == 1 && (1..=2).contains(&self.position)
    }

    /// Which half of the segment a position keeps.
    fn side(&self, position: u32) -> u32 {
        (position - self.eliminated()) % 2
    }

    fn half(&self, side: u32) -> Range<u32> {
        let middle = self.segment.start + self.segment.len() as u32 / 2;
        match side {
            0 => self.segment.start..middle,
            _ => middle..self.segment.end,
        }
    }

    /// The positions with whom this rank exchanges, and which half each of them keeps; the
    /// eliminated one keeps none.
    fn peers(&self) -> Vec<(u32, Option<u32>)> {
        if self.is_eliminated() {
            return vec![(1, Some(0)), (2, Some(1))];
        }
        let odd = self.eliminated();
        let partner = ((self.position - odd) ^ 1) + odd;
        let mut peers = vec![(partner, Some(self.side(partner)))];
        if self.has_third() {
            peers.insert(0, (0, None));
        }
        peers
    }
}

/// The levels that a rank takes part in.
fn levels(ranks: u32, rank: Rank) -> Vec<EliminationLevel> {
    let mut levels: Vec<EliminationLevel> = Vec::new();
    let mut level = EliminationLevel {
        ranks,
        position: rank,
        segment: 0..1 << ranks.ilog2(),
    };
    while level.ranks > 1 {
        levels.push(level.clone());
        if level.is_eliminated() {
            break;
        }
        let side = level.side(level.position);
        level = EliminationLevel {
            ranks: level.ranks / 2,
            position: (level.position - level.eliminated()) / 2,
            segment: level.half(side),
        };
    }
    levels
}

/// The rank at a position of the group of the last of these levels.
fn rank_at(levels: &[EliminationLevel], position: u32) -> Rank {
    let above = levels[..levels.len() - 1].iter().rev();
    above.fold(position, |position, level| {
        level.eliminated() + 2 * position + level.side(level.position)
    })
}

fn cost(request: &ScheduleRequest) -> Cost {
    let depth = request.ranks.ilog2();
    let odd_levels = (0..depth).filter(|level| (request.ranks >> level) % 2 == 1);
    // The ranks that move most are in a pair with a third rank at one level, and are eliminated at
    // the next level where any rank is.
    let mut candidates: Vec<Rank> = odd_levels
        .map(|level| first_with_third(request.ranks, level))
        .collect();
    candidates.push(0);
    let crossings = crossings(request);
    let of_rank = |rank| phases(request, &levels(request.ranks, rank), &crossings);
    Cost::of_busiest(request, candidates.into_iter().map(of_rank))
}

fn formula(request: &ScheduleRequest) -> Formula {
    let [most, total] = eliminating(request.ranks.into());
    Formula::sum(FLOOR_LOG * 2, most)
        .all_send(total)
        .sent_described("2 N (P − 1) / P for powers of two, else at most N / 2 more")
}

/// A rank that meets a third one at this level and not before.
fn first_with_third(ranks: u32, level: u32) -> Rank {
    let above = (0..level).rev();
    above.fold(2, |position, above| (ranks >> above) % 2 + 2 * position)
}

/// The share of the message that passes the busiest border at each level, in either phase.
fn crossings(request: &ScheduleRequest) -> Vec<f64> {
    let mut messages = vec![Vec::new(); request.ranks.ilog2() as usize];
    for rank in 0..request.ranks {
        let levels = levels(request.ranks, rank);
        for (depth, level) in levels.iter().enumerate() {
            let peers = level.peers().into_iter();
            let kept = peers.filter(|(_, keeps)| keeps.is_some());
            messages[depth]
                .extend(kept.map(|(position, _)| (rank, rank_at(&levels[..=depth], position))));
        }
    }
    let by_level = messages.into_iter().enumerate();
    by_level
        .map(|(level, messages)| crossing::of(request, messages) * share_at(level))
        .collect()
}

/// Half of the segment that groups of a level work on, as a share of the message.
fn share_at(level: usize) -> f64 {
    0.5_f64.powi(level as i32 + 1)
}

/// The phases of one rank.
fn phases(request: &ScheduleRequest, levels: &[EliminationLevel], crossings: &[f64]) -> Vec<Phase> {
    let mut inward = Vec::new();
    let mut outward = Vec::new();
    for (level, crossing) in crossings.iter().enumerate() {
        let share = share_at(level);
        let idle = Phase {
            share,
            crossing: *crossing,
            ..Phase::signals(1)
        };
        let (sends, receives) = match levels.get(level) {
            None => (0, 0),
            Some(level) if level.is_eliminated() => (2, 0),
            Some(level) => (1, 1 + u32::from(level.has_third())),
        };
        let received = f64::from(receives) * share;
        inward.push(Phase {
            messages: sends,
            received,
            reduced: if receives > 0 { received + share } else { 0.0 },
            ..idle
        });
        outward.push(Phase {
            messages: receives,
            received: f64::from(sends) * share,
            copied: request.staged(f64::from(sends) * share),
            ..idle
        });
    }
    inward
        .into_iter()
        .chain(outward.into_iter().rev())
        .collect()
}

/// The bytes that halving-doubling with 3-2 elimination sends: the busiest rank, and all ranks
/// together.
///
/// At a level where groups work on a segment of `s`, each rank of a pair sends s / 2, and as much
/// when results go back. An eliminated rank sends s to a pair, each of which sends s / 2 more when
/// results go back. It was in such a pair if a rank was eliminated before.
fn eliminating(p: u64) -> [Expr; 2] {
    let depth = u64::from(p.ilog2());
    let segments = 1_u64 << depth;
    let odd: Vec<u64> = (0..depth).filter(|level| (p >> level) % 2 == 1).collect();
    let all_levels = 2 * (segments - 1);
    let with_third = odd.iter().enumerate().map(|(index, level)| {
        let eliminated = odd.get(index + 1);
        let spared = eliminated.map_or(0, |level| (segments >> level) - 2);
        all_levels - spared + (segments >> (level + 1))
    });
    let total: u64 = (0..depth)
        .map(|level| (p >> level) + (p >> level) % 2)
        .sum();
    let most = with_third.max().unwrap_or(all_levels);
    [Expr::parts(most, segments), Expr::parts(total, 1)]
}

fn build(request: &ScheduleRequest) -> Schedule {
    let mut b = ProgramBuilder::new(request, Grid::Equal(1 << request.ranks.ilog2()));
    if request.ranks == 1 {
        return b.build();
    }
    let half = b.everything().len() as u32 / 2;
    let contributions = b.add_receive_buffer(half);
    let results = b.add_staging(half);
    let levels = levels(request.ranks, request.rank);
    for depth in 1..=levels.len() {
        reduce_level(&mut b, &levels[..depth], contributions);
    }
    for depth in (1..=levels.len()).rev() {
        gather_level(&mut b, &levels[..depth], results);
    }
    b.build()
}

/// Sends what peers keep, and reduces the half that this rank keeps.
fn reduce_level(b: &mut ProgramBuilder, levels: &[EliminationLevel], receive: Area) {
    let level = &levels[levels.len() - 1];
    let peers = level.peers();
    for &(position, keeps) in &peers {
        if let Some(side) = keeps {
            let (peer, sent) = (rank_at(levels, position), level.half(side));
            b.copy(vec![b.outbox(peer, receive, sent.clone())], b.output(sent));
            b.signal(peer);
        }
    }
    if level.is_eliminated() {
        return;
    }
    let kept = level.half(level.side(level.position));
    let own = b.output(kept.clone());
    let mut srcs = vec![(level.position, own.clone())];
    for (position, _) in peers {
        let peer = rank_at(levels, position);
        b.wait(peer);
        srcs.push((position, b.inbox(peer, receive, kept.clone())));
    }
    srcs.sort_by_key(|(position, _)| *position);
    let srcs = srcs.into_iter().map(|(_, slice)| slice).collect();
    if level.ranks <= 3 {
        b.reduce_final(vec![own], srcs);
    } else {
        b.reduce(own, srcs);
    }
}

/// Sends the result of the half that this rank kept, and takes the others.
fn gather_level(b: &mut ProgramBuilder, levels: &[EliminationLevel], results: Option<Area>) {
    let level = &levels[levels.len() - 1];
    let peers = level.peers().into_iter();
    let peers: Vec<_> = peers
        .map(|(position, keeps)| (rank_at(levels, position), keeps))
        .collect();
    if !level.is_eliminated() {
        let kept = level.half(level.side(level.position));
        let dsts = peers
            .iter()
            .map(|(peer, _)| b.destination(*peer, results, kept.clone()));
        b.copy(dsts.collect(), b.output(kept));
        for (peer, _) in &peers {
            b.signal(*peer);
        }
    }
    for (peer, keeps) in peers {
        if let Some(side) = keeps {
            b.accept(peer, results, level.half(side));
        }
    }
}
