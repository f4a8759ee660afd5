//! Trace of events with their times, for drawings.

use serde::{Deserialize, Serialize};
use weft_schedule::Rank;

use crate::simulation::Simulation;
use crate::thread::PairId;

/// What takes time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// The rank's thread copies.
    Copy,
    /// The rank's thread reduces.
    Reduce,
    /// The rank's thread hands a message to a link.
    Send,
    /// A message is on its way, from when the link has it until the receiver can see it.
    Transfer,
    /// A signal without bytes is on its way.
    Signal,
    /// The rank's thread takes a message in.
    Receive,
    /// A tile waits for a signal.
    Wait,
}

/// Something that took time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceSpan {
    /// Whose thread or tile; of a transfer or signal, the sender.
    pub rank: Rank,
    /// The step of its schedule. `None` where the executor does it by itself, or where one message
    /// carries several.
    pub step: Option<u32>,
    /// What.
    pub what: What,
    /// When it began, in seconds.
    pub start: f64,
    /// When it ended, in seconds.
    pub end: f64,
    /// The other rank, if one takes part.
    pub peer: Option<Rank>,
    /// The tile. `None` where the executor does it by itself.
    pub tile: Option<u64>,
}

/// Writing down what happens.
impl Simulation<'_> {
    pub(crate) fn trace_wait(&mut self, rank: u32, pair: usize, step: u32, start: f64, tile: u64) {
        let (end, peer) = (self.now, self.pairs[pair].peer);
        self.write(TraceSpan {
            rank: self.orbits.rank(rank),
            step: Some(step),
            what: What::Wait,
            start,
            end,
            peer: Some(peer),
            tile: Some(tile),
        });
    }

    pub(crate) fn trace_work(&mut self, rank: u32, tile: u64, step: u32) {
        let thread = &self.threads[rank as usize];
        let what = match thread.program.reductions.binary_search(&step) {
            Ok(_) => What::Reduce,
            Err(_) => What::Copy,
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
        what: What,
        pair: PairId,
        origin: Option<(u64, u32)>,
    ) {
        let own = what == What::Send;
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
        what: What,
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
