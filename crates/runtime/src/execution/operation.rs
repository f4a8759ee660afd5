//! One call in flight, and its tiles.
//!
//! [Note: Lanes and slots] All ranks issue the operations of a group in the same order, so
//! operation n can use lane n % 4 without a word between ranks. Within a lane operations run
//! one after the other, each with a number of tiles that all ranks agree on, so that tile g of a
//! lane is the same tile everywhere, and may use slot g modulo slots of all temporary memory. A
//! tile starts when the tile that used its slot before has ended on this rank and, where it will
//! put something into a peer's receive buffer, on that peer: peers tell by their credit words.
//!
//! [Note: Levels of priority] A lane's order is that of the calls on every rank, so an urgent
//! operation cannot go past another in its lane. Hence the first few priorities other than 0 that a
//! group's calls bring have a lane each: however many operations of other priorities are under way,
//! none of them is in the way of the slots of this one, and the engine advances it first. All ranks
//! call with the same priorities in the same order, so all map them to the same lanes; a rank with
//! another one is found out by its fingerprint.
//!
//! [Note: Agreement] Two things can be known to one rank only: the largest block of an operation
//! whose counts differ between ranks, and whether memory is symmetric. Then a small all-reduce goes
//! before the operation and settles it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_call::{Call, Completion, Due, Fingerprint};
use weft_channel::{PartSet, lane_of};
use weft_flight::OpenStage;
use weft_memory::Bases;
use weft_program::{Geometry, Plan};
use weft_schedule::Rank;
use weft_transport::Link;

use super::arrivals::Arrivals;
use super::calling_thread::Entered;
use super::interpret::Blocked;
use super::puts::Puts;
use super::strips::Strips;
use crate::Error;
use crate::selection::{Decision, InlineProgram};

/// The values that the small all-reduce before an operation reduces with `max`: x and its
/// complement, so that the result tells both the largest value and whether all were the same.
#[derive(Debug)]
pub(crate) struct Agreement {
    words: [AtomicU64; 2],
    completion: Arc<Completion>,
}

impl Agreement {
    pub(crate) fn new(value: u64, completion: Arc<Completion>) -> Arc<Self> {
        Arc::new(Agreement {
            words: [AtomicU64::new(value), AtomicU64::new(!value)],
            completion,
        })
    }

    /// Where the all-reduce works.
    pub(crate) fn memory(&self) -> *mut u8 {
        self.words.as_ptr().cast_mut().cast()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.completion.is_over()
    }

    /// The largest value of any rank.
    pub(crate) fn largest(&self) -> u64 {
        self.words[0].load(Ordering::Relaxed)
    }

    /// Whether all ranks had the same value.
    pub(crate) fn unanimous(&self) -> bool {
        self.largest() == !self.words[1].load(Ordering::Relaxed)
    }
}

/// The tiles of a lane, counted over all operations that ran in it.
#[derive(Default, Debug)]
pub(crate) struct Lane {
    /// The number of tiles given to operations so far.
    pub(crate) assigned: u64,
    /// All tiles below this have ended here.
    pub(crate) ended: u64,
}

/// One tile under way.
#[derive(Debug)]
pub(crate) struct Tile {
    /// Its number within the operation.
    pub(crate) index: u64,
    /// Its number within the lane.
    pub(crate) g: u64,
    /// The next instruction.
    pub(crate) next: usize,
    /// Its puts that are under way.
    pub(crate) puts: Puts,
    /// What links are told to write to the output.
    pub(crate) arrivals: Arrivals,
    /// The further streams that it has chosen, by the rank at their other end: everything that it
    /// sends to a rank takes one stream, and so keeps its order. Those of different tiles need
    /// none, since a slot is only used again behind a credit.
    pub(crate) streams: Vec<(Rank, usize)>,
    /// The rank that knows the fingerprint which goes ahead of the next instruction, a put.
    pub(crate) shown: Option<u32>,
    /// The wait for a signal that it is in, if somebody traces.
    pub(crate) awaited: Option<OpenStage>,
    /// Why it does not go on.
    pub(crate) blocked: Option<Blocked>,
    /// All its instructions are done; kept until the tiles before it have ended too.
    pub(crate) done: bool,
}

