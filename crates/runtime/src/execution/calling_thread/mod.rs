//! The calling-thread path: operations between ranks that map each other's memory, from their call
//! to their end on one thread.
//!
//! [Note: Inline operations] Schedules are lowered when a collective (of a root) is first called,
//! those that calls name when they first do, and messages that one tile takes run by them: flag,
//! fingerprint and payload of each ordered pair lie one behind the other in one slot, so that a
//! small payload comes in the flag's own cache line. Such operations are numbered on their own, and
//! run one at a time, in the order of the calls, beside the lanes. Operation f uses slot f %
//! [`INLINE_SLOTS`] of every pair. What has no room in it lies in the large slot of that number,
//! while flag and fingerprint stay where they are: so calls that differ find each other.
//!
//! [Note: Ranks in step] Slots need no credit. Some operations keep the ranks in step: every rank
//! signals to every other and waits for every other. Who has ended such an operation g knows that
//! every peer has begun it, and so has ended all before. Who begins operation f must know that of f
//! minus [`INLINE_SLOTS`], which used the slot before: so one of the [`INLINE_SLOTS`] minus 1
//! operations before f must have kept the ranks in step. Where the schedules of too many in a row
//! do not (a broadcast's root hears from nobody), the next one begins with a signal of every rank
//! to every other. All ranks count alike. Temporary memory needs less: the verifier has checked
//! that no peer touches it once the operation has ended at its owner.
//!
//! A blocking call runs on the calling thread without the engine, as long as that promises to be
//! quick; then the engine takes over where it got stuck. What is called in the background is the
//! engine's from the beginning. Both do the same to the memory of others, so ranks need not do
//! alike.
//!
//! [Note: Asking] Where memory may be symmetric, the first signals tell where it lies, as a number
//! that is the same on all ranks that passed the same piece at the same place. So when all have
//! come every rank knows whether all did, and goes on by the schedule for symmetric memory, by the
//! one for ordinary memory, or, if that is none of the latency path's, in the operation's lane.
//! Operations behind it in that lane must wait until that is clear: see
//! [`CallingThread::undecided`].

mod area;
mod entered;
mod run;
mod signals;
mod turns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use weft_call::{Call, Order};
use weft_channel::{ChannelLayout, Connections, INLINE_SLOTS, LANES, PartSet, Room};
use weft_flight::GroupFlight;
use weft_memory::{Pieces, Pool};
use weft_transport::{LinkError, Presence, PresenceGuard, Segment};

use super::interpret::{Advance, Blocked, GroupFailure};
use super::spin_policy::SpinPolicy;
use crate::selection::{Decision, InlineChoice, ProgramTables, agreement_call};
use area::{Area, InlineMemory, PeerSlots};
pub(crate) use entered::{Entered, InlineOutcome};
use entered::{EntryPhase, undecided_word};
use run::InlineRun;
use turns::{CountedCall, Turn, Turns};

/// A thread that waits for a flag looks at the clock, and at the peer, once in so many turns.
const TURNS_PER_LOOK: u32 = 64;

/// Of a rank without a link, which is this one: nobody waits for it.
const ABSENT: Presence = Presence::Away { core: None };

/// The calling-thread path of one group.
pub(crate) struct CallingThread {
    memory: InlineMemory,
    programs: Arc<ProgramTables>,
    layout: ChannelLayout,
    /// By [`Room`]; there once every peer has granted its memory.
    areas: [OnceLock<Area>; 2],
    turns: Turns,
    order: Arc<Mutex<Order>>,
    flight: GroupFlight,
}

/// What became of a call that tried to run at once.
pub(crate) enum Attempt {
    /// It is done.
    Done,
    /// It was entered, and the engine must go on with it.
    Entered(Entered),
    /// Nothing was done.
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

