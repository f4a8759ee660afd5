//! Arrivals: data from links that becomes a part of this rank's output unchanged.
//!
//! [Note: Arrivals] A put arrives in a receive buffer, and the step that waits for it copies it to
//! the output. A link whose data this process reads itself (TCP) can write to the output
//! directly, once nothing else uses that part of it: after the last instruction before the copy
//! that reads or writes there, and when no put in transit reads there. So the compiler makes every
//! such copy a separate instruction, which copies only bytes that are not in the output already.
//! It also records which instructions must be complete before the link may be redirected to the
//! output. Data that a rank forwards is sent from its output.
//!
//! Between the redirection and the copy, only the link writes there: the caller does not use its
//! output while the operation runs, other tiles have other elements, and other ranks reach the
//! output only if it is symmetric, in which case nothing is redirected. The redirection ends before
//! the tile continues after the copy, and when the operation fails.

use std::ops::Range;

use weft_schedule::{Buffer, Encoding, Rank, Schedule, Slice, Step};

/// A copy to the output of data that a peer has put into a receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The sender.
    pub from: Rank,
    /// The number of instructions that must be complete before it may arrive in the output.
    pub after: usize,
    /// The instruction that copies the rest of it.
    pub at: usize,
}

/// An [`Arrival`], counted in steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ArrivalSteps {
    pub(super) from: Rank,
    pub(super) after: usize,
    pub(super) at: usize,
}

/// The schedule with copies from receive buffers to the output as separate steps, before the same
/// bytes are copied anywhere else.
pub(super) fn output_first(schedule: &Schedule, linked: &dyn Fn(Rank) -> bool) -> Schedule {
    let mut schedule = schedule.clone();
    let mut at = 0;
    while at < schedule.steps.len() {
        if let Some((landed, output)) = landing(&schedule, &schedule.steps[at], linked) {
            at += bring_forward(&mut schedule, at, &landed, &output);
        }
        at += 1;
    }
    schedule
}

/// The copies of such a schedule for which links can be redirected to the output.
pub(super) fn arrivals(schedule: &Schedule, linked: &dyn Fn(Rank) -> bool) -> Vec<ArrivalSteps> {
    let arrival = |at: usize| {
        let (landed, output) = landing(schedule, &schedule.steps[at], linked)?;
        let Buffer::Receive { from, .. } = landed.buffer else {
            return None;
        };
        let (before, behind) = (&schedule.steps[..at], &schedule.steps[at + 1..]);
        let touching = |step: &Step| touches(schedule, step, &landed, &output);
        let after = before.iter().rposition(touching).map_or(0, |last| last + 1);
        // Data that arrived before its place was free is in the receive buffer.
        let awaited = |step: &Step| matches!(step, Step::Wait { from: peer, .. } if *peer == from);
        let may_arrive = before[after..].iter().any(awaited);
        let read_again = behind
            .iter()
            .flat_map(Step::slices)
            .any(|slice| is_same_entry(slice, &landed) && overlap(&slice.chunks, &landed.chunks));
        let alone = matches!(&schedule.steps[at], Step::Copy { dsts, .. } if dsts.len() == 1);
        (may_arrive && alone && !read_again).then_some(ArrivalSteps { from, after, at })
    };
    (0..schedule.steps.len()).filter_map(arrival).collect()
}

/// The source and destination of a step, if it copies from a receive buffer to the output.
fn landing(
    schedule: &Schedule,
    step: &Step,
    linked: &dyn Fn(Rank) -> bool,
) -> Option<(Slice, Slice)> {
    let Step::Copy {
        dsts,
        src,
        claim: None,
    } = step
    else {
        return None;
    };
    let native = |slice: &Slice| slice.rank == schedule.rank && slice.encoding == Encoding::Native;
    let landed = matches!(src.buffer, Buffer::Receive { from, .. } if linked(from));
    let output = |slice: &&Slice| native(slice) && slice.buffer == Buffer::Output;
    let output = dsts.iter().find(output).filter(|_| landed && native(src))?;
    Some((src.clone(), output.clone()))
}

/// Moves the copy to the output before other copies from the same source, if no step between them
/// waits or uses either slice, and lets those copy from the output. Returns the number of added
/// steps.
fn bring_forward(schedule: &mut Schedule, at: usize, landed: &Slice, output: &Slice) -> usize {
    let forwards = |step: &Step| {
        matches!(step, Step::Copy { src, claim: None, .. } if src == landed)
            && !writes(schedule, step, landed, output)
    };
    let stops = |step: &Step| {
        matches!(step, Step::Wait { .. })
            || (!forwards(step) && touches(schedule, step, landed, output))
    };
    let before = &schedule.steps[..at];
    let moved_over = before.iter().rev().take_while(|step| !stops(step)).count();
    let mut place = at;
    for index in (at - moved_over..at).rev() {
        if forwards(&schedule.steps[index]) {
            place = index;
        }
    }
    for step in &mut schedule.steps[place..=at] {
        if let Step::Copy { dsts, src, .. } = step
            && src == landed
        {
            dsts.retain(|dst| dst != output);
            *src = output.clone();
        }
    }
    let left = !matches!(&schedule.steps[at], Step::Copy { dsts, .. } if dsts.is_empty());
    if !left {
        schedule.steps.remove(at);
    }
    let copy = Step::Copy {
        dsts: vec![output.clone()],
        src: landed.clone(),
        claim: None,
    };
    schedule.steps.insert(place, copy);
    usize::from(left)
}

/// Whether a step reads or writes the received data or its place in the output.
fn touches(schedule: &Schedule, step: &Step, landed: &Slice, output: &Slice) -> bool {
    step.slices()
        .any(|slice| touches_either(schedule, slice, landed, output))
}

fn writes(schedule: &Schedule, step: &Step, landed: &Slice, output: &Slice) -> bool {
    let (Step::Copy { dsts, .. } | Step::Reduce { dsts, .. }) = step else {
        return false;
    };
    dsts.iter()
        .any(|slice| touches_either(schedule, slice, landed, output))
}

fn touches_either(schedule: &Schedule, slice: &Slice, landed: &Slice, output: &Slice) -> bool {
    let Schedule {
        rank, collective, ..
    } = schedule;
    if slice.rank != *rank {
        return false;
    }
    match slice.buffer {
        Buffer::Output => overlap(&slice.chunks, &output.chunks),
        // The caller's input may be its block of the output, or all of it.
        Buffer::Input => !collective.input_is_block() || overlap(&slice.chunks, &output.chunks),
        Buffer::Receive { .. } => is_same_entry(slice, landed),
        Buffer::Scratch { .. } => false,
    }
}

/// Whether two slices are in the same entry of a receive buffer, with the same layout of chunks.
fn is_same_entry(a: &Slice, b: &Slice) -> bool {
    let entry = |slice: &Slice| match slice.buffer {
        Buffer::Receive { from, entry, .. } => Some((slice.rank, from, entry)),
        _ => None,
    };
    entry(a).is_some() && entry(a) == entry(b)
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests;
