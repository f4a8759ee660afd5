//! The latency path: small operations between ranks that map each other's memory, in one put per peer.
//!
//! [Note: Inline operations] A schedule of one round, in which every rank puts something to every other and then waits for
//! every other, is lowered when the group is made: flag, fingerprint and payload of each ordered pair lie one behind the
//! other in one slot, so that a small payload comes in the flag's own cache line. Such operations are numbered on their own, and
//! run one at a time, in the order of the calls, beside the lanes. Operation f uses slot f % 2 of every pair. Slots need no credit:
//! who puts operation f has ended f - 1, so it has what every peer put for f - 1, and every peer did that after it had ended
//! f - 2, which used the slot before.
//!
//! A blocking call runs on the calling thread without the engine, as long as that promises to be quick; then the engine
//! takes over where it got stuck. What is called in the background is the engine's from the beginning. Both do the same to the memory
//! of others, so ranks need not do alike.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use weft_schedule::{Collective, Rank, Schedule, Slice, Step};
use weft_transport::{Link, LinkError, Progress, Segment, Signal};

use crate::call::{Fingerprint, Op};
use crate::channel::{INLINE_BYTES, INLINE_HEADER, INLINE_SLOTS, INLINE_STRIDE, Layout};
use crate::choice::Chooser;
use crate::execute::{Blocked, Trouble};
use crate::group_state::GroupState;
use crate::memory::{self, Operand};
use crate::order::Order;
use crate::policy::Tiling;
use crate::spin::Patience;
use crate::ways::Kind;
use crate::{Call, Counts, Error};

/// Groups of at most so many ranks have a latency path: everybody puts to everybody.
pub(crate) const INLINE_RANKS: usize = 16;

/// One step of a lowered schedule that touches this rank's memory only.
#[derive(Debug, PartialEq)]
pub(crate) enum Local {
    Copy { dst: Operand, src: Operand },
    Reduce { dst: Operand, srcs: Vec<Operand> },
}

/// A schedule of one round, lowered.
#[derive(Debug, PartialEq)]
pub(crate) struct Program {
    /// What each peer gets. Every peer gets something, if only the signal.
    puts: Vec<(Rank, Option<Operand>)>,
    /// What is done once every peer's put has come.
    locals: Vec<Local>,
}

impl Program {
    /// Lowers a schedule, if it is of that kind.
    pub(crate) fn lower(schedule: &Schedule) -> Option<Program> {
        let mut puts: Vec<(Rank, Option<Operand>)> = Vec::new();
        let (mut signalled, mut awaited) = (Vec::new(), Vec::new());
        let mut locals = Vec::new();
        let own = |slice: &Slice| Operand::of(slice, schedule);
        for step in &schedule.steps {
            match step {
                Step::Copy {
                    dsts,
                    src,
                    claim: None,
                } => {
                    let src = own(src)?;
                    for dst in dsts {
                        match own(dst) {
                            Some(dst) => locals.push(Local::Copy { dst, src }),
                            None if awaited.is_empty() => puts.push((dst.rank, Some(src))),
                            None => return None,
                        }
                    }
                }
                Step::Reduce {
                    dsts,
                    srcs,
                    last: true,
                    claim: None,
                } => locals.push(Local::Reduce {
                    dst: own(dsts.first().filter(|_| dsts.len() == 1)?)?,
                    srcs: srcs.iter().map(own).collect::<Option<_>>()?,
                }),
                Step::Signal { to, id: 0 } if awaited.is_empty() => signalled.push(*to),
                Step::Wait { from, id: 0 } => awaited.push(*from),
                _ => return None,
            }
        }
        for to in &signalled {
            if !puts.iter().any(|(rank, _)| rank == to) {
                puts.push((*to, None));
            }
        }
        let others = schedule.ranks as usize - 1;
        let all = [puts.len(), signalled.len(), awaited.len()] == [others; 3];
        (all && others > 0).then_some(Program { puts, locals })
    }
}

/// The collectives that have a lowered schedule.
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
    pub(crate) program: Program,
    /// The plan that it stands for, as fingerprints carry it.
    pub(crate) plan: u16,
    /// Up to how many bytes of the message it is chosen.
    pub(crate) up_to: u64,
}

/// How to reach a peer's slots.
struct Peer {
    link: Arc<dyn Link>,
    /// Where this rank's slots begin in the peer's pool.
    theirs: u64,
    /// Where the peer's slots begin in this rank's pool.
    mine: u64,
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
    lowered: [Option<Lowered>; COLLECTIVES.len()],
    pool: Arc<Segment>,
    layout: Layout,
    /// By rank; there once every peer has granted its memory.
    peers: OnceLock<Vec<Option<Peer>>>,
    turn: Mutex<Turn>,
    order: Arc<Mutex<Order>>,
    /// No operation begins any more.
    over: AtomicBool,
}

