//! Number of messages that cross the border of the busiest outermost unit of a topology.
//!
//! Where no unit is known there is no border.

use weft_schedule::Rank;

use crate::ScheduleRequest;

/// Of messages from and to these ranks, those that pass the busiest border in its busier direction.
pub(crate) fn of(
    request: &ScheduleRequest,
    messages: impl IntoIterator<Item = (Rank, Rank)>,
) -> f64 {
    let messages = messages.into_iter();
    of_blocks(request, messages.map(|(from, to)| (from, to, 1)))
}

/// As [`of`], in blocks: each message has that many.
pub(crate) fn of_blocks(
    request: &ScheduleRequest,
    messages: impl IntoIterator<Item = (Rank, Rank, u64)>,
) -> f64 {
    let Some(level) = request.topology.hosts_level() else {
        return 0.0;
    };
    let mut leaving = vec![0_u64; request.ranks as usize];
    let mut entering = leaving.clone();
    for (from, to, blocks) in messages {
        let [from, to] = [from, to].map(|rank| request.topology.unit_of(level, rank));
        if from != to {
            leaving[from as usize] += blocks;
            entering[to as usize] += blocks;
        }
    }
    let most = leaving.into_iter().chain(entering).max();
    most.unwrap_or_default() as f64
}

/// As [`of`], where every rank sends to the one this far behind it.
pub(crate) fn shift(request: &ScheduleRequest, distance: u32) -> f64 {
    let ranks = request.ranks;
    let messages = (0..ranks).map(|rank| (rank, (rank + distance) % ranks));
    of(request, messages)
}

/// As [`of`], where every rank sends to every other.
pub(crate) fn all_pairs(request: &ScheduleRequest) -> f64 {
    let Some(level) = request.topology.hosts_level() else {
        return 0.0;
    };
    let mut members = vec![0_u64; request.ranks as usize];
    for rank in 0..request.ranks {
        members[request.topology.unit_of(level, rank) as usize] += 1;
    }
    let apart = |inside: u64| inside * (u64::from(request.ranks) - inside);
    members.into_iter().map(apart).max().unwrap_or_default() as f64
}

/// As [`of`], where every rank sends to some others.
pub(crate) fn to_some(request: &ScheduleRequest, receivers: &[Rank]) -> f64 {
    let Some(level) = request.topology.hosts_level() else {
        return 0.0;
    };
    let unit_of = |rank: Rank| request.topology.unit_of(level, rank) as usize;
    let mut members = vec![0_u64; request.ranks as usize];
    let mut receiving = members.clone();
    for rank in 0..request.ranks {
        members[unit_of(rank)] += 1;
    }
    for rank in receivers {
        receiving[unit_of(*rank)] += 1;
    }
    let (all, some) = (u64::from(request.ranks), receivers.len() as u64);
    let both = members.into_iter().zip(receiving);
    let passing = both.map(|(inside, here)| ((all - inside) * here).max(inside * (some - here)));
    passing.max().unwrap_or_default() as f64
}
