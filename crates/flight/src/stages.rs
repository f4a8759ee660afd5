//! Stages of tiles, recorded while somebody traces them: what the pipeline of operations does when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use weft_transport::TickClock;

/// So many are recorded; what comes later is left out.
const SPANS_MAX: usize = 1 << 17;

/// What is done with a part of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// It is registered with adapters.
    Registration,
    /// It is copied within this rank's memory: into the pool, or out of it.
    Copy,
    /// An adapter or socket sends it, until its memory may change.
    Send,
    /// It is added to something.
    Reduction,
    /// It is waited for, until it is there.
    Receive,
    /// Adapters are told to forget it.
    Deregistration,
}

impl Stage {
    /// What people call it.
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

/// What a stage is recorded for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageOf {
    /// The operation's number in its group.
    pub operation: u64,
    /// The tile's number in the operation; of a registration, that of its first tile.
    pub tile: u64,
    /// How much it is; 0 if that is not known.
    pub bytes: u64,
}

/// A stage that is over. Times are those of the monotonic clock, which all processes of a host
/// share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StageSpan {
    /// What was done.
    pub stage: Stage,
    /// With what.
    pub of: StageOf,
    /// When it began, in nanoseconds.
    pub begin_ns: u64,
    /// When it was over, in nanoseconds.
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
    /// The same, of so many bytes.
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
    /// Begins or ends to record. What was recorded before is forgotten at the beginning.
    pub fn set(&self, tracing: bool) {
        if tracing {
            self.take();
        }
        self.tracing.store(tracing, Ordering::Relaxed);
    }

    /// What was recorded, which is then forgotten.
    pub fn take(&self) -> Vec<StageSpan> {
        std::mem::take(&mut *self.spans.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A stage that begins now, if somebody traces.
    #[inline]
    pub fn begin(&self, stage: Stage, of: impl FnOnce() -> StageOf) -> Option<OpenStage> {
        let tracing = self.tracing.load(Ordering::Relaxed);
        tracing.then(|| OpenStage {
            stage,
            of: of(),
            begin_ns: TickClock::Monotonic.now(),
        })
    }

    /// Records a stage that is over now.
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
    fn stages_are_recorded_while_somebody_traces() {
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
    fn a_new_trace_forgets_the_one_before() {
        let trace = StageTrace::default();
        trace.set(true);
        stage(&trace, 1);
        trace.set(true);
        assert_eq!(trace.take(), []);
    }
}
