//! An unfinished operation, and its tiles.
//!
//! [Note: Lanes and slots] All ranks issue the operations of a group in the same order, so
//! operation n uses lane n % 4 without communication. Operations in a lane run one after the other,
//! each with a number of tiles that all ranks agree on. So tile g of a lane is the same tile on
//! every rank, and may use slot g modulo the number of slots of all temporary memory. A tile starts
//! when the former tile in its slot has ended on this rank and on the peers whose receive buffers
//! it writes. Peers report that by their credit words.
//!
//! [Note: Levels of priority] A lane has the order of the calls on every rank, so an urgent
//! operation cannot overtake another in its lane. So the first few priorities other than 0 have
//! separate lanes: operations of other priorities, of any number, do not occupy an urgent
//! operation's slots, and the engine advances it first. All ranks call with the same priorities in
//! the same order, so all map them to the same lanes. The fingerprint detects a rank with another
//! priority.
//!
//! [Note: Agreement of values] Two values may be known to one rank only: the largest block of an
//! operation whose counts differ between ranks, and whether memory is symmetric. A small all-reduce
//! before the operation determines them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_call::{Call, Completion, Fingerprint, TimeLimit};
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

/// The values of the small all-reduce (`max`) before an operation: x and its complement, so that
/// the result has both the largest value and whether all were the same.
#[derive(Debug)]
pub(crate) struct ValueAgreement {
    words: [AtomicU64; 2],
    completion: Arc<Completion>,
}

impl ValueAgreement {
    pub(crate) fn new(value: u64, completion: Arc<Completion>) -> Arc<Self> {
        Arc::new(ValueAgreement {
            words: [AtomicU64::new(value), AtomicU64::new(!value)],
            completion,
        })
    }

    /// The memory of the all-reduce.
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
    /// The number of tiles of all operations so far.
    pub(crate) assigned: u64,
    /// The number of tiles that have ended here, in order.
    pub(crate) ended: u64,
}

/// A tile that has started.
#[derive(Debug)]
pub(crate) struct Tile {
    /// Its number within the operation.
    pub(crate) index: u64,
    /// Its number within the lane.
    pub(crate) g: u64,
    /// The next instruction.
    pub(crate) next: usize,
    /// Its puts that are not complete.
    pub(crate) puts: Puts,
    /// The arrivals that links write to the output.
    pub(crate) arrivals: Arrivals,
    /// The additional streams that it has chosen, by receiver. All data of a tile to one rank uses
    /// one stream, which keeps its order. Different tiles need no order, since a slot is reused
    /// only after a credit.
    pub(crate) streams: Vec<(Rank, usize)>,
    /// The rank that has received the fingerprint for the next instruction, a put.
    pub(crate) shown: Option<u32>,
    /// The stage of its current wait for a signal, while stages are traced.
    pub(crate) awaited: Option<OpenStage>,
    /// The reason why it is blocked.
    pub(crate) blocked: Option<Blocked>,
    /// Whether its instructions are complete. It is kept until the tiles before it have ended.
    pub(crate) done: bool,
}

/// The state of an operation that is admitted.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plan: Arc<Plan>,
    pub(crate) geometry: Geometry,
    pub(crate) bases: Bases,
    /// The parts of channels and scratch memory that it uses.
    pub(crate) parts: PartSet,
    /// The lane's number of the operation's first tile.
    pub(crate) first: u64,
    /// The next tile to start, within the operation.
    pub(crate) next: u64,
    /// Started tiles, in order.
    pub(crate) tiles: Vec<Tile>,
    /// The puts of ended tiles that are not complete.
    pub(crate) puts: Puts,
    /// Temporary registrations of its memory.
    pub(crate) strips: Strips,
}

/// An unfinished operation.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) sequence: u64,
    pub(crate) call: Call,
    pub(crate) completion: Arc<Completion>,
    pub(crate) due: TimeLimit,
    pub(crate) fingerprint: Fingerprint,
    /// Set for one that runs on the calling-thread path.
    pub(crate) inline: Option<(Entered, InlineProgram)>,
    pub(crate) decision: Arc<Decision>,
    pub(crate) bases: Bases,
    pub(crate) agreement: Option<Arc<ValueAgreement>>,
    pub(crate) running: Option<Running>,
    /// The error if it cannot run, the same on all ranks.
    pub(crate) refusal: Option<Error>,
    /// The reason why its next tile cannot start, if no tile is running.
    pub(crate) waiting: Option<Blocked>,
    /// The time of its last progress, as observed by housekeeping.
    pub(crate) last_step: Instant,
    pub(crate) last_query: Instant,
    /// Memory that only this operation uses.
    pub(crate) _keep: Option<OperationMemory>,
}

/// Memory that only one operation uses.
#[derive(Debug)]
pub(crate) enum OperationMemory {
    /// The values of an agreement.
    ValueAgreement(#[expect(dead_code, reason = "held, not read")] Arc<ValueAgreement>),
    /// A multiplied copy of the input.
    Scaled(Vec<u8>),
}

impl Operation {
    pub(crate) fn lane(&self) -> usize {
        lane_of(self.sequence, self.fingerprint.level())
    }

    /// Whether its data overtakes queued data of links; the same for all operations of its lane.
    pub(crate) fn is_urgent(&self) -> bool {
        self.call.priority > 0 && self.fingerprint.level() > 0
    }

    /// Whether all tiles have ended, or it cannot run.
    pub(crate) fn is_done(&self) -> bool {
        if self.refusal.is_some() {
            return true;
        }
        if let Some((entered, _)) = &self.inline {
            return entered.outcome.is_some();
        }
        self.running
            .as_ref()
            .is_some_and(|r| r.next == r.geometry.tiles && r.tiles.is_empty() && r.puts.is_empty())
    }

    /// Cancels its puts and arrivals on links, which do not use the caller's memory any more.
    pub(crate) fn cancel(&self, links: &[Option<Arc<dyn Link>>]) {
        for tile in self.running.iter().flat_map(|running| &running.tiles) {
            tile.puts.cancel(links);
            tile.arrivals.cancel(links);
        }
        if let Some(running) = &self.running {
            running.puts.cancel(links);
        }
    }

    /// Whether it has steps that this rank may take over from others.
    pub(crate) fn may_help(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.plan.program.helps)
    }

    /// The reason why it is blocked.
    pub(crate) fn blocked(&self) -> Option<&Blocked> {
        let tiles = self.running.iter().flat_map(|running| &running.tiles);
        tiles
            .filter_map(|tile| tile.blocked.as_ref())
            .next()
            .or(self.waiting.as_ref())
    }

    /// The result of the agreement: the plan, or the error if there is none, and the largest block
    /// where not all ranks know it. Operations from the calling-thread path have no agreement, as
    /// their memory is not symmetric.
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
