//! Calling-thread path: operations between ranks that map each other's memory, executed by the
//! calling thread from the call to their end.
//!
//! [Note: Inline operations] The schedule of a collective (with its root) is compiled when it is
//! first called, and that of a named algorithm when it is first named. Messages that fit into one
//! tile run by it. Flag, fingerprint and payload of each ordered pair of ranks are consecutive in
//! one slot, so that a small payload arrives in the flag's cache line. Such *inline* operations
//! have separate numbers, and run one at a time, in the order of the calls, next to the lanes.
//! Operation f uses slot f % [`INLINE_SLOTS`] of every pair. A payload that does not fit is in the
//! large slot of that number, but flag and fingerprint stay in the small one, so that ranks detect
//! calls that differ.
//!
//! [Note: Ranks in step] Slots need no credit. Some operations keep the ranks in step: every rank
//! signals to every other and waits for every other. A rank that has ended such an operation g
//! knows that every peer has begun g, and so has ended all operations before g. A rank that begins
//! operation f must know that every peer has ended operation f - [`INLINE_SLOTS`], which used the
//! same slot. So one of the [`INLINE_SLOTS`] - 1 operations before f must have kept the ranks in
//! step. If the schedules of too many operations in a row do not (the root of a broadcast receives
//! no signal), the next one begins with an exchange: a signal of every rank to every other. All
//! ranks count in the same way. Temporary memory needs less: the verifier has checked that no peer
//! accesses it after the operation has ended at its owner.
//!
//! A blocking call runs on the calling thread without the engine while that is likely to be quick.
//! If it blocks for longer, the engine continues it. The engine executes background calls from the
//! beginning. Both access other ranks' memory in the same way, so ranks may differ in this.
//!
//! [Note: Exchange of positions] If memory may be symmetric, the signals of the exchange carry its
//! position, as a number that is the same on all ranks that passed the same piece at the same
//! offset. When all signals have arrived, every rank knows whether all positions are equal. It then
//! continues by the schedule for symmetric memory, by the one for ordinary memory, or, if this path
//! has none, in the operation's lane. Later operations in that lane must wait until this is
//! decided: see [`CallingThread::undecided`].

mod area;
mod entered;
mod run;
mod signals;
mod turns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weft_call::{Call, Order};
use weft_channel::{ChannelLayout, Connections, INLINE_SLOTS, LANES, PartSet, SlotSize};
use weft_flight::GroupFlight;
use weft_memory::{Pieces, Pool};
use weft_transport::{LinkError, Presence, PresenceGuard, Segment};

use super::interpret::{Advance, Blocked, GroupFailure};
use super::spin_policy::SpinPolicy;
use crate::selection::{Decision, InlineChoice, ProgramTables, agreement_call};
use area::{InlineArea, InlineMemory, PeerSlots};
pub(crate) use entered::{Entered, InlineOutcome};
use entered::{EntryPhase, undecided_word};
use run::InlineRun;
use turns::{CountedCall, Turn, Turns};

/// Turns of a thread that waits for a flag between two checks of the clock and the peer.
const TURNS_PER_CHECK: u32 = 64;

/// The presence of a rank without a link: this rank, for which no thread waits.
const ABSENT: Presence = Presence::Away { core: None };

/// The calling-thread path of one group.
pub(crate) struct CallingThread {
    memory: InlineMemory,
    programs: Arc<ProgramTables>,
    layout: ChannelLayout,
    /// By [`SlotSize`]; set once every peer has granted its memory.
    areas: [OnceLock<InlineArea>; 2],
    turns: Turns,
    order: Arc<Mutex<Order>>,
    flight: GroupFlight,
}

/// The outcome of an attempt to run a call immediately.
pub(crate) enum Attempt {
    /// The operation has ended.
    Done,
    /// The operation was entered, and the engine must continue it.
    Entered(Entered),
    /// Nothing was done; the engine must run the call.
    NotNow,
}

