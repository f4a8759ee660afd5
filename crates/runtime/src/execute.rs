//! The executor: runs the tiles of an operation, instruction by instruction, until each is blocked or done.
//!
//! [Note: Puts under way] A tile goes on behind a put. It stops where its source might be overwritten: before a step of its own
//! that writes there, before its end, and, unless only this rank can write there, before it signals to anybody but the put's
//! receiver, as the signal may be what allows another peer to write. Signals to the receiver need no care, nor do those that
//! it sends in turn: they are ordered behind the put.

mod claims;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_kernels::DType;
use weft_schedule::Slice;
use weft_transport::{Link, LinkError, RegionKey, Segment, Signal, Submission};

use crate::call::Fingerprint;
use crate::channel::{flag_value, slot_of};
use crate::group_state::{GroupState, Remote};
use crate::inline::Outcome;
use crate::memory::{self, Pieces};
use crate::operation::{Running, Tile, UnderWay};
use crate::place::Place;
use crate::plan::{Instruction, Work};
use crate::{Call, Error};

/// Where the user's memory lies, on this rank and, where it is symmetric, on all.
#[derive(Clone, Debug)]
pub(crate) struct Bases {
    /// This rank's `Input`.
    pub(crate) input: *const u8,
    /// This rank's `Output`.
    pub(crate) output: *mut u8,
    /// Every rank's `Input` and `Output`, as mapped here.
    pub(crate) peers: Option<Arc<[(*const u8, *mut u8)]>>,
}

impl Bases {
    /// The memory that a call names, reached by this rank alone.
    pub(crate) fn own(call: &Call) -> Self {
        Bases {
            input: call.input,
            output: call.output,
            peers: None,
        }
    }
}

// SAFETY: plain addresses; whoever dereferences them answers for the access.
unsafe impl Send for Bases {}

/// Why a tile does not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Blocked {
    /// A signal has not come.
    Signal { from: u32, id: u32 },
    /// A peer has not ended an earlier tile that used the same landing memory.
    Credit { from: u32 },
    /// A peer has not granted its memory: it has not made this call, or not yet.
    Grant { from: u32 },
    /// The link to a peer takes no more bytes for now.
    Link { to: u32 },
    /// A peer is executing a step of this rank's.
    Claimed { by: u32 },
}

impl Blocked {
    /// Whom it waits for.
    pub(crate) fn rank(self) -> u32 {
        match self {
            Blocked::Signal { from, .. } | Blocked::Credit { from } | Blocked::Grant { from } => {
                from
            }
            Blocked::Link { to } => to,
            Blocked::Claimed { by } => by,
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Blocked::Signal { id, .. } => write!(f, "its signal {id}"),
            Blocked::Credit { .. } => write!(f, "it to take in what was sent before"),
            Blocked::Grant { .. } => write!(f, "it to make the same call"),
            Blocked::Link { .. } => write!(f, "it to receive what is being sent"),
            Blocked::Claimed { .. } => write!(f, "it to finish a step that it has claimed"),
        }
    }
}

/// What ends a group.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// The link to this rank has failed.
    Link(u32, LinkError),
    /// A rank called something else.
    Desync {
        rank: u32,
        mine: Fingerprint,
        theirs: Fingerprint,
    },
    /// Something else.
    Other(Error),
}

/// What one advance may use up, so that other operations get their turn.
pub(crate) struct Budget {
    /// Bytes that may still be read or written.
    pub(crate) bytes: u64,
}

impl GroupState {
    /// Takes an operation as far as it goes. True if anything was done.
    pub(crate) fn advance(
        &mut self,
        position: usize,
        pool: &Segment,
        budget: &mut Budget,
    ) -> Result<bool, Trouble> {
        if self.operations[position].inline.is_some() {
            return self.advance_inline(position);
        }
        if !self.admit(position).map_err(Trouble::Other)? {
            return Ok(false);
        }
        let Some(mut running) = self.operations[position].running.take() else {
            return Ok(false);
        };
        let result = self.advance_tiles(position, &mut running, pool, budget);
        self.operations[position].running = Some(running);
        result
    }

