//! The events of a simulation, for drawings.

use serde::Serialize;
use weft_schedule::{Rank, Schedule, Slice, Step, print};
use weft_simulate::{SpanKind, TraceSpan};

/// Something that took time.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct TraceEvent {
    /// The rank whose time it is.
    pub rank: Rank,
    /// The activity: `read`, `put`, `copy`, `reduce`, `send`, `transfer`, `signal`, `receive` or
    /// `wait`.
    pub kind: &'static str,
    /// Which chunks.
    pub label: String,
    /// The step in text form.
    pub text: String,
    /// In seconds.
    pub start: f64,
    /// In seconds.
    pub end: f64,
    /// The other rank, if there is one.
    pub peer: Option<Rank>,
    /// The tile, if there is one.
    pub tile: Option<u64>,
}

/// A trace with the steps of these schedules, those of all ranks. `hosts` are those of the ranks.
pub(crate) fn events(
    trace: &[TraceSpan],
    schedules: &[Schedule],
    hosts: &[u32],
) -> Vec<TraceEvent> {
    let texts: Vec<Vec<String>> = schedules.iter().map(steps).collect();
    let event = |event: &TraceSpan| {
        let rank = event.rank as usize;
        let index = event.step.map(|step| step as usize);
        let step = index.and_then(|index| schedules.get(rank)?.steps.get(index));
        let text = index.and_then(|index| texts.get(rank)?.get(index));
        TraceEvent {
            rank: event.rank,
            kind: kind(event, step, hosts),
            label: step.map(label).unwrap_or_default(),
            text: text.cloned().unwrap_or_default(),
            start: event.start,
            end: event.end,
            peer: event.peer,
            tile: event.tile,
        }
    };
    trace.iter().map(event).collect()
}

/// The steps of a program as text.
fn steps(schedule: &Schedule) -> Vec<String> {
    let text = print(std::slice::from_ref(schedule));
    let program = text.lines().skip_while(|line| !line.starts_with("rank "));
    program.skip(1).map(|line| line.trim().to_owned()).collect()
}

fn kind(event: &TraceSpan, step: Option<&Step>, hosts: &[u32]) -> &'static str {
    let host = |rank: Rank| hosts.get(rank as usize);
    let of_peer = |slice: &Slice| slice.rank != event.rank && host(slice.rank) == host(event.rank);
    match event.what {
        SpanKind::Copy => match step {
            Some(Step::Copy { src, .. }) if of_peer(src) => "read",
            Some(Step::Copy { dsts, .. }) if dsts.iter().any(of_peer) => "put",
            _ => "copy",
        },
        SpanKind::Reduce => "reduce",
        SpanKind::Send => "send",
        SpanKind::Transfer => "transfer",
        SpanKind::Signal => "signal",
        SpanKind::Receive => "receive",
        SpanKind::Wait => "wait",
    }
}

/// The chunks that a step moves.
fn label(step: &Step) -> String {
    let chunks = |slice: &Slice| match slice.chunks.len() {
        1 => slice.chunks.start.to_string(),
        _ => format!("{}..{}", slice.chunks.start, slice.chunks.end),
    };
    match step {
        Step::Copy { src, .. } => chunks(src),
        Step::Reduce { dsts, .. } => dsts.first().map(chunks).unwrap_or_default(),
        Step::Signal { .. } | Step::Wait { .. } => String::new(),
    }
}
