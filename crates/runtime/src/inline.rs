//! The latency path: operations between ranks that map each other's memory, from their call to their end on one thread.
//!
//! [Note: Inline operations] A schedule in which every rank signals to every other and waits for every other is lowered when
//! the group is made, and messages that one tile takes run by it: flag, fingerprint and payload of each ordered
//! pair lie one behind the other in one slot, so that a small payload comes in the flag's own cache line. Such operations are
//! numbered on their own, and run one at a time, in the order of the calls, beside the lanes. Operation f uses slot f % 2 of every
//! pair. Slots need no credit: who begins operation f has ended f - 1, so every peer has begun f - 1, and did that after
//! it had ended f - 2, which used the slot before.
//!
//! A blocking call runs on the calling thread without the engine, as long as that promises to be quick; then the engine
//! takes over where it got stuck. What is called in the background is the engine's from the beginning. Both do the same to the memory
//! of others, so ranks need not do alike.
//!
//! [Note: Asking] Where memory may be symmetric, the first signals tell where it lies, as a number that is the same on all ranks
//! that passed the same piece at the same place. So when all have come every rank knows whether all did, and goes on
//! by the schedule for symmetric memory, by the one for ordinary memory, or, if that is none of the latency path's, in the operation's
//! lane. Operations behind it in that lane must wait until that is clear: see [`Inline::undecided`].

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weft_kernels::Finish;
use weft_schedule::{Collective, Rank};
use weft_transport::{Link, LinkError, PeerMemory, Progress, Segment, Signal};

use crate::call::{Fingerprint, Op};
use crate::channel::{
    INLINE_HEADER, INLINE_SCRATCH, INLINE_SLOTS, INLINE_STRIDE, Layout, flag_value,
};
use crate::choice::Chooser;
use crate::defaults::SMALL_SYMMETRIC_BYTES;
use crate::execute::{Blocked, Trouble};
use crate::group_state::GroupState;
use crate::lowered::{Action, Cut, Operand, Program, Store};
use crate::memory;
use crate::order::Order;
use crate::policy::Tiling;
use crate::setting::Site;
use crate::spin::Patience;
use crate::symmetric::Pieces;
use crate::ways::Kind;
use crate::{Call, Counts, Error};

/// Groups of at most so many ranks have a latency path: everybody signals to everybody.
pub(crate) const INLINE_RANKS: usize = 16;
/// The longest message of an inline operation, in bytes: longer ones shall let urgent operations go first.
const INLINE_BYTES: u64 = 1 << 20;

/// The collectives that have lowered schedules.
pub(crate) const COLLECTIVES: [Collective; 5] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
    Collective::Barrier,
];

/// A program, and which calls it is for.
#[derive(Debug)]
pub(crate) struct Lowered {
    /// None where the schedule cannot be lowered.
    program: Option<Program>,
    /// What users call it.
    name: String,
    /// The plan that it stands for, as fingerprints carry it.
    plan: u16,
    /// Up to how many bytes of the message it is chosen.
    up_to: u64,
}

/// The programs of one collective, in ascending order of size.
#[derive(Default, Debug)]
struct Programs {
    ordinary: Vec<Lowered>,
    symmetric: Vec<Lowered>,
}

/// What a call runs by.
#[derive(Clone, Copy)]
pub(crate) struct Choice<'a> {
    /// On ordinary memory; nothing if it takes a lane.
    ordinary: Option<&'a Program>,
    /// On symmetric memory, where the ranks ask for it.
    symmetric: Option<&'a Program>,
    plan: u16,
}

/// How to reach a peer's slots.
struct Peer {
    link: Arc<dyn Link>,
    memory: PeerMemory,
    /// Where this rank's slots begin in the peer's pool.
    theirs: u64,
    /// Where the peer's slots begin in this rank's pool.
    mine: u64,
    /// Where the peer's temporary memory begins in its pool.
    scratch: u64,
}

/// Which operations have run.
#[derive(Default)]
struct Turn {
    /// The number of inline operations that were called.
    called: u64,
    /// The number of those that have ended.
    ended: u64,
}