    fn advance_inline(&mut self, position: usize) -> Result<bool, Trouble> {
        let operation = &mut self.operations[position];
        let (Some(inline), Some(entered)) = (&self.inline, &mut operation.inline) else {
            return Ok(false);
        };
        if !inline.is_next(entered) {
            return Ok(false);
        }
        operation.waiting = inline.advance(&operation.call, entered, &self.left)?;
        if entered.outcome == Some(Outcome::Lane) {
            operation.inline = None;
        }
        Ok(operation.waiting.is_none())
    }

    fn advance_tiles(
        &mut self,
        position: usize,
        running: &mut Running,
        pool: &Segment,
        budget: &mut Budget,
    ) -> Result<bool, Trouble> {
        let lane = self.operations[position].lane();
        let mut progressed = self.start_tiles(position, lane, running, pool)?;
        let mut tiles = std::mem::take(&mut running.tiles);
        let operation = &self.operations[position];
        let mut run = Run {
            group: self,
            call: &operation.call,
            fingerprint: operation.fingerprint,
            running,
            lane,
            pool,
            budget,
        };
        let mut result = Ok(());
        for tile in tiles.iter_mut().filter(|tile| !tile.done) {
            match run.tile(tile) {
                Ok(moved) => progressed |= moved,
                Err(trouble) => {
                    result = Err(trouble);
                    break;
                }
            }
        }
        running.tiles = tiles;
        result?;
        let before = running.tiles.len();
        while running.tiles.first().is_some_and(|tile| tile.done) {
            running.tiles.remove(0);
            self.lanes[lane].ended += 1;
        }
        if running.tiles.len() < before {
            self.give_credit(lane, running)?;
        }
        Ok(progressed)
    }

    fn start_tiles(
        &mut self,
        position: usize,
        lane: usize,
        running: &mut Running,
        pool: &Segment,
    ) -> Result<bool, Trouble> {
        let mut started = false;
        let in_flight = running.plan.tiles_in_flight;
        while running.tiles.len() < in_flight && running.next < running.geometry.tiles {
            let g = running.first + running.next;
            if let Some(blocked) = self.cannot_start(lane, g, running, pool) {
                if self.left[blocked.rank() as usize] {
                    return Err(Trouble::Link(blocked.rank(), LinkError::Left));
                }
                if running.tiles.is_empty() {
                    self.operations[position].waiting = Some(blocked);
                }
                break;
            }
            for target in &running.plan.landing_targets {
                if let Some(channel) = &mut self.channels[*target as usize] {
                    channel.landed[lane][slot_of(g)] = g + 1;
                }
            }
            memory::prepare(
                &self.operations[position].call,
                self.rank,
                running,
                running.next,
            );
            self.open_claims(lane, g, &running.plan, pool);
            running.tiles.push(Tile {
                index: running.next,
                g,
                next: 0,
                puts: Vec::new(),
                shown: None,
                blocked: None,
                done: false,
            });
            running.next += 1;
            started = true;
            self.operations[position].waiting = None;
        }
        Ok(started)
    }

    /// Why tile `g` cannot start, if so.
    fn cannot_start(
        &self,
        lane: usize,
        g: u64,
        running: &Running,
        pool: &Segment,
    ) -> Option<Blocked> {
        let channel = |rank: &u32| self.channels[*rank as usize].as_ref();
        let neighbours = &running.plan.neighbours;
        let absent = |rank: &&u32| channel(rank).is_none_or(|c| c.remote.is_none());
        if let Some(from) = neighbours.iter().find(absent) {
            return Some(Blocked::Grant { from: *from });
        }
        let slot = slot_of(g);
        let occupied = |rank: &&u32| {
            channel(rank).is_some_and(|channel| {
                let word = pool.word(channel.local.offset + self.layout.credit(lane));
                channel.landed[lane][slot] > word.load(Ordering::Acquire)
            })
        };
        let occupied = running.plan.landing_targets.iter().find(occupied);
        occupied.map(|from| Blocked::Credit { from: *from })
    }