    /// What a call runs by here, if all ranks run it here.
    #[inline]
    pub(crate) fn choose(&self, call: &Call) -> Option<InlineChoice<'_>> {
        self.programs.choose(call, self.memory.pieces.made())
    }

    /// Whether a call runs here, or what its ranks agree by before it.
    pub(crate) fn takes(&self, call: &Call, decision: &Decision) -> bool {
        let agreement = || agreement_call(std::ptr::null_mut(), 0, None);
        self.choose(call).is_some()
            || (decision.agreement.is_some() && self.choose(&agreement()).is_some())
    }

    /// Takes note of the links to all peers, and of what they have granted.
    pub(crate) fn connect(&self, connections: &Connections) {
        for room in [Room::Small, Room::Large] {
            let area = &self.areas[room as usize];
            if area.get().is_none()
                && let Some(granted) = self.area(connections, room)
            {
                // Set before by another pass, if at all.
                let _ = area.set(granted);
            }
        }
    }

    fn area(&self, connections: &Connections, room: Room) -> Option<Area> {
        let (slots, scratch) = (self.layout.inline(room), room.part().start());
        let flags = self.layout.inline(Room::Small);
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
        Some(Area {
            scratch: connections.scratch(scratch),
            peers,
        })
    }

    /// Takes and grants what a call needs that is the next to run, unless that is done. Which
    /// rank's grant it waits for.
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
        let parts = PartSet::from(Room::Small.part()) | choice.room.part();
        let granted = connections.grant(pool, others.clone(), parts);
        granted.map_err(GroupFailure::Other)?;
        let missing: Vec<u32> = others
            .filter(|rank| !connections.shares(*rank, parts))
            .collect();
        let gone = |rank: &&u32| connections.left[**rank as usize];
        if let Some(rank) = missing.iter().find(gone) {
            return Err(GroupFailure::Link(*rank, LinkError::Left));
        }
        self.connect(connections);
        Ok(missing.first().map(|from| Blocked::Grant { from: *from }))
    }

    /// Lets no operation begin any more. None is on its way on a calling thread afterwards.
    pub(crate) fn end(&self) {
        self.turns.end();
    }

    /// How many operations have run on symmetric memory.
    pub(crate) fn symmetric_operations(&self) -> u64 {
        self.memory.symmetric_operations.load(Ordering::Relaxed)
    }

    /// The operation on a calling thread that may yet turn out to need a lane: its number among all
    /// operations of the group, and the lane.
    pub(crate) fn undecided(&self) -> Option<(u64, usize)> {
        let (word, lanes) = (self.turns.undecided()?, LANES as u64);
        Some((word / lanes, (word % lanes) as usize))
    }

    /// Takes note that the engine has an operation that was entered.
    pub(crate) fn handed_over(&self, entered: &Entered) {
        let ended = entered.outcome == Some(InlineOutcome::Lane);
        self.turns.handed_over(entered.word(), ended);
    }

    /// Runs a call on this thread if nothing is in its way and the peers are quick.
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
        let (mut spin, mut reached) = (spin.begin(TURNS_PER_LOOK, presence), 0);
        // Whatever goes wrong, the engine will meet it again and knows what to do about it.
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
        turn.done(entered.asked);
        self.flight.end(entered.record);
        Attempt::Done
    }

    /// Enters a call that the engine will run.
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
        let CountedCall { number, asked } =
            turn.count(choice.symmetric.is_some(), choice.in_step());
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let plan = choice.plan();
        let (sequence, fingerprint) = order.enter(call, plan);
        if asked && here {
            turn.is_undecided(undecided_word(sequence, fingerprint));
        }
        let entry = call.flight_entry(sequence, plan, self.memory.ranks);
        Entered {
            record: self.flight.issue(&entry, here),
            sequence,
            number,
            fingerprint,
            asked,
            phase: if asked {
                EntryPhase::Asking
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

    /// Takes the next operation as far as it goes: what it waits for, or nothing once it has an
    /// outcome.
    pub(crate) fn advance(
        &self,
        call: &Call,
        choice: InlineChoice<'_>,
        entered: &mut Entered,
        left: &[bool],
    ) -> Advance {
        let Some(area) = self.areas[choice.room as usize].get() else {
            return Err(GroupFailure::internal("an operation that is not prepared"));
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
