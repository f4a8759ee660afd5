//! Driver of the calling-thread path: one operation on one thread, in one tile.
//!
//! Slots of all ordered pairs are counted by operation. If an operation begins with an exchange,
//! the signals of the program are numbered after that one.

use std::sync::atomic::Ordering;

use weft_call::{Call, Counts, Fingerprint};
use weft_channel::{INLINE_HEADER, INLINE_RANKS, INLINE_SCRATCHES, INLINE_SLOTS, SlotSize};
use weft_memory::access;
use weft_program::{Geometry, Location};
use weft_schedule::{Rank, SignalId};
use weft_transport::{RegionKey, Signal};

use super::super::interpret::{self, Advance, Blocked, Driver, GroupFailure, ProgramFrame};
use super::area::{InlineArea, InlineMemory, PeerSlots};
use super::entered::{Entered, EntryPhase, InlineOutcome};
use super::signals::{ExchangeStep, Signals, exchange_signals};
use crate::selection::{InlineChoice, MappedProgram};

/// The word of a slot's header with the position of memory.
const PLACE: u64 = 5;

/// One operation, running.
pub(super) struct InlineRun<'a> {
    slots: Slots<'a>,
    choice: InlineChoice<'a>,
    /// The program and its geometry, once it is chosen.
    running: Option<(&'a MappedProgram, Geometry)>,
}

/// The slots of one operation, and the content of its signals.
struct Slots<'a> {
    memory: &'a InlineMemory,
    call: &'a Call,
    area: &'a InlineArea,
    /// The offsets of its slots from the first of each pair, and of those with the flags.
    slot: u64,
    flag: u64,
    /// The offset of its temporary memory from the first.
    scratch: u64,
    signals: Signals,
    fingerprint: Fingerprint,
    /// The position of symmetric memory, as a number, and each rank's buffers in it.
    place: u64,
    bases: [(*const u8, *mut u8); INLINE_RANKS],
}

impl<'a> InlineRun<'a> {
    pub(super) fn new(
        memory: &'a InlineMemory,
        call: &'a Call,
        choice: InlineChoice<'a>,
        area: &'a InlineArea,
        entered: &Entered,
    ) -> Self {
        let mut bases = [(std::ptr::null(), std::ptr::null_mut()); INLINE_RANKS];
        let place = match choice.symmetric {
            Some(_) => memory
                .pieces
                .find(call, memory.rank, &mut bases[..memory.ranks as usize]),
            None => None,
        };
        bases[memory.rank as usize] = (call.input, call.output);
        let signals = Signals::new(entered.number, INLINE_SLOTS);
        InlineRun {
            slots: Slots {
                memory,
                call,
                area,
                slot: signals.slot() * choice.room.stride(),
                flag: signals.slot() * SlotSize::Small.stride(),
                scratch: signals.number() % INLINE_SCRATCHES * choice.room.scratch_bytes(),
                signals,
                fingerprint: entered.fingerprint,
                place: place.unwrap_or(0),
                bases,
            },
            choice,
            running: None,
        }
    }

    /// Advances the operation. Returns what it waits for, or `None` once it has an outcome.
    pub(super) fn advance(&mut self, entered: &mut Entered) -> Advance {
        if !entered.begun {
            // Before any signal, after which peers may read it.
            self.slots.copy_input();
            entered.begun = true;
        }
        if entered.phase == EntryPhase::Exchange {
            if let Some(blocked) = self.slots.exchange(entered)? {
                return Ok(Some(blocked));
            }
            entered.next = 0;
            entered.phase = match self.slots.same_position_on_all() {
                true => EntryPhase::Symmetric,
                false => EntryPhase::Ordinary,
            };
        }
        if self.running.is_none() {
            self.running = self.lay_out(entered.phase);
            // Programs for symmetric memory include the signal of the exchange.
            self.slots.signals.shift =
                u32::from(entered.exchanges && entered.phase == EntryPhase::Ordinary);
        }
        let Some((mapped, geometry)) = &self.running else {
            entered.outcome = Some(InlineOutcome::Lane);
            return Ok(None);
        };
        let frame = ProgramFrame {
            program: mapped.program(),
            geometry,
            call: self.slots.call,
            tile: 0,
        };
        if let Some(blocked) = interpret::run(&mut self.slots, frame, &mut entered.next)? {
            return Ok(Some(blocked));
        }
        if entered.phase == EntryPhase::Symmetric {
            let counter = &self.slots.memory.symmetric_operations;
            counter.fetch_add(1, Ordering::Relaxed);
        }
        entered.outcome = Some(InlineOutcome::Done);
        Ok(None)
    }