impl CallingThread {
    pub(crate) fn new(
        connections: &Connections,
        programs: Arc<ProgramTables>,
        pool: Arc<Segment>,
        order: Arc<Mutex<Order>>,
        pieces: Arc<Pieces>,
        flight: GroupFlight,
    ) -> Arc<Self> {
        Arc::new(CallingThread {
            memory: InlineMemory {
                rank: connections.rank,
                ranks: connections.size(),
                pool,
                pieces,
                symmetric_operations: AtomicU64::new(0),
            },
            programs,
            layout: connections.layout,
            areas: Default::default(),
            turns: Turns::new(INLINE_SLOTS),
            order,
            flight,
        })
    }

    /// The programs of a call on this path, if all ranks run it here.
    #[inline]
    pub(crate) fn choose(&self, call: &Call) -> Option<InlineChoice<'_>> {
        self.programs.choose(call, self.memory.pieces.made())
    }

    /// Whether a call, or the agreement before it, runs on this path.
    pub(crate) fn takes(&self, call: &Call, decision: &Decision) -> bool {
        let agreement = || agreement_call(std::ptr::null_mut(), 0, None);
        self.choose(call).is_some()
            || (decision.agreement.is_some() && self.choose(&agreement()).is_some())
    }

    /// Records the links to all peers and their grants.
    pub(crate) fn connect(&self, connections: &Connections) {
        for room in [SlotSize::Small, SlotSize::Large] {
            let area = &self.areas[room as usize];
            if area.get().is_none()
                && let Some(granted) = self.area(connections, room)
            {
                // Another pass may have set it before.
                let _ = area.set(granted);
            }
        }
    }

    fn area(&self, connections: &Connections, room: SlotSize) -> Option<InlineArea> {
        let (slots, scratch) = (self.layout.inline(room), room.part().start());
        let flags = self.layout.inline(SlotSize::Small);
        let parts = PartSet::from(flags.part) | slots.part;
        let peer = |rank: u32| {
            if rank == self.memory.rank {
                return Some(None);
            }
            let link = connections.links[rank as usize].clone()?;
            let channel = connections.channels[rank as usize].as_ref()?;
            if !channel.is_granted(parts) {
                return None;
            }
            let remote = channel.remote.as_ref()?;
            Some(Some(PeerSlots {
                pool: remote.pool.clone()?,
                link,
                theirs: remote.channel(slots),
                their_flags: remote.channel(flags),
                mine: channel.at(slots),
                my_flags: channel.at(flags),
                scratch: remote.scratch(scratch),
            }))
        };
        let peers = (0..self.memory.ranks).map(peer).collect::<Option<_>>()?;
        Some(InlineArea {
            scratch: connections.scratch(scratch),
            peers,
        })
    }

    /// Allocates and grants the memory that the next operation needs, unless that is done. Returns
    /// a rank whose grant it waits for, if any.
    pub(crate) fn prepare(
        &self,
        connections: &mut Connections,
        pool: &Pool,
        choice: InlineChoice<'_>,
    ) -> Advance {
        if self.areas[choice.room as usize].get().is_some() {
            return Ok(None);
        }
        let others = (0..self.memory.ranks).filter(|rank| *rank != self.memory.rank);
        let parts = PartSet::from(SlotSize::Small.part()) | choice.room.part();
        let granted = connections.grant(pool, others.clone(), parts);
        granted.map_err(GroupFailure::Other)?;
        let missing: Vec<u32> = others
            .filter(|rank| !connections.shares(*rank, parts))
            .collect();
        let gone = |rank: &&u32| connections.departed[**rank as usize];
        if let Some(rank) = missing.iter().find(gone) {
            return Err(GroupFailure::Link(*rank, LinkError::Left));
        }
        self.connect(connections);
        Ok(missing.first().map(|from| Blocked::Grant { from: *from }))
    }

    /// Prevents further operations. No operation runs on a calling thread afterwards.
    pub(crate) fn end(&self) {
        self.turns.end();
    }

    /// The number of operations that ran on symmetric memory.
    pub(crate) fn symmetric_operations(&self) -> u64 {
        self.memory.symmetric_operations.load(Ordering::Relaxed)
    }

    /// The operation on a calling thread that may still need a lane: its number among all
    /// operations of the group, and the lane.
    pub(crate) fn undecided(&self) -> Option<(u64, usize)> {
        let (word, lanes) = (self.turns.undecided()?, LANES as u64);
        Some((word / lanes, (word % lanes) as usize))
    }

    /// Records that the engine has taken over an entered operation.
    pub(crate) fn handed_over(&self, entered: &Entered) {
        let ended = entered.outcome == Some(InlineOutcome::Lane);
        self.turns.handed_over(entered.word(), ended);
    }

    /// Runs a call on this thread, if no other operation is before it and the peers are quick.
    pub(crate) fn attempt(
        &self,
        call: &Call,
        spin: SpinPolicy,
        presence: &PresenceGuard<'_>,
    ) -> Attempt {
        let Some(choice) = self.choose(call) else {
            return Attempt::NotNow;
        };
        let Some(area) = self.areas[choice.room as usize].get() else {
            return Attempt::NotNow;
        };
        let Some(mut turn) = self.turns.try_begin() else {
            return Attempt::NotNow;
        };
        let mut entered = self.enter_in(&mut turn, call, choice, true);
        let mut run = InlineRun::new(&self.memory, call, choice, area, &entered);
        let (mut spin, mut reached) = (spin.begin(TURNS_PER_CHECK, presence), 0);
        // On any error the engine takes over, meets it again, and handles it.
        while let Ok(Some(blocked)) = run.advance(&mut entered) {
            if entered.next != reached {
                spin.restart();
                reached = entered.next;
            }
            let peer = &area.peers[blocked.rank() as usize];
            let where_it_is = || peer.as_ref().map_or(ABSENT, |peer| peer.link.presence());
            if !spin.pause(where_it_is) {
                break;
            }
        }
        if entered.outcome != Some(InlineOutcome::Done) {
            return Attempt::Entered(entered);
        }
        turn.done(entered.exchanges);
        self.flight.end(entered.record);
        Attempt::Done
    }

    /// Enters a call that the engine will execute.
    pub(crate) fn enter(&self, call: &Call, choice: InlineChoice<'_>) -> Entered {
        self.enter_in(&mut self.turns.take(), call, choice, false)
    }

    fn enter_in(
        &self,
        turn: &mut Turn<'_>,
        call: &Call,
        choice: InlineChoice<'_>,
        here: bool,
    ) -> Entered {
        let CountedCall { number, exchanges } =
            turn.count(choice.symmetric.is_some(), choice.in_step());
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = choice.plan();
        let (sequence, fingerprint) = order.enter(call, plan);
        if exchanges && here {
            turn.note_undecided(undecided_word(sequence, fingerprint));
        }
        let entry = call.flight_entry(sequence, plan, self.memory.ranks);
        Entered {
            record: self.flight.issue(&entry, here),
            sequence,
            number,
            fingerprint,
            exchanges,
            phase: if exchanges {
                EntryPhase::Exchange
            } else {
                EntryPhase::Ordinary
            },
            begun: false,
            next: 0,
            outcome: None,
        }
    }

    /// Whether all inline operations before this one have ended.
    pub(crate) fn is_next(&self, entered: &Entered) -> bool {
        self.turns.is_next(entered.number)
    }

    /// Advances the next operation as far as possible. Returns what it waits for, or `None` once it
    /// has an outcome.
    pub(crate) fn advance(
        &self,
        call: &Call,
        choice: InlineChoice<'_>,
        entered: &mut Entered,
        left: &[bool],
    ) -> Advance {
        let Some(area) = self.areas[choice.room as usize].get() else {
            return Err(GroupFailure::internal("an inline operation without memory"));
        };
        let turn = self.turns.take();
        if !entered.begun {
            self.flight.begin(entered.record, 0);
        }
        let blocked = InlineRun::new(&self.memory, call, choice, area, entered).advance(entered)?;
        match blocked {
            Some(blocked) if left[blocked.rank() as usize] => {
                return Err(GroupFailure::Link(blocked.rank(), LinkError::Left));
            }
            Some(_) => {}
            None => turn.ended(),
        }
        Ok(blocked)
    }

    /// The number of operations that were called here.
    #[cfg(test)]
    pub(crate) fn called(&self) -> u64 {
        self.turns.take().called()
    }
}
