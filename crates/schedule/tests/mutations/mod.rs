//! Random changes of schedules.

use std::collections::HashMap;

use weft_schedule::{Buffer, Encoding, Rank, Schedule, Slice, Step};

use crate::interpreter::random::Random;

/// Makes one or two random changes. Half of the time signals are then numbered anew, so that their
/// numbers do not give the change away.
pub(crate) fn mutate(schedules: &mut [Schedule], random: &mut Random) {
    for _ in 0..1 + random.below(2) {
        change(schedules, random);
    }
    if random.once_in(2) {
        renumber(schedules);
    }
}

fn change(schedules: &mut [Schedule], random: &mut Random) {
    let ranks = schedules.len();
    let rank = random.below(ranks);
    let kind = random.below(8);
    if kind == 0 {
        return unsynchronise(schedules, random);
    }
    let schedule = &mut schedules[rank];
    let steps = &mut schedule.steps;
    if steps.is_empty() {
        return;
    }
    let at = random.below(steps.len());
    match kind {
        1 => {
            steps.remove(at);
        }
        2 => {
            let step = steps[at].clone();
            steps.insert(random.below(steps.len() + 1), step);
        }
        3 => {
            let step = steps.remove(at);
            steps.insert(random.below(steps.len() + 1), step);
        }
        4 if at > 0 => steps.swap(at - 1, at),
        _ => retarget(&mut steps[at], ranks, random),
    }
}

/// Deletes a signal and the wait for it.
fn unsynchronise(schedules: &mut [Schedule], random: &mut Random) {
    let rank = random.below(schedules.len());
    let steps = &schedules[rank].steps;
    let signals: Vec<usize> = (0..steps.len())
        .filter(|at| matches!(steps[*at], Step::Signal { .. }))
        .collect();
    if signals.is_empty() {
        return;
    }
    let at = signals[random.below(signals.len())];
    let Step::Signal { to, id } = schedules[rank].steps.remove(at) else {
        return;
    };
    let wait = Step::Wait {
        from: rank as Rank,
        id,
    };
    schedules[to as usize].steps.retain(|step| *step != wait);
    renumber(schedules);
}

/// Numbers signals and waits in program order.
fn renumber(schedules: &mut [Schedule]) {
    for schedule in schedules {
        let mut counts: HashMap<(bool, Rank), u32> = HashMap::new();
        for step in &mut schedule.steps {
            let (key, id) = match step {
                Step::Signal { to, id } => ((true, *to), id),
                Step::Wait { from, id } => ((false, *from), id),
                Step::Copy { .. } | Step::Reduce { .. } => continue,
            };
            let count = counts.entry(key).or_default();
            *id = *count;
            *count += 1;
        }
    }
}

fn retarget(step: &mut Step, ranks: usize, random: &mut Random) {
    match step {
        Step::Signal { to: peer, id } | Step::Wait { from: peer, id } => {
            if random.once_in(2) {
                *peer = random.below(ranks) as Rank;
            } else {
                *id = random.below(*id as usize + 2) as u32;
            }
        }
        Step::Copy { dsts, src, claim } => match random.below(5) {
            0 => retarget_slice(src, ranks, random),
            1 => *claim = None,
            2 => widen_or_move(dsts, std::slice::from_mut(src), random),
            _ => change_list(dsts, ranks, random),
        },
        Step::Reduce {
            dsts,
            srcs,
            is_final,
            claim,
        } => match random.below(6) {
            0 => *is_final = !*is_final,
            1 => *claim = None,
            2 => widen_or_move(dsts, srcs, random),
            3 => change_list(dsts, ranks, random),
            _ => change_list(srcs, ranks, random),
        },
    }
}

fn change_list(slices: &mut Vec<Slice>, ranks: usize, random: &mut Random) {
    if slices.is_empty() {
        return;
    }
    let (at, other) = (random.below(slices.len()), random.below(slices.len()));
    match random.below(5) {
        0 => {
            slices.remove(at);
        }
        1 => slices.push(slices[at].clone()),
        2 => slices.swap(at, other),
        _ => retarget_slice(&mut slices[at], ranks, random),
    }
}

/// Changes the chunks of all slices of a step in the same way.
fn widen_or_move(dsts: &mut [Slice], srcs: &mut [Slice], random: &mut Random) {
    let (wider, moved) = (random.once_in(2), random.once_in(2));
    for slice in dsts.iter_mut().chain(srcs) {
        slice.chunks.end += u32::from(wider || moved);
        slice.chunks.start += u32::from(moved);
    }
}

fn retarget_slice(slice: &mut Slice, ranks: usize, random: &mut Random) {
    let rank = random.below(ranks) as Rank;
    match random.below(6) {
        0 => slice.rank = rank,
        1 => {
            let start = random.below(slice.chunks.end as usize + 1) as u32;
            let width = slice.chunks.end - slice.chunks.start;
            slice.chunks = start..start + width;
        }
        2 => slice.encoding = Encoding::ALL[random.below(Encoding::ALL.len())],
        3 => {
            let (entry, base) = (random.below(2) as u32, slice.chunks.start);
            slice.buffer = match random.below(4) {
                0 => Buffer::Input,
                1 => Buffer::Output,
                2 => Buffer::Scratch { entry, base },
                _ => Buffer::Receive {
                    from: rank,
                    entry,
                    base,
                },
            };
        }
        _ => match &mut slice.buffer {
            Buffer::Input => slice.buffer = Buffer::Output,
            Buffer::Output => slice.buffer = Buffer::Input,
            Buffer::Scratch { entry, base } => {
                let field = if random.once_in(2) { entry } else { base };
                *field = random.below(*field as usize + 2) as u32;
            }
            Buffer::Receive { from, entry, base } => match random.below(3) {
                0 => *from = rank,
                1 => *entry = random.below(*entry as usize + 2) as u32,
                _ => *base = random.below(*base as usize + 2) as u32,
            },
        },
    }
}
