//! One call under way, and its tiles.
//!
//! [Note: Lanes and slots] All ranks issue the operations of a group in the same order, so operation n can use lane n % LANES
//! without a word between ranks. Within a lane operations run one after the other, each with a number of tiles that all
//! ranks agree on, so that tile g of a lane is the same tile everywhere, and may use slot g % SLOTS of all
//! temporary memory. A tile starts when the tile that used its slot before has ended on this rank and, where it will
//! put something into a peer's landing memory, on that peer: peers tell by their credit words. An urgent operation never
//! waits for the slots of a slower one as long as no more than LANES operations of the group are under way; beyond that
//! it waits for the one that was issued LANES before it.
//!
//! [Note: Agreement] Two things can be known to one rank only: the largest block of an operation whose counts differ between
//! ranks, and whether memory is symmetric. Then a small all-reduce goes before the operation and settles it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use weft_transport::{Link, Ticket};

use crate::call::Fingerprint;
use crate::channel::{LANES, SLOTS};
use crate::execute::{Bases, Blocked};
use crate::geometry::Geometry;
use crate::group_state::GroupState;
use crate::inline::Entered;
use crate::mailbox::Due;
use crate::memory::Pieces;
use crate::plan::{Plan, PlanKey};
use crate::work::Completion;
use crate::{Call, Error};

/// The values that the small all-reduce before an operation reduces with `max`: x and its complement, so that the
/// result tells both the largest value and whether all were the same.
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

impl std::fmt::Debug for Completion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Completion")
            .field("over", &self.is_over())
            .finish()
    }
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
    pub(crate) puts: Vec<UnderWay>,
    /// The rank that knows the fingerprint which goes ahead of the next instruction, a put.
    pub(crate) shown: Option<u32>,
    /// Why it does not go on.
    pub(crate) blocked: Option<Blocked>,
    /// All its instructions are done; kept until the tiles before it have ended too.
    pub(crate) done: bool,
}

/// A put that is under way. See [Note: Puts under way] in `execute.rs`.
#[derive(Debug)]
pub(crate) struct UnderWay {
    pub(crate) to: u32,
    pub(crate) ticket: Ticket,
    /// What it reads.
    pub(crate) source: Pieces,
    /// Whether only this rank can write there.
    pub(crate) private: bool,
}

/// What an operation needs once its turn has come.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) plan: Arc<Plan>,
    pub(crate) geometry: Geometry,
    pub(crate) bases: Bases,
    /// The lane's number of the operation's first tile.
    pub(crate) first: u64,
    /// The next tile to start, within the operation.
    pub(crate) next: u64,
    /// Tiles under way, in order.
    pub(crate) tiles: Vec<Tile>,
}

/// The plans that a call may run by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keys {
    /// For any memory; none where what was asked for runs on symmetric memory only.
    pub(crate) ordinary: Option<PlanKey>,
    /// To use instead if all ranks passed symmetric memory.
    pub(crate) symmetric: Option<PlanKey>,
}

/// One call under way.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) sequence: u64,
    pub(crate) call: Call,
    pub(crate) completion: Arc<Completion>,
    pub(crate) due: Due,
    pub(crate) fingerprint: Fingerprint,
    /// Set for one that runs on the latency path.
    pub(crate) inline: Option<Entered>,
    pub(crate) keys: Keys,
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
    pub(crate) _keep: Option<Keep>,
}

/// Memory that only one operation uses.
#[derive(Debug)]
pub(crate) enum Keep {
    /// What an agreement reduces.
    Agreement(#[expect(dead_code, reason = "held, not read")] Arc<Agreement>),
    /// A multiplied copy of the input.
    Scaled(Vec<u8>),
}

impl Operation {
    pub(crate) fn lane(&self) -> usize {
        (self.sequence % LANES as u64) as usize
    }

    /// Whether everything is done, or nothing can be.
    pub(crate) fn is_done(&self) -> bool {
        if self.refusal.is_some() {
            return true;
        }
        if let Some(entered) = &self.inline {
            return entered.outcome.is_some();
        }
        self.running
            .as_ref()
            .is_some_and(|r| r.next == r.geometry.tiles && r.tiles.is_empty())
    }

