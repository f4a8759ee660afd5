//! One inline operation, action by action.

use std::cell::OnceCell;
use std::sync::atomic::Ordering;

use weft_schedule::Rank;
use weft_transport::{RegionKey, Signal};

use super::programs::Choice;
use super::{Entered, INLINE_RANKS, Inline, Outcome, Peer, Phase};
use crate::Call;
use crate::call::Fingerprint;
use crate::channel::{
    INLINE_HEADER, INLINE_SCRATCH, INLINE_SCRATCHES, INLINE_SLOTS, INLINE_STRIDE, flag_value,
};
use crate::execute::{Blocked, Trouble};
use crate::lowered::{Action, Cut, Operand, Store};
use crate::memory;

/// Which word of a slot's header says where memory lies.
const PLACE: u64 = 4;

/// One inline operation, running.
pub(super) struct Run<'a> {
    inline: &'a Inline,
    call: &'a Call,
    choice: Choice<'a>,
    peers: &'a [Option<Peer>],
    number: u64,
    /// Where this operation's slot lies, from the first.
    slot: u64,
    /// Where symmetric memory lies, as one number, and each rank's buffers in it.
    place: u64,
    bases: [(*const u8, *mut u8); INLINE_RANKS],
    /// The message as the program cuts it, once it is clear which.
    cut: OnceCell<Cut<'a>>,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        inline: &'a Inline,
        call: &'a Call,
        choice: Choice<'a>,
        peers: &'a [Option<Peer>],
        number: u64,
    ) -> Self {
        let mut bases = [(std::ptr::null(), std::ptr::null_mut()); INLINE_RANKS];
        let place = match choice.symmetric {
            Some(_) => inline
                .pieces
                .find(call, inline.rank, &mut bases[..inline.ranks as usize]),
            None => None,
        };
        bases[inline.rank as usize] = (call.input, call.output);
        Run {
            inline,
            call,
            choice,
            peers,
            number,
            slot: number % INLINE_SLOTS,
            place: place.unwrap_or(0),
            bases,
            cut: OnceCell::new(),
        }
    }

    /// Takes the operation as far as it goes: what it waits for, or nothing once it has an outcome.
    pub(super) fn advance(&self, entered: &mut Entered) -> Result<Option<Blocked>, Trouble> {
        if !entered.begun {
            // Before any signal: then peers may read it.
            memory::bring_in(self.call, self.inline.rank);
            entered.begun = true;
        }
        if entered.phase == Phase::Asking {
            if let Some(blocked) = self.ask(entered)? {
                return Ok(Some(blocked));
            }
            entered.next = 0;
            entered.phase = match self.all_alike() {
                true => Phase::Symmetric,
                false => Phase::Ordinary,
            };
        }
        let program = match entered.phase {
            Phase::Symmetric => self.choice.symmetric,
            _ => self.choice.ordinary,
        };
        let Some(program) = program else {
            entered.outcome = Some(Outcome::Lane);
            return Ok(None);
        };
        let size = self.call.dtype.size() as u64;
        let elements = || self.call.message_elements(self.inline.ranks);
        let cut = self.cut.get_or_init(|| program.cut(elements(), size));
        while let Some(action) = program.actions.get(entered.next) {
            if let Some(blocked) = self.act(cut, action, entered)? {
                return Ok(Some(blocked));
            }
            entered.next += 1;
        }
        if entered.phase == Phase::Symmetric {
            self.inline
                .symmetric_operations
                .fetch_add(1, Ordering::Relaxed);
        }
        entered.outcome = Some(Outcome::Done);
        Ok(None)
    }

    /// Tells all where this rank's memory lies, and waits for all to tell.
    fn ask(&self, entered: &mut Entered) -> Result<Option<Blocked>, Trouble> {
        let ranks = self.inline.ranks as usize;
        while entered.next < 2 * ranks {
            let rank = (entered.next % ranks) as Rank;
            if rank != self.inline.rank {
                if entered.next < ranks {
                    self.signal(rank, 0, entered)?;
                } else if let Some(blocked) = self.wait(rank, 0, entered)? {
                    return Ok(Some(blocked));
                }
            }
            entered.next += 1;
        }
        Ok(None)
    }

    /// Whether all ranks have passed the same symmetric memory.
    fn all_alike(&self) -> bool {
        let alike = |peer: &Peer| self.header(peer, PLACE) == self.place;
        self.place != 0 && self.peers.iter().flatten().all(alike)
    }

    fn act(
        &self,
        cut: &Cut<'_>,
        action: &Action,
        entered: &Entered,
    ) -> Result<Option<Blocked>, Trouble> {
        // The signal by which the ranks asked comes before the others. Programs for symmetric memory know of it.
        let shift = u32::from(entered.asked && entered.phase == Phase::Ordinary);
        match action {
            Action::Signal { to, id } => self.signal(*to, id + shift, entered)?,
            Action::Wait { from, id } => return self.wait(*from, id + shift, entered),
            Action::Copy { dsts, src } => self.copy(cut, dsts, src),
            Action::Reduce { dsts, srcs, last } => self.reduce(cut, dsts, srcs, *last),
        }
        Ok(None)
    }

    fn signal(&self, to: Rank, id: u32, entered: &Entered) -> Result<(), Trouble> {
        let Some(peer) = &self.peers[to as usize] else {
            return Ok(());
        };
        let offset = peer.theirs + self.slot * INLINE_STRIDE;
        let signal = Signal {
            offset,
            value: flag_value(self.number, id),
        };
        let sent = match id {
            0 => {
                let [count, kind, history] = entered.fingerprint.words();
                let mut header = [0; INLINE_HEADER - 8];
                let words = [count, kind, history, self.place];
                for (bytes, word) in header.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                (peer.link).inject(RegionKey::POOL, offset + 8, &header, Some(signal))
            }
            _ => peer.link.signal(signal),
        };
        sent.map_err(|error| Trouble::Link(to, error))
    }

    fn wait(&self, from: Rank, id: u32, entered: &Entered) -> Result<Option<Blocked>, Trouble> {
        let Some(peer) = &self.peers[from as usize] else {
            return Ok(None);
        };
        let flag = self.inline.pool.word(peer.mine + self.slot * INLINE_STRIDE);
        if flag.load(Ordering::Acquire) < flag_value(self.number, id) {
            return Ok(Some(Blocked::Signal { from, id }));
        }
        if id > 0 {
            return Ok(None);
        }
        let theirs = Fingerprint::behind_flag(|word| self.header(peer, word));
        let mine = entered.fingerprint;
        match theirs == mine {
            true => Ok(None),
            false => Err(Trouble::Desync {
                rank: from,
                mine,
                theirs,
            }),
        }
    }

    /// A word of the line that a peer has sent.
    fn header(&self, peer: &Peer, word: u64) -> u64 {
        let line = peer.mine + self.slot * INLINE_STRIDE;
        self.inline
            .pool
            .word(line + 8 * word)
            .load(Ordering::Relaxed)
    }

    fn copy(&self, cut: &Cut<'_>, dsts: &[Operand], src: &Operand) {
        let targets = self.addresses(cut, dsts);
        let source = self.address(cut, src).cast_const();
        let bytes = cut.elements(src) * self.call.dtype.size() as u64;
        memory::copy_inline(&targets[..dsts.len()], source, bytes as usize);
    }

    fn reduce(&self, cut: &Cut<'_>, dsts: &[Operand], srcs: &[Operand], last: bool) {
        let targets = self.addresses(cut, dsts);
        let sources = self.addresses(cut, srcs).map(<*mut u8>::cast_const);
        let finish = self.call.op.finish(last, self.inline.ranks);
        let elements = cut.elements(&dsts[0]) as usize;
        let (targets, sources) = (&targets[..dsts.len()], &sources[..srcs.len()]);
        memory::reduce_inline(self.call, finish, targets, sources, elements);
    }

    /// The addresses of at most as many operands as there are ranks.
    fn addresses(&self, cut: &Cut<'_>, operands: &[Operand]) -> [*mut u8; INLINE_RANKS] {
        let mut addresses = [std::ptr::null_mut(); INLINE_RANKS];
        for (address, operand) in addresses.iter_mut().zip(operands) {
            *address = self.address(cut, operand);
        }
        addresses
    }

    fn address(&self, cut: &Cut<'_>, operand: &Operand) -> *mut u8 {
        let offset = cut.offset(operand);
        let own = |base: u64| self.inline.pool.base().as_ptr().wrapping_add(base as usize);
        let peers = |rank: Rank, base: fn(&Peer) -> u64| {
            let at = |peer: &Peer| peer.pool.base().as_ptr().wrapping_add(base(peer) as usize);
            self.peers[rank as usize].as_ref().map(at)
        };
        let scratch = self.number % INLINE_SCRATCHES * INLINE_SCRATCH;
        let stride = self.slot * INLINE_STRIDE;
        let (base, slot) = match operand.store {
            Store::Input(rank) => (Some(self.bases[rank as usize].0.cast_mut()), 0),
            Store::Output(rank) => (Some(self.bases[rank as usize].1), 0),
            Store::Scratch { rank, .. } if rank == self.inline.rank => {
                (Some(own(self.inline.scratch)), scratch)
            }
            Store::Scratch { rank, .. } => (peers(rank, |peer| peer.scratch), scratch),
            Store::Inbox { from, .. } => {
                let mine = self.peers[from as usize]
                    .as_ref()
                    .map(|peer| own(peer.mine));
                (mine, stride)
            }
            Store::Outbox { to, .. } => (peers(to, |peer| peer.theirs), stride),
        };
        base.unwrap_or(std::ptr::null_mut())
            .wrapping_add((slot + offset) as usize)
    }
}
