//! Recursive halving of a group of any number of ranks, downwards for reduce-scatter and upwards
//! for all-gather.
//!
//! A range of ranks is divided into a lower and an upper half, each of which is divided further.
//! Each rank has a partner at its own position in the other half. Where the lower half has one rank
//! more, its last rank faces the first one of the upper half, which has two partners then.

use std::ops::Range;

use weft_schedule::Rank;

use crate::ScheduleRequest;
use crate::cost::{Cost, Phase};
use crate::patterns::builder::{Area, ProgramBuilder};
use crate::patterns::crossing;

/// One division of a range, as a rank of it sees it.
#[derive(Clone)]
pub(crate) struct Division {
    /// The half that the rank is in.
    pub(crate) own: Range<Rank>,
    /// The other half.
    pub(crate) other: Range<Rank>,
    /// The rank of the other half that this one faces.
    pub(crate) facing: Rank,
    /// The ranks of the other half that face this one.
    pub(crate) faced_by: Vec<Rank>,
}

/// The divisions that a rank takes part in, the first of all ranks.
pub(crate) fn divisions(ranks: u32, rank: Rank) -> Vec<Division> {
    let mut divisions = Vec::new();
    let mut range = 0..ranks;
    while range.len() > 1 {
        let middle = range.start + (range.len() as u32).div_ceil(2);
        let (lower, upper) = (range.start..middle, middle..range.end);
        let unequal = lower.len() > upper.len();
        let division = if lower.contains(&rank) {
            let opposite = rank + lower.len() as u32;
            let alone = opposite == range.end;
            Division {
                facing: if alone { middle } else { opposite },
                faced_by: if alone { Vec::new() } else { vec![opposite] },
                own: lower,
                other: upper,
            }
        } else {
            let opposite = rank - lower.len() as u32;
            let mut faced_by = vec![opposite];
            if unequal && rank == middle {
                faced_by.push(middle - 1);
            }
            Division {
                facing: opposite,
                faced_by,
                own: upper,
                other: lower,
            }
        };
        range = division.own.clone();
        divisions.push(division);
    }
    divisions
}

/// Notifies the ranks that will write into this one's output, those of [`gather_up`], that they
/// may.
pub(crate) fn open_up(b: &mut ProgramBuilder) {
    for division in divisions(b.ranks(), b.rank()) {
        b.open_to(division.facing);
    }
}

/// Brings every rank's block, which is in its output, to all ranks. Peers that write into outputs
/// have been notified that they may, by `opened` or otherwise.
pub(crate) fn gather_up(b: &mut ProgramBuilder, staging: Option<Area>, opened: bool) {
    for division in divisions(b.ranks(), b.rank()).into_iter().rev() {
        for &peer in &division.faced_by {
            if opened {
                b.await_open(peer);
            }
            b.deliver(
                peer,
                b.output(division.own.clone()),
                staging,
                division.own.clone(),
            );
        }
        b.accept(division.facing, staging, division.other);
    }
}

/// The number of divisions of the rank that takes part in most.
fn depth(ranks: u32) -> u32 {
    ranks.next_power_of_two().ilog2()
}

/// The cost where each rank sends the blocks of the other half to the rank that it faces,
/// downwards: first division first.
pub(crate) fn cost_down(request: &ScheduleRequest) -> Cost {
    let crossings = crossings(request, |rank, division| {
        vec![(rank, division.facing, division.other.len() as u64)]
    });
    let share = request.block_share();
    cost(request, &crossings, |division| {
        let kept = division.own.len() as f64 * share;
        let received = division.faced_by.len() as f64 * kept;
        let reduces = !division.faced_by.is_empty();
        Phase {
            messages: 1,
            share: division.other.len() as f64 * share,
            received,
            reduced: if reduces { received + kept } else { 0.0 },
            ..Phase::signals(1)
        }
    })
}

