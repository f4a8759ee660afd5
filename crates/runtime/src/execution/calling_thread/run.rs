//! The calling-thread driver: one operation on one thread, in one tile.
//!
//! Slots of all ordered pairs are counted by operation. Where the ranks first ask each other, the
//! signals of the program are numbered behind that one.

use std::sync::atomic::Ordering;

use weft_call::{Call, Counts, Fingerprint};
use weft_channel::{INLINE_HEADER, INLINE_RANKS, INLINE_SCRATCHES, INLINE_SLOTS, Room};
use weft_memory::access;
use weft_program::{Geometry, Location};
use weft_schedule::{Rank, SignalId};
use weft_transport::{RegionKey, Signal};

use super::super::interpret::{self, Advance, Blocked, Driver, GroupFailure, ProgramFrame};
use super::area::{Area, InlineMemory, PeerSlots};
use super::entered::{Entered, EntryPhase, InlineOutcome};
use super::signals::{Signals, Tell, tell_all};
use crate::selection::{InlineChoice, MappedProgram};

/// Which word of a slot's header says where memory lies.
const PLACE: u64 = 5;

/// One operation, running.
pub(super) struct InlineRun<'a> {
    slots: Slots<'a>,
    choice: InlineChoice<'a>,
    /// The program, and how it cuts the message, once it is clear which.
    running: Option<(&'a MappedProgram, Geometry)>,
}

/// The slots that one operation uses, and what its signals carry.
struct Slots<'a> {
    memory: &'a InlineMemory,
    call: &'a Call,
    area: &'a Area,
    /// Where its slots lie, behind the first of each pair, and those with the flags.
    slot: u64,
    flag: u64,
    /// Where its temporary memory lies, behind the first.
    scratch: u64,
    signals: Signals,
    fingerprint: Fingerprint,
    /// Where symmetric memory lies, as one number, and each rank's buffers in it.
    place: u64,
    bases: [(*const u8, *mut u8); INLINE_RANKS],
}

impl<'a> InlineRun<'a> {
    pub(super) fn new(
        memory: &'a InlineMemory,
        call: &'a Call,
        choice: InlineChoice<'a>,
        area: &'a Area,
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
                flag: signals.slot() * Room::Small.stride(),
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

    /// Takes the operation as far as it goes: what it waits for, or nothing once it has an outcome.
    pub(super) fn advance(&mut self, entered: &mut Entered) -> Advance {
        if !entered.begun {
            // Before any signal: then peers may read it.
            self.slots.bring_in();
            entered.begun = true;
        }
        if entered.phase == EntryPhase::Asking {
            if let Some(blocked) = self.slots.ask(entered)? {
                return Ok(Some(blocked));
            }
            entered.next = 0;
            entered.phase = match self.slots.all_alike() {
                true => EntryPhase::Symmetric,
                false => EntryPhase::Ordinary,
            };
        }
        if self.running.is_none() {
            self.running = self.lay_out(entered.phase);
            // Programs for symmetric memory know of the signal by which the ranks asked.
            self.slots.signals.shift =
                u32::from(entered.asked && entered.phase == EntryPhase::Ordinary);
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

    /// What the operation runs by, and how that cuts the message; nothing if it takes a lane.
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
    /// Brings the caller's vector into `Output`, for the collectives that work there.
    fn bring_in(&self) {
        let Call {
            input,
            output,
            dtype,
            ..
        } = *self.call;
        if let Counts::Equal(elements) = self.call.counts
            && self.call.brings_in(self.memory.rank)
            && !std::ptr::eq(input, output)
        {
            // SAFETY: see [Note: Who may touch what].
            unsafe { access::copy(&[output], input, elements * dtype.size() as u64) };
        }
    }

    /// Tells all where this rank's memory lies, and waits for all to tell.
    fn ask(&mut self, entered: &mut Entered) -> Advance {
        tell_all(self.memory.ranks, &mut entered.next, |tell| match tell {
            Tell::Signal(rank) => self.signal(rank, 0),
            Tell::Wait(rank) => self.wait(rank, 0),
        })
    }

    /// Whether all ranks have passed the same symmetric memory.
    fn all_alike(&self) -> bool {
        let alike = |peer: &PeerSlots| self.header(peer, PLACE) == self.place;
        self.place != 0 && self.area.peers.iter().flatten().all(alike)
    }

    /// A word of the line that a peer has sent.
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
        match self.signals.has_come(self.memory.pool.word(flag), id) {
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
