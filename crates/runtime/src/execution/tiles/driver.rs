//! Driver of one tile of an operation: execution of its instructions in its slot of the lane.

use std::sync::atomic::Ordering;

use weft_call::Fingerprint;
use weft_channel::{Connections, Place, Remote};
use weft_flight::{OpenStage, Stage, StageOf};
use weft_memory::access;
use weft_program::{Kernel, LocalStep, Location, Operand};
use weft_schedule::{Rank, SignalId};
use weft_transport::{Iovec, Link, LinkError, RegionKey, Segment, Signal, Stream, Submission};
use weft_transport::{flag_value, has_reached};

use super::super::budget::Budget;
use super::super::interpret::{self, Advance, Blocked, Driver, GroupFailure, ProgramFrame};
use super::super::operation::{Operation, Running, Tile};
use super::super::puts::PutSource;
use super::super::strips::PieceRegistration;

/// One tile of an operation, running.
pub(super) struct TileDriver<'a> {
    pub(super) connections: &'a Connections,
    pub(super) operation: &'a Operation,
    pub(super) running: &'a Running,
    pub(super) lane: usize,
    pub(super) pool: &'a Segment,
    budget: &'a mut Budget,
    pub(super) tile: &'a mut Tile,
    /// The current instruction.
    pub(super) next: usize,
}

impl<'a> TileDriver<'a> {
    pub(super) fn new(
        operation: &'a Operation,
        running: &'a Running,
        connections: &'a Connections,
        pool: &'a Segment,
        budget: &'a mut Budget,
        tile: &'a mut Tile,
    ) -> Self {
        TileDriver {
            connections,
            lane: operation.lane(),
            operation,
            running,
            pool,
            budget,
            next: tile.next,
            tile,
        }
    }

    pub(super) fn frame(&self) -> ProgramFrame<'a> {
        ProgramFrame {
            program: &self.running.plan.program,
            geometry: &self.running.geometry,
            call: &self.operation.call,
            tile: self.tile.index,
        }
    }

    /// Advances the tile as far as possible. True if anything was done.
    pub(super) fn advance(&mut self) -> Result<bool, GroupFailure> {
        let instructions = self.running.plan.program.instructions.len();
        self.tile.blocked = None;
        self.tile.puts.end_traced(self.connections)?;
        if self.budget.bytes > 0 {
            let frame = self.frame();
            let mut next = self.next;
            let result = interpret::run(self, frame, &mut next);
            self.tile.next = next;
            self.tile.blocked = result?;
        }
        self.redirect_arrivals();
        if self.tile.next == instructions {
            self.tile.blocked = self.tile.puts.before_end(self.connections)?;
            self.tile.done = self.tile.blocked.is_none();
        }
        Ok(self.tile.next > self.next || self.tile.done)
    }
}

