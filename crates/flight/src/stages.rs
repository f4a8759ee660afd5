//! Stages of tiles in the pipeline of operations, recorded while they are traced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use weft_transport::TickClock;

/// The most stages of a trace; later ones are dropped.
const SPANS_MAX: usize = 1 << 17;

/// A stage of processing a part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Registration with adapters.
    Registration,
    /// A copy within this rank's memory, into the pool or out of it.
    Copy,
    /// Sending by an adapter or socket, until the memory may change.
    Send,
    /// A reduction.
    Reduction,
    /// The wait for data until it arrives.
    Receive,
    /// Deregistration from adapters.
    Deregistration,
}

impl Stage {
    /// The name in traces.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Registration => "registration",
            Stage::Copy => "copy",
            Stage::Send => "send",
            Stage::Reduction => "reduction",
            Stage::Receive => "receive",
            Stage::Deregistration => "deregistration",
        }
    }
}

/// The operation and tile of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageOf {
    /// The operation's number in its group.
    pub operation: u64,
    /// The tile's number in the operation; of a registration, that of its first tile.
    pub tile: u64,
    /// The number of bytes; 0 if unknown.
    pub bytes: u64,
}

/// A stage that has ended. Times are those of the monotonic clock, which all processes of a host
/// share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageSpan {
    /// The stage.
    pub stage: Stage,
    /// Its operation and tile.
    pub of: StageOf,
    /// Its begin, in nanoseconds.
    pub begin_ns: u64,
    /// Its end, in nanoseconds.
    pub end_ns: u64,
}

/// A stage that has begun.
#[derive(Clone, Copy, Debug)]
pub struct OpenStage {
    stage: Stage,
    of: StageOf,
    begin_ns: u64,
}

impl OpenStage {
    /// The same stage with `bytes` bytes.
    pub fn of_bytes(self, bytes: u64) -> OpenStage {
        OpenStage {
            of: StageOf { bytes, ..self.of },
            ..self
        }
    }
}

/// The stages of an endpoint's operations, while they are traced.
#[derive(Default, Debug)]
pub struct StageTrace {
    tracing: AtomicBool,
    spans: Mutex<Vec<StageSpan>>,
}

impl StageTrace {
    /// Starts or stops recording. Starting drops earlier records.
    pub fn set(&self, tracing: bool) {
        if tracing {
            self.take();
        }
        self.tracing.store(tracing, Ordering::Relaxed);
    }

    /// Removes and returns the records.
    pub fn take(&self) -> Vec<StageSpan> {
        std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins a stage, if stages are traced.
    #[inline]
    pub fn begin(&self, stage: Stage, of: impl FnOnce() -> StageOf) -> Option<OpenStage> {
        let tracing = self.tracing.load(Ordering::Relaxed);
        tracing.then(|| OpenStage {
            stage,
            of: of(),
            begin_ns: TickClock::Monotonic.now(),
        })
    }

    /// Records that a stage ends now.
    pub fn end(&self, open: Option<OpenStage>) {
        let Some(OpenStage {
            stage,
            of,
            begin_ns,
        }) = open
        else {
            return;
        };
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        if spans.len() < SPANS_MAX {
            spans.push(StageSpan {
                stage,
                of,
                begin_ns,
                end_ns: TickClock::Monotonic.now(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(trace: &StageTrace, tile: u64) {
        let of = StageOf {
            operation: 3,
            tile,
            bytes: 0,
        };
        let open = trace.begin(Stage::Send, || of);
        trace.end(open.map(|open| open.of_bytes(100)));
    }

    #[test]
    fn stages_are_recorded_only_while_traced() {
        let trace = StageTrace::default();
        stage(&trace, 0);
        trace.set(true);
        stage(&trace, 1);
        stage(&trace, 2);
        trace.set(false);
        stage(&trace, 3);
        let spans = trace.take();
        let tiles: Vec<_> = spans
            .iter()
            .map(|span| (span.of.tile, span.of.bytes))
            .collect();
        assert_eq!(tiles, [(1, 100), (2, 100)]);
        assert!(spans.iter().all(|span| span.begin_ns <= span.end_ns));
        assert_eq!(trace.take(), []);
    }

    #[test]
    fn new_trace_drops_the_previous_one() {
        let trace = StageTrace::default();
        trace.set(true);
        stage(&trace, 1);
        trace.set(true);
        assert_eq!(trace.take(), []);
    }
}
