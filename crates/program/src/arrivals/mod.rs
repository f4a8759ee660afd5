//! Arrivals: what peers send over links to become a part of this rank's output, unchanged.
//!
//! [Note: Arrivals] A put lands in a receive buffer, and the step that waits for it copies it to
//! the output. A link that receives with its own hands can write to the output itself, once nothing
//! else touches that part of it: behind the last instruction before the copy that reads or writes
//! there, and when no put under way reads there. So every such copy becomes an instruction of its
//! own, which copies what has not come to the output already, and the compiler notes how far a tile
//! must be before the link may be told. What a rank passes on, it passes on from its output.
//!
//! Between that and the copy nobody but the link writes there: the caller leaves its output alone
//! while the operation runs, other tiles have other elements, and other ranks reach the output only
//! if it is symmetric, of which nothing is redirected. The link is told to stop before the tile
//! goes on behind the copy, and when the operation fails.

use std::ops::Range;

use weft_schedule::{Buffer, Encoding, Rank, Schedule, Slice, Step};

/// A copy of what one peer has put into a receive buffer, to the output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arrival {
    /// The sender.
    pub from: Rank,
    /// So many instructions must be done before it may come to the output.
    pub after: usize,
    /// The instruction that copies the rest.
    pub at: usize,
}

/// An [`Arrival`], counted in steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ArrivalSteps {
    pub(super) from: Rank,
    pub(super) after: usize,
    pub(super) at: usize,
}

/// A schedule whose copies from receive buffers to the output are steps of their own, before the
/// same bytes are copied anywhere else.
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

/// The copies of such a schedule for which links can be told where the bytes belong.
pub(super) fn arrivals(schedule: &Schedule, linked: &dyn Fn(Rank) -> bool) -> Vec<ArrivalSteps> {
    let arrival = |at: usize| {
        let (landed, output) = landing(schedule, &schedule.steps[at], linked)?;
        let Buffer::Receive { from, .. } = landed.buffer else {
            return None;
        };
        let (before, behind) = (&schedule.steps[..at], &schedule.steps[at + 1..]);
        let touching = |step: &Step| touches(schedule, step, &landed, &output);
        let after = before.iter().rposition(touching).map_or(0, |last| last + 1);
        // What has come before its place was free has come to the receive buffer.
        let awaited = |step: &Step| matches!(step, Step::Wait { from: peer, .. } if *peer == from);
        let may_come = before[after..].iter().any(awaited);
        let read_again = behind
            .iter()
            .flat_map(Step::slices)
            .any(|slice| is_same_entry(slice, &landed) && overlap(&slice.chunks, &landed.chunks));
        let alone = matches!(&schedule.steps[at], Step::Copy { dsts, .. } if dsts.len() == 1);
        (may_come && alone && !read_again).then_some(ArrivalSteps { from, after, at })
    };
    (0..schedule.steps.len()).filter_map(arrival).collect()
}

/// The slices of a copy from a receive buffer to the output, if a step is one: where it landed and
/// where it belongs.
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

/// Moves the copy to the output before what is copied from the same place, as far as no step
/// between waits or touches either, and has the others copy from the output. Returns how many steps
/// were added.
fn bring_forward(schedule: &mut Schedule, at: usize, landed: &Slice, output: &Slice) -> usize {
    let passes_on = |step: &Step| {
        matches!(step, Step::Copy { src, claim: None, .. } if src == landed)
            && !writes(schedule, step, landed, output)
    };
    let stops = |step: &Step| {
        matches!(step, Step::Wait { .. })
            || (!passes_on(step) && touches(schedule, step, landed, output))
    };
    let before = &schedule.steps[..at];
    let moved_over = before.iter().rev().take_while(|step| !stops(step)).count();
    let mut place = at;
    for index in (at - moved_over..at).rev() {
        if passes_on(&schedule.steps[index]) {
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

/// Whether a step reads or writes what has landed or where it belongs.
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

/// Whether two slices lie in the same entry of a receive buffer, in which chunks lie as their slice
/// says.
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