impl Driver for TileDriver<'_> {
    fn base(&self, location: Location) -> *mut u8 {
        let (connections, small) = (self.connections, self.running.geometry.is_small());
        let slot = connections.layout.slot_of(self.tile.g);
        let receive = || connections.layout.receive(small, self.lane, slot);
        let scratch = || connections.layout.scratch(small, self.lane, slot);
        let own = |offset: u64| self.pool.base().as_ptr().wrapping_add(offset as usize);
        match location {
            Location::Input(rank) => self.user(rank).0.cast_mut(),
            Location::Output(rank) => self.user(rank).1,
            Location::Scratch { rank, .. } if rank == connections.rank => {
                own(connections.scratch(scratch()))
            }
            Location::Scratch { rank, .. } => {
                connections.peer(rank, |remote| remote.scratch(scratch()))
            }
            Location::Receive { from, .. } => {
                let channel = connections.channels[from as usize].as_ref();
                own(channel.map_or(0, |channel| channel.at(receive())))
            }
            Location::PeerReceive { to, .. } => {
                connections.peer(to, |remote| remote.channel(receive()))
            }
        }
    }

    fn wait(&mut self, from: Rank, id: SignalId) -> Advance {
        let blocked = self.awaits(from, id);
        match blocked {
            None => self.connections.stages.end(self.tile.awaited.take()),
            Some(_) if self.tile.awaited.is_some() => {}
            Some(_) => self.tile.awaited = self.begin_stage(Stage::Receive, 0),
        }
        if blocked.is_none() && id == 0 {
            self.check_fingerprint(from)?;
        }
        self.unless_left(blocked)
    }

    fn signal(&mut self, to: Rank, id: SignalId) -> Advance {
        let (link, remote) = self.link(to)?;
        if let Some(blocked) = self.tile.puts.before_signal(self.connections, to)? {
            return Ok(Some(blocked));
        }
        let signal = self.flag_at(remote.words(), id);
        let sent = match id {
            0 => self.signal_with_fingerprint(to, (link, remote), signal),
            _ => link.signal(signal),
        };
        match sent {
            Ok(()) => Ok(None),
            Err(error) => Err(GroupFailure::Link(to, error)),
        }
    }

    fn put(&mut self, to: Rank, dst: u32, src: u32, signal: Option<SignalId>) -> Advance {
        let (link, remote) = self.link(to)?;
        let program = &self.running.plan.program;
        let (dst, src) = (program.operand(dst), program.operand(src));
        let layout = self.connections.layout;
        let (small, slot) = (
            self.running.geometry.is_small(),
            layout.slot_of(self.tile.g),
        );
        let receive = layout.receive(small, self.lane, slot);
        let place = receive.plus(self.offset(dst, 0));
        let mut source = self.source(src);
        let bytes = source.pieces.iter().map(|piece| piece.len() as u64).sum();
        let mut blocked = match signal {
            Some(_) => self.tile.puts.before_signal(self.connections, to)?,
            None => None,
        };
        let staging = match self.staging(to, place, &mut source) {
            Ok(staging) => staging,
            Err(waiting) => return Ok(Some(waiting)),
        };
        if let (Some(offset), None) = (staging, blocked) {
            let start = self.pool.base().as_ptr() as usize + offset as usize;
            let mirror = start..start + bytes as usize;
            blocked = self.tile.puts.before_write(self.connections, &mirror)?;
        }
        if blocked.is_some() {
            return Ok(blocked);
        }
        if let Some(offset) = staging {
            let open = self.begin_stage(Stage::Copy, bytes);
            // SAFETY: the mirror has room for a slot, and no put reads this place (see above).
            source.pieces = vec![unsafe { access::stage(&source.pieces, self.pool, offset) }];
            source.lasting = false;
            self.connections.count_staged(bytes);
            self.connections.stages.end(open);
        }
        let failed = |error| GroupFailure::Link(to, error);
        // Sends the first signal's fingerprint before the payload, once, so that payload and signal
        // can be sent together.
        if signal == Some(0) && self.tile.shown != Some(to) {
            let line = self.flag_at(remote.words(), 0).offset;
            let shown = self.show_fingerprint(to, link, line, None);
            shown.map_err(failed)?;
            self.tile.shown = Some(to);
        }
        let signal = signal.map(|id| self.flag_at(remote.words(), id));
        let offset = remote.channel(place);
        let open = self.begin_stage(Stage::Send, bytes);
        let submitted = link.put(RegionKey::POOL, offset, &source.pieces, signal);
        match submitted.map_err(failed)? {
            Submission::Full => return Ok(Some(Blocked::Link { to })),
            Submission::Done => self.connections.stages.end(open),
            Submission::UnderWay(ticket) => self.tile.puts.add((to, ticket), source, open),
        }
        self.tile.shown = None;
        self.spend(bytes);
        Ok(None)
    }

    fn before_local(&mut self, step: LocalStep) -> Advance {
        if self.tile.puts.is_empty() {
            return Ok(None);
        }
        let program = &self.running.plan.program;
        let (geometry, shape) = (&self.running.geometry, &program.shape);
        let measured = program.operand(step.measured);
        let destinations = &program.operands(step.operands)[..step.destinations as usize];
        for piece in 0..geometry.pieces(measured) {
            let elements = geometry.elements(shape, measured, piece, self.tile.index);
            for dst in destinations {
                let start = self.base(dst.location) as usize + self.offset(dst, piece) as usize;
                let range = start..start + geometry.bytes(dst.encoding, elements) as usize;
                let blocked = self.tile.puts.before_write(self.connections, &range)?;
                if blocked.is_some() {
                    return Ok(blocked);
                }
            }
        }
        Ok(None)
    }

    fn arrive(&mut self, arrival: u32, step: LocalStep) -> Result<(), GroupFailure> {
        self.take_arrival(arrival, step)
    }

    fn claimable(&mut self, at: usize, claim: u32, owner: Rank, step: LocalStep) -> Advance {
        match owner == self.connections.rank {
            true => self.own(claim, step),
            false => self.before_help(at),
        }
    }

    fn begin_step(&self, step: LocalStep) -> Option<OpenStage> {
        let stage = match step.kernel {
            Kernel::Copy | Kernel::Convert => Stage::Copy,
            Kernel::Reduce { .. } => Stage::Reduction,
        };
        self.begin_stage(stage, 0)
    }

    fn end_step(&self, stage: Option<OpenStage>, bytes: u64) {
        let stage = stage.map(|stage| stage.of_bytes(bytes));
        self.connections.stages.end(stage);
    }

    fn spend(&mut self, bytes: u64) -> bool {
        self.budget.bytes = self.budget.bytes.saturating_sub(bytes);
        self.budget.bytes > 0
    }

    fn addresses(&mut self) -> Vec<*mut u8> {
        std::mem::take(&mut self.budget.addresses)
    }

    fn keep_addresses(&mut self, addresses: Vec<*mut u8>) {
        self.budget.addresses = addresses;
    }
}