/// The latency path of one group.
pub(crate) struct Inline {
    rank: Rank,
    ranks: u32,
    programs: [Programs; COLLECTIVES.len()],
    pool: Arc<Segment>,
    layout: Layout,
    /// Where this rank's temporary memory begins in its pool.
    scratch: u64,
    /// By rank; there once every peer has granted its memory.
    peers: OnceLock<Vec<Option<Peer>>>,
    turn: Mutex<Turn>,
    order: Arc<Mutex<Order>>,
    pieces: Arc<Pieces>,
    /// The operation on a calling thread that may yet turn out to need a lane: its number among all operations of the group.
    undecided: AtomicU64,
    /// How many operations have run on symmetric memory.
    symmetric_operations: AtomicU64,
    /// No operation begins any more.
    over: AtomicBool,
}

/// Which word of a slot's header says where memory lies.
const PLACE: u64 = 4;

/// Stands for no operation.
const NOBODY: u64 = u64::MAX;

/// How far it is clear what an operation runs by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The ranks tell each other where their memory lies.
    Asking,
    /// All have passed the same symmetric memory.
    Symmetric,
    /// They have not, or were not asked.
    Ordinary,
}

/// An inline operation that was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// Its number among all operations of the group.
    pub(crate) sequence: u64,
    /// Its number among the inline ones.
    number: u64,
    pub(crate) fingerprint: Fingerprint,
    /// Whether the ranks ask each other about symmetric memory.
    asked: bool,
    phase: Phase,
    /// Whether the caller's vector is where the schedule works.
    begun: bool,
    /// The next action of the phase.
    next: usize,
    /// What became of it.
    pub(crate) outcome: Option<Outcome>,
}

impl Entered {
    /// Whether it may yet turn out to need a lane.
    pub(crate) fn is_undecided(&self) -> bool {
        self.phase == Phase::Asking && self.outcome.is_none()
    }
}

/// How an inline operation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Done,
    /// Its memory is not symmetric, and it is to run in its lane.
    Lane,
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

impl Inline {
    /// The latency path of a group, if it can have one.
    pub(crate) fn make(group: &mut GroupState, pool: Arc<Segment>) -> Option<Arc<Self>> {
        let ranks = group.size();
        if !group.chooser.setting.mapped() || !(2..=INLINE_RANKS as u32).contains(&ranks) {
            return None;
        }
        Some(Arc::new(Inline {
            rank: group.rank,
            ranks,
            programs: COLLECTIVES.map(|collective| programs(collective, &mut group.chooser)),
            pool,
            layout: group.layout,
            scratch: group.scratch.offset + group.layout.inline_scratch(0),
            peers: OnceLock::new(),
            turn: Mutex::default(),
            order: group.order.clone(),
            pieces: group.symmetric.clone(),
            undecided: AtomicU64::new(NOBODY),
            symmetric_operations: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }))
    }