    /// Tells those who write to this rank's landing memory how many tiles have ended.
    fn give_credit(&self, lane: usize, running: &Running) -> Result<(), Trouble> {
        for source in &running.plan.landing_sources {
            let rank = *source as usize;
            let (Some(link), Some(channel)) = (&self.links[rank], &self.channels[rank]) else {
                continue;
            };
            let Some(remote) = &channel.remote else {
                continue;
            };
            let signal = Signal {
                offset: remote.channel + self.layout.credit(lane),
                value: self.lanes[lane].ended,
            };
            match link.signal(signal) {
                // A peer that has left needs no credit, nor one that has left since its link was last read.
                Ok(()) | Err(LinkError::Left) => {}
                Err(_) if self.left[rank] => {}
                Err(error) => return Err(Trouble::Link(*source, error)),
            }
        }
        Ok(())
    }
}

/// One operation's tiles, running.
struct Run<'a> {
    group: &'a GroupState,
    call: &'a Call,
    fingerprint: Fingerprint,
    running: &'a Running,
    lane: usize,
    pool: &'a Segment,
    budget: &'a mut Budget,
}

impl Run<'_> {
    /// Takes a tile as far as it goes. True if anything was done.
    fn tile(&mut self, tile: &mut Tile) -> Result<bool, Trouble> {
        let start = tile.next;
        let program = &self.running.plan.program;
        tile.blocked = None;
        self.let_go(tile)?;
        while tile.next < program.len() && self.budget.bytes > 0 {
            if let Some(blocked) = self.instruction(&program[tile.next], tile)? {
                tile.blocked = Some(blocked);
                break;
            }
            tile.next += 1;
        }
        if tile.next == program.len() {
            tile.blocked = tile.blocked_by_put(|_| true);
            tile.done = tile.blocked.is_none();
        }
        Ok(tile.next > start || tile.done)
    }

    /// Forgets the puts that are complete.
    fn let_go(&self, tile: &mut Tile) -> Result<(), Trouble> {
        if tile.puts.is_empty() {
            return Ok(());
        }
        let mut under_way = Vec::new();
        for put in std::mem::take(&mut tile.puts) {
            let (link, _) = self.link(put.to)?;
            let complete = link.completed(put.ticket);
            if !complete.map_err(|error| Trouble::Link(put.to, error))? {
                under_way.push(put);
            }
        }
        tile.puts = under_way;
        Ok(())
    }

    /// Executes one instruction, or says why it cannot be executed yet.
    fn instruction(
        &mut self,
        instruction: &Instruction,
        tile: &mut Tile,
    ) -> Result<Option<Blocked>, Trouble> {
        match instruction {
            Instruction::Wait { from, id } => self.wait(*from, *id, tile),
            Instruction::Signal { to, id } => self.signal(*to, *id, tile),
            Instruction::Put { dst, src, signal } => self.put(dst, src, *signal, tile),
            Instruction::Work(work) => {
                let blocked = self.before_work(work, tile);
                if blocked.is_none() {
                    self.work(work, tile);
                }
                Ok(blocked)
            }
            Instruction::Own { claim, work } => self.own(*claim, work, tile),
            Instruction::Help { .. } => self.before_help(tile),
        }
    }

    fn place(&self, tile: &Tile) -> Place<'_> {
        Place::new(
            self.group,
            self.running,
            self.pool,
            self.lane,
            tile,
            self.call.dtype,
        )
    }

    fn flag_line(&self, tile: &Tile) -> u64 {
        self.group.layout.flag(self.lane, slot_of(tile.g))
    }

    /// Why a wait is not over yet, if so.
    fn awaits(&self, from: u32, id: u32, tile: &Tile) -> Option<Blocked> {
        let Some(channel) = &self.group.channels[from as usize] else {
            return Some(Blocked::Grant { from });
        };
        let line = self.pool.word(channel.local.offset + self.flag_line(tile));
        let come = line.load(Ordering::Acquire) >= flag_value(tile.g, id);
        (!come).then_some(Blocked::Signal { from, id })
    }

    fn wait(&self, from: u32, id: u32, tile: &Tile) -> Result<Option<Blocked>, Trouble> {
        let blocked = self.awaits(from, id, tile);
        if blocked.is_none() && id == 0 {
            self.check_fingerprint(from, tile)?;
        }
        self.unless_left(blocked)
    }

    /// A rank that has left does nothing any more that could be waited for.
    fn unless_left(&self, blocked: Option<Blocked>) -> Result<Option<Blocked>, Trouble> {
        match blocked {
            Some(blocked) if self.group.left[blocked.rank() as usize] => {
                Err(Trouble::Link(blocked.rank(), LinkError::Left))
            }
            blocked => Ok(blocked),
        }
    }

    /// Compares what the peer has called with what this rank has. Words that the peer is overwriting just now say
    /// nothing: it has gone on to a later tile, where it will be compared again.
    fn check_fingerprint(&self, from: u32, tile: &Tile) -> Result<(), Trouble> {
        let Some(channel) = &self.group.channels[from as usize] else {
            return Ok(());
        };
        let line = channel.local.offset + self.flag_line(tile);
        let word = |index: u64| self.pool.word(line + 8 * index).load(Ordering::Relaxed);
        let theirs = Fingerprint::behind_flag(word);
        let mine = self
            .fingerprint
            .between(self.call, self.group.rank, from, self.group.rank);
        if theirs == mine || word(4) != theirs.checksum(tile.g) {
            return Ok(());
        }
        Err(Trouble::Desync {
            rank: from,
            mine,
            theirs,
        })
    }

    fn signal(&self, to: u32, id: u32, tile: &Tile) -> Result<Option<Blocked>, Trouble> {
        let (link, remote) = self.link(to)?;
        if let Some(blocked) = tile.blocked_by_put(|put| !put.private && put.to != to) {
            return Ok(Some(blocked));
        }
        let signal = Signal {
            offset: remote.channel + self.flag_line(tile),
            value: flag_value(tile.g, id),
        };
        let result = match id {
            0 => self.signal_with_fingerprint(to, (link, remote), signal, tile),
            _ => link.signal(signal),
        };
        result.map_err(|error| Trouble::Link(to, error))?;
        Ok(None)
    }

    /// What lies behind the flag of a tile's first signal to a peer: see [`Fingerprint::behind_flag`].
    fn fingerprint_words(&self, to: u32, tile: &Tile) -> [u64; 4] {
        let rank = self.group.rank;
        let fingerprint = self.fingerprint.between(self.call, rank, rank, to);
        let [count, kind, history] = fingerprint.words();
        [count, kind, history, fingerprint.checksum(tile.g)]
    }

    fn signal_with_fingerprint(
        &self,
        to: u32,
        (link, remote): (&dyn Link, &Remote),
        signal: Signal,
        tile: &Tile,
    ) -> Result<(), LinkError> {
        let Some(pool) = &remote.pool else {
            return self.show_fingerprint(to, link, signal.offset, Some(signal), tile);
        };
        // In bounds: `GroupState::granted` has checked the channel against the peer's pool.
        for (index, word) in (1..).zip(self.fingerprint_words(to, tile)) {
            let target = pool.word(signal.offset + 8 * index);
            target.store(word, Ordering::Relaxed);
        }
        link.signal(signal)
    }

    /// Sends what lies behind a flag over a link, and then the signal, if it is given.
    fn show_fingerprint(
        &self,
        to: u32,
        link: &dyn Link,
        line: u64,
        signal: Option<Signal>,
        tile: &Tile,
    ) -> Result<(), LinkError> {
        let words = self.fingerprint_words(to, tile).map(u64::to_ne_bytes);
        link.inject(RegionKey::POOL, line + 8, words.as_flattened(), signal)
    }

    fn put(
        &mut self,
        dst: &Slice,
        src: &Slice,
        signal: Option<u32>,
        tile: &mut Tile,
    ) -> Result<Option<Blocked>, Trouble> {
        let to = dst.rank;
        let (link, remote) = self.link(to)?;
        let place = self.place(tile);
        let mut source = Pieces::of(&place, src);
        let private = place.is_private(src);
        let bytes = source.bytes();
        let within = place.landing_at_peer(dst);
        if signal.is_some()
            && let Some(blocked) = tile.blocked_by_put(|put| !put.private && put.to != to)
        {
            return Ok(Some(blocked));
        }
        if let Some(staging) = self.staging(to).filter(|_| private) {
            let at = self
                .pool
                .base()
                .as_ptr()
                .wrapping_add((staging + within) as usize);
            let occupied = |put: &UnderWay| put.source.overlap(at, bytes as usize);
            if let Some(blocked) = tile.blocked_by_put(occupied) {
                return Ok(Some(blocked));
            }
            source = source.staged(self.pool, staging + within);
        }
        let failed = |error| Trouble::Link(to, error);
        let line = remote.channel + self.flag_line(tile);
        // The first signal's fingerprint goes ahead of the payload, once, so that all of it can leave together.
        if signal == Some(0) && tile.shown != Some(to) {
            let shown = self.show_fingerprint(to, link, line, None, tile);
            shown.map_err(failed)?;
            tile.shown = Some(to);
        }
        let signal = signal.map(|id| Signal {
            offset: line,
            value: flag_value(tile.g, id),
        });
        let offset = remote.channel + within;
        let posted = link.put(RegionKey::POOL, offset, source.as_slice(), signal);
        match posted.map_err(failed)? {
            Submission::Full => return Ok(Some(Blocked::Link { to })),
            Submission::Done => {}
            Submission::UnderWay(ticket) => tile.puts.push(UnderWay {
                to,
                ticket,
                source,
                private,
            }),
        }
        tile.shown = None;
        self.budget.bytes = self.budget.bytes.saturating_sub(bytes);
        Ok(None)
    }

    /// Where what is put to a peer must be copied first, in the pool, if it must.
    fn staging(&self, to: u32) -> Option<u64> {
        let channel = self.group.channels[to as usize].as_ref()?;
        Some(channel.staging.as_ref()?.offset)
    }

    /// Why a step cannot be executed yet: a put reads what it writes.
    fn before_work(&self, work: &Work, tile: &Tile) -> Option<Blocked> {
        if tile.puts.is_empty() {
            return None;
        }
        let place = self.place(tile);
        tile.blocked_by_put(|put| memory::overwrites(&place, work, &put.source))
    }

    fn work(&mut self, work: &Work, tile: &Tile) {
        let place = self.place(tile);
        let bytes = match work {
            Work::Copy { dsts, src } => memory::copy(&place, dsts, src),
            Work::Reduce { dsts, srcs, last } => {
                let finish = self.call.op.finish(*last, self.group.size());
                memory::reduce(&place, self.call.op.kernel(), finish, dsts, srcs)
            }
        };
        self.budget.bytes = self.budget.bytes.saturating_sub(bytes);
    }

    /// The link to a peer, and what that has granted.
    fn link(&self, to: u32) -> Result<(&dyn Link, &Remote), Trouble> {
        let link = self.group.links[to as usize].as_deref();
        let channel = self.group.channels[to as usize].as_ref();
        let remote = channel.and_then(|channel| channel.remote.as_ref());
        link.zip(remote)
            .ok_or_else(|| Trouble::Other(Error::Internal(format!("no channel to rank {to}"))))
    }
}

impl Tile {
    /// What it waits for as long as such a put is under way.
    fn blocked_by_put(&self, such: impl Fn(&UnderWay) -> bool) -> Option<Blocked> {
        let put = self.puts.iter().find(|put| such(put))?;
        Some(Blocked::Link { to: put.to })
    }
}

/// The type of elements in a slice.
pub(crate) fn element_type(slice: &Slice, message: DType) -> DType {
    use weft_schedule::Encoding;
    match slice.encoding {
        Encoding::Native => message,
        Encoding::F32 => DType::F32,
        Encoding::F16 => DType::F16,
        // Plans with fp8 slices are refused when they are compiled.
        Encoding::Bf16 | Encoding::Fp8 => DType::Bf16,
    }
}