impl<'a> TileDriver<'a> {
    /// A rank's `Input` and `Output`.
    fn user(&self, rank: Rank) -> (*const u8, *mut u8) {
        let bases = &self.running.bases;
        match &bases.peers {
            Some(peers) if rank != self.connections.rank => peers[rank as usize],
            _ => (bases.input, bases.output),
        }
    }

    pub(super) fn offset(&self, operand: &Operand, piece: u32) -> u64 {
        let shape = &self.running.plan.program.shape;
        (self.running.geometry).offset(shape, operand, piece, self.tile.index)
    }

    /// The bytes of an operand in this rank's memory, piece by piece.
    fn pieces(&self, src: &Operand) -> Vec<Iovec> {
        let (geometry, shape) = (&self.running.geometry, &self.running.plan.program.shape);
        let base = self.base(src.location);
        let piece = |piece: u32| {
            let elements = geometry.elements(shape, src, piece, self.tile.index);
            let address = base.wrapping_add(self.offset(src, piece) as usize);
            let bytes = geometry.bytes(src.encoding, elements);
            // SAFETY: see [Note: Memory access]. Until a put is complete, the executor prevents
            // writes to its source.
            unsafe { access::source(address, bytes) }
        };
        let pieces = (0..geometry.pieces(src)).map(piece);
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    /// Begins a stage of the tile, while stages are traced.
    fn begin_stage(&self, stage: Stage, bytes: u64) -> Option<OpenStage> {
        self.connections.stages.begin(stage, || StageOf {
            operation: self.operation.sequence,
            tile: self.tile.index,
            bytes,
        })
    }

    /// The source of a put of an operand.
    fn source(&self, src: &Operand) -> PutSource {
        let private = src.is_user() && self.running.bases.peers.is_none();
        PutSource {
            pieces: self.pieces(src),
            private,
            lasting: private,
            registered: Vec::new(),
        }
    }

    /// The place in the pool that a source must be copied to before a put, if it must. A registered
    /// source is named by its registration: see [Note: Registered memory]. A pending registration
    /// is waited for.
    fn staging(
        &self,
        to: Rank,
        place: Place,
        source: &mut PutSource,
    ) -> Result<Option<u64>, Blocked> {
        let channel = self.connections.channels[to as usize].as_ref();
        let staging = channel.and_then(|channel| channel.staging(place));
        let staging = staging.filter(|_| source.private);
        let link = self.connections.links[to as usize].as_ref();
        let (Some(staging), Some(link)) = (staging, link) else {
            return Ok(None);
        };
        let (kind, pieces) = (link.kind(), &source.pieces);
        let registered = match self.connections.registrations.find_all(kind, pieces) {
            Some(registered) => registered,
            None => match self.running.strips.named(kind, pieces) {
                PieceRegistration::Registered(registered) => registered,
                PieceRegistration::Waiting => return Err(Blocked::Registration { to }),
                PieceRegistration::Copied => return Ok(Some(staging)),
            },
        };
        (source.pieces, source.registered) = registered.into_iter().unzip();
        Ok(None)
    }

    /// Returns the wait for a signal, unless it has arrived.
    pub(super) fn awaits(&self, from: Rank, id: SignalId) -> Option<Blocked> {
        let waiting = Some(Blocked::Signal { from, id });
        let Some(channel) = &self.connections.channels[from as usize] else {
            return waiting;
        };
        let line = self.flag_at(channel.words(), id);
        let come = has_reached(self.pool.word(line.offset), line.value);
        if come { None } else { waiting }
    }

    /// Returns an error instead of a wait for a rank that has left.
    pub(super) fn unless_left(&self, blocked: Option<Blocked>) -> Advance {
        match blocked {
            Some(blocked) if self.connections.departed[blocked.rank() as usize] => {
                Err(GroupFailure::Link(blocked.rank(), LinkError::Left))
            }
            blocked => Ok(blocked),
        }
    }

    /// The tile's flag among the words of a channel, and its value once this signal was sent.
    fn flag_at(&self, words: u64, id: SignalId) -> Signal {
        let (layout, g) = (self.connections.layout, self.tile.g);
        Signal {
            offset: words + layout.flag(self.lane, layout.slot_of(g)),
            value: flag_value(g, id),
        }
    }

    /// Compares the peer's call with this rank's. Words that the peer is overwriting are ignored:
    /// it has advanced to a later tile, where its call is compared again.
    fn check_fingerprint(&self, from: Rank) -> Result<(), GroupFailure> {
        let Some(channel) = &self.connections.channels[from as usize] else {
            return Ok(());
        };
        let line = self.flag_at(channel.words(), 0).offset;
        let word = |index: u64| self.pool.word(line + 8 * index).load(Ordering::Relaxed);
        let theirs = Fingerprint::behind_flag(word);
        let (rank, operation) = (self.connections.rank, self.operation);
        let mine = (operation.fingerprint).between(&operation.call, rank, from, rank);
        if theirs == mine || word(5) != theirs.checksum(self.tile.g) {
            return Ok(());
        }
        Err(GroupFailure::Desync {
            rank: from,
            mine,
            theirs,
        })
    }

    /// The words behind the flag of a tile's first signal to a peer: see
    /// [`Fingerprint::behind_flag`].
    fn fingerprint_words(&self, to: Rank) -> [u64; 5] {
        let (rank, operation) = (self.connections.rank, self.operation);
        let fingerprint = (operation.fingerprint).between(&operation.call, rank, rank, to);
        let [count, kind, history, plan] = fingerprint.words();
        [
            count,
            kind,
            history,
            plan,
            fingerprint.checksum(self.tile.g),
        ]
    }

    fn signal_with_fingerprint(
        &self,
        to: Rank,
        (link, remote): (&dyn Stream, &Remote),
        signal: Signal,
    ) -> Result<(), LinkError> {
        let Some(pool) = &remote.pool else {
            return self.show_fingerprint(to, link, signal.offset, Some(signal));
        };
        // In bounds: `Connections::granted` has checked the channel against the peer's pool.
        for (index, word) in (1..).zip(self.fingerprint_words(to)) {
            let target = pool.word(signal.offset + 8 * index);
            target.store(word, Ordering::Relaxed);
        }
        link.signal(signal)
    }

    /// Sends the words behind a flag over a link, followed by the signal, if given.
    fn show_fingerprint(
        &self,
        to: Rank,
        link: &dyn Stream,
        line: u64,
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        let words = self.fingerprint_words(to).map(u64::to_ne_bytes);
        link.inject(RegionKey::POOL, line + 8, words.as_flattened(), signal)
    }

    /// The tile's stream to a peer, and the peer's grants.
    pub(super) fn link(&self, to: Rank) -> Result<(&'a dyn Stream, &'a Remote), GroupFailure> {
        let link = self.connections.links[to as usize].as_deref();
        let chosen = self.tile.streams.iter().find(|(rank, _)| *rank == to);
        let further = |link: &'a dyn Link| link.further_stream(chosen?.1);
        let stream = link.map(|link| {
            further(link).unwrap_or_else(|| stream_of(link, self.operation.is_urgent()))
        });
        let linked = stream.zip(self.connections.remote(to));
        linked.ok_or_else(|| GroupFailure::internal(&format!("no channel to rank {to}")))
    }
}

pub(super) fn stream_of(link: &dyn Link, urgent: bool) -> &dyn Stream {
    match urgent {
        true => link.urgent(),
        false => link,
    }
}