    /// What a call runs by that all ranks run inline; none for others.
    pub(crate) fn choose(&self, call: &Call) -> Option<Choice<'_>> {
        let Counts::Equal(_) = call.counts else {
            return None;
        };
        let position = COLLECTIVES.iter().position(|c| *c == call.collective)?;
        let elements = call.message_elements(self.ranks);
        let bytes = elements.checked_mul(call.dtype.size() as u64)?;
        let odd = call.tiling != Tiling::default() || matches!(call.op, Op::PremulSum(_));
        if odd || bytes > INLINE_BYTES {
            return None;
        }
        let programs = &self.programs[position];
        let ordinary = find(&programs.ordinary, call, elements);
        if bytes <= SMALL_SYMMETRIC_BYTES || !self.pieces.made() {
            let (plan, program) = ordinary?;
            return Some(Choice {
                plan,
                ordinary: Some(program),
                symmetric: None,
            });
        }
        let (plan, program) = find(&programs.symmetric, call, elements)?;
        Some(Choice {
            plan,
            ordinary: ordinary.map(|(_, program)| program),
            symmetric: Some(program),
        })
    }

    /// Takes note of the links to all peers, and of what they have granted.
    pub(crate) fn connect(&self, state: &GroupState) {
        let peer = |rank: u32| {
            if rank == self.rank {
                return Some(None);
            }
            let (link, channel) = (
                state.links[rank as usize].clone()?,
                state.channels[rank as usize].as_ref()?,
            );
            let remote = channel.remote?;
            Some(Some(Peer {
                memory: link.memory()?,
                link,
                theirs: remote.channel + self.layout.inline(0),
                mine: channel.local.offset + self.layout.inline(0),
                scratch: remote.scratch + self.layout.inline_scratch(0),
            }))
        };
        if let Some(peers) = (0..self.ranks).map(peer).collect() {
            // Set before by another pass, if at all.
            let _ = self.peers.set(peers);
        }
    }

    /// Lets no operation begin any more. None is on its way on a calling thread afterwards.
    pub(crate) fn end(&self) {
        let _turn = self.turn();
        self.over.store(true, Ordering::SeqCst);
    }

    /// How many operations have run on symmetric memory.
    pub(crate) fn symmetric_operations(&self) -> u64 {
        self.symmetric_operations.load(Ordering::Relaxed)
    }

    /// The operation on a calling thread that may yet turn out to need a lane: its number among all operations of the group.
    pub(crate) fn undecided(&self) -> Option<u64> {
        let sequence = self.undecided.load(Ordering::SeqCst);
        (sequence != NOBODY).then_some(sequence)
    }

    /// Takes note that the engine has an operation that was entered.
    pub(crate) fn handed_over(&self, entered: &Entered) {
        let mut turn = self.turn();
        if self.undecided() == Some(entered.sequence) {
            self.undecided.store(NOBODY, Ordering::SeqCst);
        }
        // Until now it kept other calling threads from entering behind it.
        turn.ended += u64::from(entered.outcome == Some(Outcome::Lane));
    }

    /// Runs a call on this thread if nothing is in its way and the peers are quick.
    pub(crate) fn attempt(&self, call: &Call, patience: Patience) -> Attempt {
        let (Some(choice), Some(peers)) = (self.choose(call), self.peers.get()) else {
            return Attempt::NotNow;
        };
        let Ok(mut turn) = self.turn.try_lock() else {
            return Attempt::NotNow;
        };
        if self.over.load(Ordering::Relaxed) || turn.called != turn.ended {
            return Attempt::NotNow;
        }
        let mut entered = self.enter_in(&mut turn, call, choice, true);
        let run = Run::new(self, call, choice, peers, entered.number);
        let (mut idle, mut reached) = (0, 0);
        // Whatever goes wrong, the engine will meet it again and knows what to do about it.
        while let Ok(Some(_)) = run.advance(&mut entered) {
            idle = if entered.next == reached { idle + 1 } else { 0 };
            reached = entered.next;
            if !patience.pause(idle) {
                break;
            }
        }
        if entered.outcome != Some(Outcome::Done) {
            return Attempt::Entered(entered);
        }
        if entered.asked {
            self.undecided.store(NOBODY, Ordering::SeqCst);
        }
        turn.ended += 1;
        Attempt::Done
    }

    /// Enters a call that the engine will run.
    pub(crate) fn enter(&self, call: &Call, choice: Choice<'_>) -> Entered {
        self.enter_in(&mut self.turn(), call, choice, false)
    }

    fn enter_in(&self, turn: &mut Turn, call: &Call, choice: Choice<'_>, here: bool) -> Entered {
        let asked = choice.symmetric.is_some();
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (sequence, fingerprint) = order.enter(call, choice.plan);
        if asked && here {
            // Before any operation can be entered behind it.
            self.undecided.store(sequence, Ordering::SeqCst);
        }
        turn.called += 1;
        Entered {
            sequence,
            number: turn.called - 1,
            fingerprint,
            asked,
            phase: if asked {
                Phase::Asking
            } else {
                Phase::Ordinary
            },
            begun: false,
            next: 0,
            outcome: None,
        }
    }

    /// Whether all inline operations before this one have ended.
    pub(crate) fn is_next(&self, entered: &Entered) -> bool {
        self.turn().ended == entered.number
    }

    /// Takes the next operation as far as it goes: what it waits for, or nothing once it has an outcome.
    pub(crate) fn advance(
        &self,
        call: &Call,
        entered: &mut Entered,
        left: &[bool],
    ) -> Result<Option<Blocked>, Trouble> {
        let unready = || {
            Trouble::Other(Error::Internal(
                "an inline operation without a program".into(),
            ))
        };
        let choice = self.choose(call).ok_or_else(unready)?;
        let Some(peers) = self.peers.get() else {
            let from = (0..self.ranks).find(|rank| *rank != self.rank);
            return Ok(from.map(|from| Blocked::Grant { from }));
        };
        let mut turn = self.turn();
        let blocked = Run::new(self, call, choice, peers, entered.number).advance(entered)?;
        match blocked {
            Some(blocked) if left[blocked.rank() as usize] => {
                return Err(Trouble::Link(blocked.rank(), LinkError::Left));
            }
            Some(_) => {}
            None => turn.ended += 1,
        }
        Ok(blocked)
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One inline operation, running.
struct Run<'a> {
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
    /// The message as the programs for ordinary and for symmetric memory cut it.
    cuts: [OnceCell<Cut<'a>>; 2],
}

impl<'a> Run<'a> {
    fn new(
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
            cuts: Default::default(),
        }
    }

    /// Takes the operation as far as it goes: what it waits for, or nothing once it has an outcome.
    fn advance(&self, entered: &mut Entered) -> Result<Option<Blocked>, Trouble> {
        if !entered.begun {
            // Before any signal: then peers may read it.
            memory::bring_in(self.call);
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
        let (program, cut) = match entered.phase {
            Phase::Symmetric => (self.choice.symmetric, &self.cuts[1]),
            _ => (self.choice.ordinary, &self.cuts[0]),
        };
        let Some(program) = program else {
            entered.outcome = Some(Outcome::Lane);
            return Ok(None);
        };
        let size = self.call.dtype.size() as u64;
        let elements = || self.call.message_elements(self.inline.ranks);
        let cut = cut.get_or_init(|| program.cut(elements(), size));
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
            let blocked = match (rank == self.inline.rank, entered.next < ranks) {
                (true, _) => None,
                (false, true) => self.signal(rank, 0, entered)?,
                (false, false) => self.wait(rank, 0, entered)?,
            };
            if blocked.is_some() {
                return Ok(blocked);
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
        // What was said when the ranks were asking need not be said again, and comes before what is said now.
        let told = |id: u32| entered.asked && entered.phase == Phase::Symmetric && id == 0;
        let shift = u32::from(entered.asked && entered.phase == Phase::Ordinary);
        match action {
            Action::Signal { id, .. } | Action::Wait { id, .. } if told(*id) => {}
            Action::Signal { to, id } => return self.signal(*to, id + shift, entered),
            Action::Wait { from, id } => return self.wait(*from, id + shift, entered),
            Action::Copy { dsts, src } => self.copy(cut, dsts, src),
            Action::Reduce { dsts, srcs, last } => self.reduce(cut, dsts, srcs, *last),
        }
        Ok(None)
    }

    fn signal(&self, to: Rank, id: u32, entered: &Entered) -> Result<Option<Blocked>, Trouble> {
        let Some(peer) = &self.peers[to as usize] else {
            return Ok(None);
        };
        let offset = peer.theirs + self.slot * INLINE_STRIDE;
        let signal = Signal {
            offset,
            value: flag_value(self.number, id),
        };
        let sent = match id {
            0 => {
                let Fingerprint {
                    count,
                    kind,
                    history,
                } = entered.fingerprint;
                let mut header = [0; INLINE_HEADER - 8];
                let words = [count, kind, history, self.place];
                for (bytes, word) in header.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_ne_bytes());
                }
                // A put into mapped memory is done at once or, behind what is queued, not begun: no token is needed.
                peer.link.put(0, offset + 8, &[&header], Some(signal))
            }
            _ => peer.link.signal(signal).map(|()| Progress::Done),
        };
        match sent {
            Ok(Progress::Done) => Ok(None),
            Ok(Progress::Pending) => Ok(Some(Blocked::Link { to })),
            Err(error) => Err(Trouble::Link(to, error)),
        }
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
        let theirs = Fingerprint {
            count: self.header(peer, 1),
            kind: self.header(peer, 2),
            history: self.header(peer, 3),
        };
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
        let mut targets = [std::ptr::null_mut(); INLINE_RANKS];
        for (target, dst) in targets.iter_mut().zip(dsts) {
            *target = self.address(cut, dst);
        }
        let source = self.address(cut, src).cast_const();
        let bytes = cut.elements(src) * self.call.dtype.size() as u64;
        memory::copy_inline(&targets[..dsts.len()], source, bytes as usize);
    }

    fn reduce(&self, cut: &Cut<'_>, dsts: &[Operand], srcs: &[Operand], last: bool) {
        let mut targets = [std::ptr::null_mut(); INLINE_RANKS];
        for (target, dst) in targets.iter_mut().zip(dsts) {
            *target = self.address(cut, dst);
        }
        let mut sources = [std::ptr::null(); INLINE_RANKS];
        for (source, src) in sources.iter_mut().zip(srcs) {
            *source = self.address(cut, src).cast_const();
        }
        let finish = match self.call.op {
            Op::Average if last => Finish::Average(self.inline.ranks),
            _ => Finish::Keep,
        };
        let elements = cut.elements(&dsts[0]) as usize;
        let (targets, sources) = (&targets[..dsts.len()], &sources[..srcs.len()]);
        memory::reduce_inline(self.call, finish, targets, sources, elements);
    }

    fn address(&self, cut: &Cut<'_>, operand: &Operand) -> *mut u8 {
        let offset = cut.offset(operand);
        let own = |base: u64| self.inline.pool.base().as_ptr().wrapping_add(base as usize);
        let peers = |rank: Rank, base: fn(&Peer) -> u64| {
            let at = |peer: &Peer| peer.memory.base.as_ptr().wrapping_add(base(peer) as usize);
            self.peers[rank as usize].as_ref().map(at)
        };
        let (scratch, stride) = (self.slot * INLINE_SCRATCH, self.slot * INLINE_STRIDE);
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

/// The program among these that a call runs by, with its plan, if the latency path can take it.
fn find<'a>(among: &'a [Lowered], call: &Call, elements: u64) -> Option<(u16, &'a Program)> {
    let size = call.dtype.size() as u64;
    let lowered = among.iter().find(|lowered| match &call.algorithm {
        Some(name) => lowered.name == *name,
        None => elements * size <= lowered.up_to,
    })?;
    let fits = |program: &&Program| program.fits(elements, size);
    Some((lowered.plan, lowered.program.as_ref().filter(fits)?))
}

/// The programs for a collective's messages of up to [`INLINE_BYTES`].
fn programs(collective: Collective, chooser: &mut Chooser) -> Programs {
    let lines = |chooser: &mut Chooser, symmetric: bool| {
        let mut lowered: Vec<Lowered> = Vec::new();
        let mut bytes = if symmetric {
            SMALL_SYMMETRIC_BYTES + 1
        } else {
            0
        };
        // A collective that the group cannot carry out is refused when it is called.
        while let Some(line) = self::lowered(collective, chooser, symmetric, bytes) {
            bytes = line.up_to.saturating_add(1);
            lowered.push(line);
            if bytes > INLINE_BYTES {
                break;
            }
        }
        lowered
    };
    Programs {
        ordinary: lines(chooser, false),
        symmetric: lines(chooser, true),
    }
}

fn lowered(
    collective: Collective,
    chooser: &mut Chooser,
    symmetric: bool,
    bytes: u64,
) -> Option<Lowered> {
    let kind = Kind {
        symmetric,
        per_rank: false,
    };
    let line = chooser.line(collective, kind, bytes).ok()?;
    let way = chooser.catalog.at(line.way);
    let of_rank = |rank: Rank| {
        let site = Site {
            rank,
            ..chooser.site.clone()
        };
        let schedule = way.schedule(&site, collective, symmetric, false).ok()?;
        let program = Program::lower(&schedule);
        program.filter(|program| !symmetric || program.begins_with_entry())
    };
    // One rank's schedule can be of the kind where others' are not: a root may talk to everybody.
    let everybody = (0..chooser.site.ranks).all(|rank| of_rank(rank).is_some());
    Some(Lowered {
        program: of_rank(chooser.site.rank).filter(|_| everybody),
        name: way.name.clone(),
        plan: way.short(symmetric),
        up_to: line.up_to,
    })
}