/// What an operation needs once its turn has come.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plan: Arc<Plan>,
    pub(crate) geometry: Geometry,
    pub(crate) bases: Bases,
    /// What it uses of channels and scratch memory.
    pub(crate) parts: PartSet,
    /// The lane's number of the operation's first tile.
    pub(crate) first: u64,
    /// The next tile to start, within the operation.
    pub(crate) next: u64,
    /// Tiles under way, in order.
    pub(crate) tiles: Vec<Tile>,
    /// What of its memory is registered for a while.
    pub(crate) strips: Strips,
}

/// One call under way.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) sequence: u64,
    pub(crate) call: Call,
    pub(crate) completion: Arc<Completion>,
    pub(crate) due: Due,
    pub(crate) fingerprint: Fingerprint,
    /// Set for one that runs on the calling-thread path.
    pub(crate) inline: Option<(Entered, InlineProgram)>,
    pub(crate) decision: Arc<Decision>,
    pub(crate) bases: Bases,
    pub(crate) agreement: Option<Arc<Agreement>>,
    pub(crate) running: Option<Running>,
    /// Why it cannot run, as all ranks find alike.
    pub(crate) refusal: Option<Error>,
    /// Why its next tile cannot start, if none is under way.
    pub(crate) waiting: Option<Blocked>,
    /// When it last made a step, as far as housekeeping saw.
    pub(crate) last_step: Instant,
    pub(crate) last_query: Instant,
    /// Keeps memory alive that only the operation uses.
    pub(crate) _keep: Option<OperationMemory>,
}

/// Memory that only one operation uses.
#[derive(Debug)]
pub(crate) enum OperationMemory {
    /// What an agreement reduces.
    Agreement(#[expect(dead_code, reason = "held, not read")] Arc<Agreement>),
    /// A multiplied copy of the input.
    Scaled(Vec<u8>),
}

impl Operation {
    pub(crate) fn lane(&self) -> usize {
        lane_of(self.sequence, self.fingerprint.level())
    }

    /// Whether it goes ahead of what links have queued: all operations of its lane do, or none.
    pub(crate) fn is_urgent(&self) -> bool {
        self.call.priority > 0 && self.fingerprint.level() > 0
    }

    /// Whether everything is done, or nothing can be.
    pub(crate) fn is_done(&self) -> bool {
        if self.refusal.is_some() {
            return true;
        }
        if let Some((entered, _)) = &self.inline {
            return entered.outcome.is_some();
        }
        self.running
            .as_ref()
            .is_some_and(|r| r.next == r.geometry.tiles && r.tiles.is_empty())
    }

    /// Gives up what is on its way on links: the caller's memory is neither read nor written any
    /// more.
    pub(crate) fn cancel(&self, links: &[Option<Arc<dyn Link>>]) {
        for tile in self.running.iter().flat_map(|running| &running.tiles) {
            tile.puts.cancel(links);
            tile.arrivals.cancel(links);
        }
    }

    /// Whether it has steps that this rank may take over from others.
    pub(crate) fn may_help(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.plan.program.helps)
    }

    /// Why it does not go on.
    pub(crate) fn blocked(&self) -> Option<&Blocked> {
        let tiles = self.running.iter().flat_map(|running| &running.tiles);
        tiles
            .filter_map(|tile| tile.blocked.as_ref())
            .next()
            .or(self.waiting.as_ref())
    }

    /// What the ranks have agreed on: the plan, or why there is none, and the largest block where
    /// that is not known to all. What came from the calling-thread path has no agreement: its
    /// memory is not symmetric.
    pub(super) fn settle(&self) -> (Result<&Arc<Plan>, Error>, Option<u64>) {
        let ordinary = || self.decision.ordinary.as_ref().map_err(Error::clone);
        match (&self.agreement, &self.decision.symmetric) {
            (None, _) => (ordinary(), None),
            (Some(agreement), None) => (ordinary(), Some(agreement.largest())),
            (Some(agreement), Some(symmetric)) => {
                let agreed = agreement.unanimous() && agreement.largest() != 0;
                (if agreed { Ok(symmetric) } else { ordinary() }, None)
            }
        }
    }
}