/// The cost where each rank sends the blocks of its own half to those that face it, upwards: last
/// division first.
pub(crate) fn cost_up(request: &ScheduleRequest) -> Cost {
    let crossings = crossings(request, |rank, division| {
        let blocks = division.own.len() as u64;
        let peers = division.faced_by.iter();
        peers.map(|peer| (rank, *peer, blocks)).collect()
    });
    let share = request.block_share();
    let mut cost = cost(request, &crossings, |division| {
        let arriving = division.other.len() as f64 * share;
        Phase {
            messages: division.faced_by.len() as u32,
            share: division.own.len() as f64 * share,
            received: arriving,
            copied: request.staged(arriving),
            ..Phase::signals(1)
        }
    });
    cost.phases.reverse();
    cost
}

fn cost(request: &ScheduleRequest, crossings: &[f64], phase: impl Fn(&Division) -> Phase) -> Cost {
    let of_rank = |rank| {
        let divisions = divisions(request.ranks, rank);
        let phases = crossings.iter().enumerate().map(|(level, crossing)| Phase {
            crossing: *crossing,
            ..divisions.get(level).map_or(Phase::signals(1), &phase)
        });
        phases.collect()
    };
    let mut cost = Cost::of_busiest(request, (0..request.ranks).map(of_rank));
    if steps(request.ranks) < depth(request.ranks)
        && let (Some(last), Some(above)) = (cost.phases.pop(), cost.phases.pop())
    {
        cost.phases.push(above.along_with(&last));
    }
    cost
}

/// The share of the message that passes the busiest border in each division. `sent` lists from whom
/// to whom how many blocks go.
fn crossings(
    request: &ScheduleRequest,
    sent: impl Fn(Rank, &Division) -> Vec<(Rank, Rank, u64)>,
) -> Vec<f64> {
    let mut messages = vec![Vec::new(); depth(request.ranks) as usize];
    for rank in 0..request.ranks {
        for (level, division) in divisions(request.ranks, rank).iter().enumerate() {
            messages[level].extend(sent(rank, division));
        }
    }
    let by_level = messages.into_iter();
    by_level
        .map(|messages| crossing::of_blocks(request, messages) * request.block_share())
        .collect()
}

/// The longest chain of signals of a recursive halving or doubling: ⌈log2 p⌉, or one less up to
/// 81/64 of a power of two (counted in the test). Where few ranks take part in the last division,
/// no rank waits in the one above for those that wait in it: they are the last of their halves,
/// which face ranks that have two partners.
pub(crate) fn steps(ranks: u32) -> u32 {
    let floor_log = ranks.ilog2();
    floor_log + u32::from(64 * u64::from(ranks) > 81 << floor_log)
}

#[cfg(test)]
mod tests {
    use super::{divisions, steps};

    /// By the recursion on the two halves: a rank has everything when it has its own half's blocks
    /// and, a step later, those that it waits for.
    fn chain(ranks: u32) -> Vec<u32> {
        if ranks == 1 {
            return vec![0];
        }
        let [lower, upper] = [ranks.div_ceil(2), ranks / 2].map(chain);
        let faces = |half: &[u32], at: usize| 1 + half.get(at).unwrap_or(&half[0]);
        let both = [(&lower, &upper), (&upper, &lower)];
        let halves = both.map(|(own, other)| {
            let with_other = own.iter().enumerate();
            with_other.map(|(at, own)| *own.max(&faces(other, at)))
        });
        halves.into_iter().flatten().collect()
    }

    #[test]
    fn the_longest_chain_is_as_priced() {
        for ranks in 2..1500 {
            let longest = chain(ranks).into_iter().max();
            assert_eq!(longest, Some(steps(ranks)), "{ranks}");
        }
    }

    #[test]
    fn ranks_face_each_other_consistently() {
        for ranks in 1..70 {
            for rank in 0..ranks {
                for (level, division) in divisions(ranks, rank).iter().enumerate() {
                    assert!(division.own.contains(&rank));
                    let theirs = &divisions(ranks, division.facing)[level];
                    assert_eq!(theirs.own, division.other);
                    assert!(theirs.faced_by.contains(&rank));
                    for peer in &division.faced_by {
                        assert_eq!(divisions(ranks, *peer)[level].facing, rank);
                    }
                }
            }
        }
    }
}
