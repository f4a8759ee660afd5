//! Recording of a simulation's events.

use crate::simulation::Simulation;
use crate::thread::PairId;
use crate::trace::{SpanKind, TraceSpan};

/// Recording of events.
impl Simulation<'_> {
    pub(crate) fn trace_wait(&mut self, rank: u32, pair: usize, step: u32, start: f64, tile: u64) {
        let (end, peer) = (self.now, self.pairs[pair].peer);
        self.write(TraceSpan {
            rank: self.orbits.rank(rank),
            step: Some(step),
            what: SpanKind::Wait,
            start,
            end,
            peer: Some(peer),
            tile: Some(tile),
        });
    }

    pub(crate) fn trace_work(&mut self, rank: u32, tile: u64, step: u32) {
        let thread = &self.threads[rank as usize];
        let what = match thread.program.reductions.binary_search(&step) {
            Ok(_) => SpanKind::Reduce,
            Err(_) => SpanKind::Copy,
        };
        self.write(TraceSpan {
            rank: self.orbits.rank(rank),
            step: Some(step),
            what,
            start: thread.since,
            end: self.now,
            peer: None,
            tile: Some(tile),
        });
    }

    pub(crate) fn trace_thread(
        &mut self,
        rank: u32,
        what: SpanKind,
        pair: PairId,
        origin: Option<(u64, u32)>,
    ) {
        let own = what == SpanKind::Send;
        self.write(TraceSpan {
            rank: self.orbits.rank(rank),
            step: origin.filter(|_| own).map(|(_, step)| step),
            what,
            start: self.threads[rank as usize].since,
            end: self.now,
            peer: Some(self.pairs[pair as usize].peer),
            tile: origin.map(|(tile, _)| tile),
        });
    }

    pub(crate) fn trace_transfer(
        &mut self,
        what: SpanKind,
        pair: PairId,
        start: f64,
        origin: Option<(u64, u32)>,
    ) {
        if self.trace.is_none() {
            return;
        }
        self.write(TraceSpan {
            rank: self.orbits.rank(self.pairs[pair as usize].sender),
            step: origin.map(|(_, step)| step),
            what,
            start,
            end: self.now,
            peer: Some(self.pairs[pair as usize].peer),
            tile: origin.map(|(tile, _)| tile),
        });
    }

    fn write(&mut self, event: TraceSpan) {
        if let Some(trace) = &mut self.trace {
            trace.push(event);
        }
    }
}