    /// Gives up what is on its way on links: the caller's memory is not read any more.
    pub(crate) fn cancel(&self, links: &[Option<Arc<dyn Link>>]) {
        let tiles = self.running.iter().flat_map(|running| &running.tiles);
        for put in tiles.flat_map(|tile| &tile.puts) {
            if let Some(link) = &links[put.to as usize] {
                link.cancel(put.ticket);
            }
        }
    }

    /// Whether it has steps that this rank may take over from others.
    pub(crate) fn may_help(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.plan.helps)
    }

    /// Why it does not go on.
    pub(crate) fn blocked(&self) -> Option<&Blocked> {
        let tiles = self.running.iter().flat_map(|running| &running.tiles);
        tiles
            .filter_map(|tile| tile.blocked.as_ref())
            .next()
            .or(self.waiting.as_ref())
    }
}

impl GroupState {
    /// Lets an operation run whose turn in its lane has come. False if it must wait still.
    pub(crate) fn admit(&mut self, position: usize) -> Result<bool, Error> {
        let operation = &self.operations[position];
        if operation.running.is_some() {
            return Ok(true);
        }
        if operation
            .agreement
            .as_ref()
            .is_some_and(|agreement| !agreement.is_over())
        {
            return Ok(false);
        }
        let lane = operation.lane();
        if self.has_predecessor(operation.sequence, lane) {
            return Ok(false);
        }
        let (key, largest) = operation.settle();
        let Some(key) = key else {
            let refused = self.chooser.choose(&operation.call, false).err();
            let unexplained = || Error::Internal("an operation without a plan".into());
            self.operations[position].refusal = Some(refused.unwrap_or_else(unexplained));
            return Ok(false);
        };
        let plan = match self.plans.get(&key) {
            Some(plan) => plan.clone(),
            None => return Err(Error::Internal("an operation without its plan".into())),
        };
        let geometry = Geometry::new(
            &operation.call,
            &plan.schedule,
            self.layout,
            largest,
            plan.tile_bytes,
        )?;
        let first = self.lanes[lane].assigned;
        self.lanes[lane].assigned += geometry.tiles;
        self.symmetric_operations += u64::from(key.symmetric);
        let operation = &mut self.operations[position];
        operation.fingerprint = operation.fingerprint.with_plan(key.short);
        let (sequence, fingerprint) = (operation.sequence, operation.fingerprint);
        let bases = operation.bases.clone();
        operation.running = Some(Running {
            plan,
            geometry,
            bases,
            first,
            next: 0,
            tiles: Vec::with_capacity(SLOTS),
        });
        self.order().settle(sequence, fingerprint);
        Ok(true)
    }
}

impl GroupState {
    /// Whether an operation before this one is in the same lane, or is an inline one that may yet need it.
    fn has_predecessor(&self, sequence: u64, lane: usize) -> bool {
        let before = |other: u64| other < sequence && other % LANES as u64 == lane as u64;
        let here = self.inline.as_ref().and_then(|inline| inline.undecided());
        let queued = self.operations.iter().filter(|operation| {
            let inline = operation.inline;
            inline.is_none_or(|entered| entered.is_undecided())
        });
        here.into_iter()
            .chain(queued.map(|operation| operation.sequence))
            .any(before)
    }
}

impl Operation {
    /// What the ranks have agreed on: the plan, if there is one, and the largest block where that is not known to all.
    fn settle(&self) -> (Option<PlanKey>, Option<u64>) {
        let Keys {
            ordinary,
            symmetric,
        } = self.keys;
        match &self.agreement {
            None => (ordinary, None),
            Some(agreement) if symmetric.is_none() => (ordinary, Some(agreement.largest())),
            Some(agreement) => {
                let agreed = agreement.unanimous() && agreement.largest() != 0;
                (if agreed { symmetric } else { ordinary }, None)
            }
        }
    }
}