/// An inline operation that was called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    /// Its number among all operations of the group.
    pub(crate) sequence: u64,
    /// Its number among the inline ones.
    number: u64,
    pub(crate) fingerprint: Fingerprint,
    /// How many peers have been given this rank's part.
    sent: usize,
    /// Whether it is done.
    pub(crate) ended: bool,
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
            lowered: COLLECTIVES.map(|collective| lowered(collective, &mut group.chooser)),
            pool,
            layout: group.layout,
            peers: OnceLock::new(),
            turn: Mutex::default(),
            order: group.order.clone(),
            over: AtomicBool::new(false),
        }))
    }

    /// The program for a call that all ranks run inline; none for others.
    pub(crate) fn of(&self, call: &Call) -> Option<&Lowered> {
        let position = COLLECTIVES.iter().position(|c| *c == call.collective)?;
        let lowered = self.lowered[position].as_ref()?;
        let Counts::Equal(elements) = call.counts else {
            return None;
        };
        let block = elements.checked_mul(call.dtype.size() as u64)?;
        let fits = block <= INLINE_BYTES
            && block * self.blocks(call) <= lowered.up_to
            && call.algorithm.is_none()
            && call.tiling == Tiling::default()
            && !matches!(call.op, Op::PremulSum(_));
        fits.then_some(lowered)
    }

    /// The number of blocks that a message has.
    fn blocks(&self, call: &Call) -> u64 {
        match call.works_in_place() {
            true => 1,
            false => u64::from(self.ranks),
        }
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
            Some(Some(Peer {
                link,
                theirs: channel.remote?.channel + self.layout.inline(0),
                mine: channel.local.offset + self.layout.inline(0),
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

    /// Runs a call on this thread if nothing is in its way and the peers are quick.
    pub(crate) fn attempt(&self, call: &Call, patience: Patience) -> Attempt {
        let (Some(lowered), Some(peers)) = (self.of(call), self.peers.get()) else {
            return Attempt::NotNow;
        };
        let Ok(mut turn) = self.turn.try_lock() else {
            return Attempt::NotNow;
        };
        if self.over.load(Ordering::Relaxed) || turn.called != turn.ended {
            return Attempt::NotNow;
        }
        let mut entered = self.enter_in(&mut turn, call, lowered);
        // Whatever goes wrong, the engine will meet it again and knows what to do about it.
        let sent = matches!(self.put(call, lowered, peers, &mut entered), Ok(None));
        if !sent || !self.all_come(peers, entered.number, patience) {
            return Attempt::Entered(entered);
        }
        if self.different(peers, &entered).is_some() {
            return Attempt::Entered(entered);
        }
        self.compute(call, lowered, peers, entered.number);
        turn.ended += 1;
        Attempt::Done
    }

    /// Polls until every peer's part has come. False if that takes too long.
    fn all_come(&self, peers: &[Option<Peer>], number: u64, patience: Patience) -> bool {
        let mut idle = 0;
        while self.missing(peers, number).is_some() {
            idle += 1;
            if !patience.pause(idle) {
                return false;
            }
        }
        true
    }

    /// Enters a call that the engine will run.
    pub(crate) fn enter(&self, call: &Call, lowered: &Lowered) -> Entered {
        self.enter_in(&mut self.turn(), call, lowered)
    }

    fn enter_in(&self, turn: &mut Turn, call: &Call, lowered: &Lowered) -> Entered {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (sequence, fingerprint) = order.enter(call, lowered.plan);
        turn.called += 1;
        Entered {
            sequence,
            number: turn.called - 1,
            fingerprint,
            sent: 0,
            ended: false,
        }
    }

    /// Whether all inline operations before this one have ended.
    pub(crate) fn is_next(&self, entered: &Entered) -> bool {
        self.turn().ended == entered.number
    }

    /// Takes the next operation as far as it goes: what it waits for, or nothing once it is done.
    pub(crate) fn advance(
        &self,
        call: &Call,
        entered: &mut Entered,
        left: &[bool],
    ) -> Result<Option<Blocked>, Trouble> {
        let unready =
            || Trouble::Other(Error::Internal("an inline operation without peers".into()));
        let lowered = self.of(call).ok_or_else(unready)?;
        let Some(peers) = self.peers.get() else {
            let from = (0..self.ranks).find(|rank| *rank != self.rank);
            return Ok(from.map(|from| Blocked::Grant { from }));
        };
        let mut turn = self.turn();
        if let Some(blocked) = self.put(call, lowered, peers, entered)? {
            return Ok(Some(blocked));
        }
        if let Some(from) = self.missing(peers, entered.number) {
            return match left[from as usize] {
                true => Err(Trouble::Link(from, LinkError::Left)),
                false => Ok(Some(Blocked::Signal { from, id: 0 })),
            };
        }
        if let Some((rank, theirs)) = self.different(peers, entered) {
            let mine = entered.fingerprint;
            return Err(Trouble::Desync { rank, mine, theirs });
        }
        self.compute(call, lowered, peers, entered.number);
        entered.ended = true;
        turn.ended += 1;
        Ok(None)
    }

    /// Puts this rank's part into the slots of the peers that do not have it yet: what it waits for, or nothing once all have it.
    fn put(
        &self,
        call: &Call,
        lowered: &Lowered,
        peers: &[Option<Peer>],
        entered: &mut Entered,
    ) -> Result<Option<Blocked>, Trouble> {
        let Fingerprint {
            count,
            kind,
            history,
        } = entered.fingerprint;
        let mut header = [0; INLINE_HEADER - 8];
        for (bytes, word) in header.chunks_exact_mut(8).zip([count, kind, history]) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        for &(to, what) in &lowered.program.puts[entered.sent..] {
            let Some(peer) = &peers[to as usize] else {
                continue;
            };
            let offset = peer.theirs + slot(entered.number);
            let payload = what.map_or(&[][..], |operand| memory::operand(call, operand));
            let signal = Signal {
                offset,
                value: entered.number + 1,
            };
            // A put into mapped memory is done at once or, behind what is queued, not begun: no token is needed.
            match peer
                .link
                .put(0, offset + 8, &[&header, payload], Some(signal))
            {
                Ok(Progress::Done) => entered.sent += 1,
                Ok(Progress::Pending) => return Ok(Some(Blocked::Link { to })),
                Err(error) => return Err(Trouble::Link(to, error)),
            }
        }
        Ok(None)
    }

    /// The first rank whose part has not come.
    fn missing(&self, peers: &[Option<Peer>], number: u64) -> Option<Rank> {
        let absent = |peer: &Peer| {
            let flag = self.pool.word(peer.mine + slot(number));
            flag.load(Ordering::Acquire) <= number
        };
        peers
            .iter()
            .position(|peer| peer.as_ref().is_some_and(absent))
            .map(|rank| rank as Rank)
    }

    /// The first rank that has called something else.
    fn different(&self, peers: &[Option<Peer>], entered: &Entered) -> Option<(Rank, Fingerprint)> {
        peers.iter().enumerate().find_map(|(rank, peer)| {
            let line = peer.as_ref()?.mine + slot(entered.number);
            let word = |index: u64| self.pool.word(line + 8 * index).load(Ordering::Relaxed);
            let theirs = Fingerprint {
                count: word(1),
                kind: word(2),
                history: word(3),
            };
            (theirs != entered.fingerprint).then_some((rank as Rank, theirs))
        })
    }

    /// Does what is left to do once everything has come.
    fn compute(&self, call: &Call, lowered: &Lowered, peers: &[Option<Peer>], number: u64) {
        let inbox = |from: Rank| {
            let start = peers[from as usize].as_ref().map_or(0, |peer| peer.mine);
            let offset = start + slot(number) + INLINE_HEADER as u64;
            self.pool.base().as_ptr().wrapping_add(offset as usize)
        };
        for local in &lowered.program.locals {
            match local {
                Local::Copy { dst, src } => memory::copy_operand(call, *dst, *src, &inbox),
                Local::Reduce { dst, srcs } => {
                    memory::reduce_operands(call, self.ranks, *dst, srcs, &inbox);
                }
            }
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The schedule that is chosen for the shortest messages, if it can be lowered.
fn lowered(collective: Collective, chooser: &mut Chooser) -> Option<Lowered> {
    let kind = Kind {
        symmetric: false,
        per_rank: false,
    };
    // A collective that the group cannot carry out is refused when it is called.
    let line = chooser.line(collective, kind, 0).ok()?;
    let way = chooser.catalog.at(line.way);
    let schedule = way.schedule(&chooser.site, collective, false, false).ok()?;
    Some(Lowered {
        program: Program::lower(&schedule)?,
        plan: way.short(false),
        up_to: line.up_to,
    })
}

/// Where the slot of an operation begins, counted from the first.
fn slot(number: u64) -> u64 {
    (number % INLINE_SLOTS) * INLINE_STRIDE
}