    /// The operation's program and its geometry; `None` if it needs a lane.
    fn lay_out(&self, phase: EntryPhase) -> Option<(&'a MappedProgram, Geometry)> {
        let mapped = match phase {
            EntryPhase::Symmetric => self.choice.symmetric,
            _ => self.choice.ordinary,
        }?;
        let size = self.slots.call.dtype.size() as u64;
        let elements = self.slots.call.message_elements(self.slots.memory.ranks);
        let geometry = Geometry::whole(mapped.program(), elements, size, mapped.widest(size));
        Some((mapped, geometry))
    }
}

impl Slots<'_> {
    /// Copies the caller's input into `Output`, for collectives that work there.
    fn copy_input(&self) {
        let Call {
            input,
            output,
            dtype,
            ..
        } = *self.call;
        if let Counts::Equal(elements) = self.call.counts
            && self.call.copies_input(self.memory.rank)
            && !std::ptr::eq(input, output)
        {
            // SAFETY: see [Note: Memory access].
            unsafe { access::copy(&[output], input, elements * dtype.size() as u64) };
        }
    }

    /// Sends the position of this rank's memory to all ranks, and waits for theirs.
    fn exchange(&mut self, entered: &mut Entered) -> Advance {
        exchange_signals(self.memory.ranks, &mut entered.next, |step| match step {
            ExchangeStep::Signal(rank) => self.signal(rank, 0),
            ExchangeStep::Wait(rank) => self.wait(rank, 0),
        })
    }

    /// Whether all ranks have passed the same symmetric memory.
    fn same_position_on_all(&self) -> bool {
        let same = |peer: &PeerSlots| self.header(peer, PLACE) == self.place;
        self.place != 0 && self.area.peers.iter().flatten().all(same)
    }

    /// A word of the header that a peer has sent.
    #[inline]
    fn header(&self, peer: &PeerSlots, word: u64) -> u64 {
        let line = peer.my_flags + self.flag;
        let word = self.memory.pool.word(line + 8 * word);
        word.load(Ordering::Relaxed)
    }
}

impl Driver for Slots<'_> {
    #[inline]
    fn base(&self, location: Location) -> *mut u8 {
        let own = |base: u64| self.memory.pool.base().as_ptr().wrapping_add(base as usize);
        let peers = |rank: Rank, base: fn(&PeerSlots) -> u64| {
            let at = |peer: &PeerSlots| peer.pool.base().as_ptr().wrapping_add(base(peer) as usize);
            self.area.peers[rank as usize].as_ref().map(at)
        };
        let (base, slot) = match location {
            Location::Input(rank) => (Some(self.bases[rank as usize].0.cast_mut()), 0),
            Location::Output(rank) => (Some(self.bases[rank as usize].1), 0),
            Location::Scratch { rank, .. } if rank == self.memory.rank => {
                (Some(own(self.area.scratch)), self.scratch)
            }
            Location::Scratch { rank, .. } => (peers(rank, |peer| peer.scratch), self.scratch),
            Location::Receive { from, .. } => {
                let peer = self.area.peers[from as usize].as_ref();
                (peer.map(|peer| own(peer.mine)), self.slot)
            }
            Location::PeerReceive { to, .. } => (peers(to, |peer| peer.theirs), self.slot),
        };
        base.unwrap_or(std::ptr::null_mut())
            .wrapping_add(slot as usize)
    }

    #[inline]
    fn signal(&mut self, to: Rank, id: SignalId) -> Advance {
        let Some(peer) = &self.area.peers[to as usize] else {
            return Ok(None);
        };
        let offset = peer.their_flags + self.flag;
        let (value, first) = self.signals.value(id);
        let signal = Signal { offset, value };
        let sent = match first {
            true => {
                let [count, kind, history, plan] = self.fingerprint.words();
                let mut header = [0; INLINE_HEADER - 8];
                let words = [count, kind, history, plan, self.place];
                for (bytes, word) in header.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                (peer.link).inject(RegionKey::POOL, offset + 8, &header, Some(signal))
            }
            false => peer.link.signal(signal),
        };
        match sent {
            Ok(()) => Ok(None),
            Err(error) => Err(GroupFailure::Link(to, error)),
        }
    }

    #[inline]
    fn wait(&mut self, from: Rank, id: SignalId) -> Advance {
        let Some(peer) = &self.area.peers[from as usize] else {
            return Ok(None);
        };
        let flag = peer.my_flags + self.flag;
        match self.signals.has_arrived(self.memory.pool.word(flag), id) {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => {
                let id = id + self.signals.shift;
                return Ok(Some(Blocked::Signal { from, id }));
            }
        }
        let theirs = Fingerprint::behind_flag(|word| self.header(peer, word));
        let mine = self.fingerprint;
        match theirs == mine {
            true => Ok(None),
            false => Err(GroupFailure::Desync {
                rank: from,
                mine,
                theirs,
            }),
        }
    }
}
