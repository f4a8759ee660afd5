//! Interpreter of schedules with one random interleaving, the reference for the verifier.
//!
//! It shares only the representation with the verifier. Two operations of slots + 1 tiles each run
//! at once. Every step takes two moments, with its destinations poisoned in between; where memory
//! is not mapped, puts and signals travel on one wire per ordered pair of ranks, as slowly as
//! chance will have it.

pub(crate) mod machine;
pub(crate) mod random;
mod rules;

use std::collections::{BTreeMap, HashMap, VecDeque};

use machine::{CellValue, Impossible, InterpretedTile, InterpreterMachine};
use random::Random;
use rules::{compute, expected, former, reads_receive, writes_receive};
use weft_schedule::{
    Buffer, Claim, Collective, Mapped, Rank, Schedule, Slice, Step, VerifyOptions,
};

const SLOTS: u32 = 2;
const TILES: u32 = SLOTS + 1;
const OPERATIONS: u32 = 2;

/// Runs the schedules with the interleaving that follows from `seed`. Returns the fault, if any.
pub(crate) fn run(
    schedules: &[Schedule],
    options: &VerifyOptions,
    seed: u64,
) -> Result<(), String> {
    let mut world = World::new(schedules, options, seed);
    while let Some(event) = world.choose() {
        world.happen(event).map_err(|impossible| impossible.0)?;
    }
    world.check()
}

/// A possible next event.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum InterpreterEvent {
    Enter { rank: Rank, operation: u32 },
    Leave { rank: Rank, operation: u32 },
    Begin(InterpretedTile),
    Advance(InterpretedTile),
    Deliver { from: Rank, to: Rank },
}

/// A parcel on a wire.
enum Parcel {
    Poison {
        by: InterpretedTile,
        dst: Slice,
    },
    Data {
        by: InterpretedTile,
        dst: Slice,
        contents: Vec<CellValue>,
    },
    Signal {
        to: InterpretedTile,
        from: Rank,
        id: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    By(Rank),
    Done,
}

/// A tile's progress.
#[derive(Default)]
struct TileProgress {
    begun: bool,
    ended: bool,
    next: usize,
    /// Between the two moments of a step: the values that were read early.
    halfway: Option<Option<Vec<Vec<CellValue>>>>,
}

/// The operation, the tile, and one more than the signal. Larger values are later ones.
type Flag = (u32, u32, u32);

/// The memory of a rank when it left an operation, by tile: input and output.
type Left = Vec<(Vec<CellValue>, Vec<CellValue>)>;

struct World<'a> {
    schedules: &'a [Schedule],
    machine: InterpreterMachine<'a>,
    random: Random,
    priorities: HashMap<InterpreterEvent, u64>,
    entered: HashMap<(Rank, u32), bool>,
    left: HashMap<(Rank, u32), Left>,
    tiles: HashMap<InterpretedTile, TileProgress>,
    order: Vec<InterpretedTile>,
    wires: BTreeMap<(Rank, Rank), VecDeque<Parcel>>,
    /// By receiver, slot and sender: of which tile the last signal was, and which.
    flags: HashMap<(Rank, u32, Rank), Flag>,
    claims: HashMap<(u32, u32, u32), ClaimState>,
    left_early: Option<String>,
}

impl<'a> World<'a> {
    fn new(schedules: &'a [Schedule], options: &'a VerifyOptions, seed: u64) -> Self {
        let mut order = Vec::new();
        for rank in 0..schedules.len() as Rank {
            for operation in 0..OPERATIONS {
                order.extend((0..TILES).map(|tile| InterpretedTile {
                    rank,
                    operation,
                    tile,
                }));
            }
        }
        World {
            schedules,
            machine: InterpreterMachine::new(&schedules[0], options, SLOTS),
            random: Random::new(seed),
            priorities: HashMap::new(),
            entered: HashMap::new(),
            left: HashMap::new(),
            tiles: order
                .iter()
                .map(|tile| (*tile, TileProgress::default()))
                .collect(),
            order,
            wires: BTreeMap::new(),
            flags: HashMap::new(),
            claims: HashMap::new(),
            left_early: None,
        }
    }

    /// Mostly the possible event of the highest random priority, so that some fall far behind;
    /// sometimes any.
    fn choose(&mut self) -> Option<InterpreterEvent> {
        let possible = self.possible();
        if possible.is_empty() {
            return None;
        }
        if self.random.once_in(200) {
            self.priorities.clear();
        }
        if self.random.once_in(6) {
            return Some(possible[self.random.below(possible.len())]);
        }
        let mut best = (0, possible[0]);
        for event in possible {
            let fresh = self.random.next();
            let priority = *self.priorities.entry(event).or_insert(fresh);
            if priority >= best.0 {
                best = (priority, event);
            }
        }
        Some(best.1)
    }

    fn possible(&self) -> Vec<InterpreterEvent> {
        let mut events = Vec::new();
        for rank in 0..self.schedules.len() as Rank {
            for operation in 0..OPERATIONS {
                let former = operation == 0 || self.entered.contains_key(&(rank, operation - 1));
                if !self.entered.contains_key(&(rank, operation)) {
                    events.extend(former.then_some(InterpreterEvent::Enter { rank, operation }));
                } else if !self.left.contains_key(&(rank, operation)) {
                    let ended = |tile| {
                        self.tiles[&InterpretedTile {
                            rank,
                            operation,
                            tile,
                        }]
                            .ended
                    };
                    let all_ended = (0..TILES).all(ended);
                    events.extend(all_ended.then_some(InterpreterEvent::Leave { rank, operation }));
                }
            }
        }
        for tile in &self.order {
            let progress = &self.tiles[tile];
            if !progress.begun && self.can_begin(*tile) {
                events.push(InterpreterEvent::Begin(*tile));
            } else if progress.begun && !progress.ended && self.can_advance(*tile) {
                events.push(InterpreterEvent::Advance(*tile));
            }
        }
        for ((from, to), wire) in &self.wires {
            if !wire.is_empty() {
                events.push(InterpreterEvent::Deliver {
                    from: *from,
                    to: *to,
                });
            }
        }
        events
    }

    /// A tile begins when its rank has entered, and the former tile with its slot ended: here, and
    /// where it is owed credit. A rank grants credit to those whose puts it reads.
    fn can_begin(&self, tile: InterpretedTile) -> bool {
        let Some(former) = former(tile) else {
            return self.entered.contains_key(&(tile.rank, tile.operation));
        };
        let ended = |rank| self.tiles[&InterpretedTile { rank, ..former }].ended;
        let owed = |rank: &Rank| writes_receive(&self.schedules[tile.rank as usize], *rank);
        let granted =
            |rank: Rank| reads_receive(&self.schedules[rank as usize], tile.rank) && ended(rank);
        let ranks = 0..self.schedules.len() as Rank;
        self.entered.contains_key(&(tile.rank, tile.operation))
            && ended(tile.rank)
            && ranks.filter(owed).all(granted)
    }

    fn can_advance(&self, tile: InterpretedTile) -> bool {
        let progress = &self.tiles[&tile];
        let Some(step) = self.schedules[tile.rank as usize].steps.get(progress.next) else {
            return true;
        };
        match step {
            Step::Wait { from, id } => {
                let awaited = (tile.operation, tile.tile, id + 1);
                let flag = self.flags.get(&(tile.rank, tile.tile % SLOTS, *from));
                flag.is_some_and(|flag| *flag >= awaited)
            }
            Step::Signal { .. } => true,
            Step::Copy { claim, .. } | Step::Reduce { claim, .. } => {
                let Some(claim) = claim else { return true };
                let is_owner = claim.by.first() == Some(&tile.rank);
                match self.claims.get(&(tile.operation, tile.tile, claim.id)) {
                    Some(ClaimState::By(by)) => *by == tile.rank || !is_owner,
                    Some(ClaimState::Done) | None => true,
                }
            }
        }
    }

    fn happen(&mut self, event: InterpreterEvent) -> Result<(), Impossible> {
        match event {
            InterpreterEvent::Enter { rank, operation } => {
                self.entered.insert((rank, operation), true);
                for tile in 0..TILES {
                    self.machine.enter(InterpretedTile {
                        rank,
                        operation,
                        tile,
                    });
                }
                Ok(())
            }
            InterpreterEvent::Leave { rank, operation } => {
                let everybody = 0..self.schedules.len() as Rank;
                let absent = |other: &Rank| !self.entered.contains_key(&(*other, operation));
                if let Some(other) = everybody.clone().find(absent) {
                    self.left_early
                        .get_or_insert(format!("rank {rank} left before {other} entered"));
                }
                let leave = |tile| {
                    self.machine.leave(InterpretedTile {
                        rank,
                        operation,
                        tile,
                    })
                };
                let left = (0..TILES).map(leave).collect();
                self.left.insert((rank, operation), left);
                Ok(())
            }
            InterpreterEvent::Begin(tile) => {
                self.tiles.get_mut(&tile).unwrap().begun = true;
                Ok(())
            }
            InterpreterEvent::Advance(tile) => self.advance(tile),
            InterpreterEvent::Deliver { from, to } => self.deliver(from, to),
        }
    }

    fn advance(&mut self, tile: InterpretedTile) -> Result<(), Impossible> {
        let schedules = self.schedules;
        let next = self.tiles[&tile].next;
        match schedules[tile.rank as usize].steps.get(next) {
            None => self.tiles.get_mut(&tile).unwrap().ended = true,
            Some(Step::Wait { .. }) => self.pass(tile),
            Some(Step::Signal { to, id }) => {
                self.signal(tile, *to, *id)?;
                self.pass(tile);
            }
            Some(step @ (Step::Copy { claim, .. } | Step::Reduce { claim, .. })) => {
                if claim.as_ref().is_some_and(|claim| !self.claim(tile, claim)) {
                    self.pass(tile);
                } else {
                    self.execute(tile, step)?;
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, tile: InterpretedTile) {
        let progress = self.tiles.get_mut(&tile).unwrap();
        progress.next += 1;
        progress.halfway = None;
    }

    /// Whether this rank executes the step.
    fn claim(&mut self, tile: InterpretedTile, claim: &Claim) -> bool {
        let key = (tile.operation, tile.tile, claim.id);
        *self.claims.entry(key).or_insert(ClaimState::By(tile.rank)) == ClaimState::By(tile.rank)
    }

    fn signal(&mut self, tile: InterpretedTile, to: Rank, id: u32) -> Result<(), Impossible> {
        if to as usize >= self.schedules.len() {
            return Err(Impossible(format!("there is no rank {to}")));
        }
        let receiver = InterpretedTile { rank: to, ..tile };
        let parcel = Parcel::Signal {
            to: receiver,
            from: tile.rank,
            id,
        };
        self.wires
            .entry((tile.rank, to))
            .or_default()
            .push_back(parcel);
        if self.machine.mapped(tile.rank, to) != Mapped::None {
            self.flush(tile.rank, to)?;
        }
        Ok(())
    }

    /// The first or the second moment of a copy or reduction.
    fn execute(&mut self, tile: InterpretedTile, step: &Step) -> Result<(), Impossible> {
        let (dsts, srcs, claim) = match step {
            Step::Copy { dsts, src, claim } => (dsts, std::slice::from_ref(src), claim),
            Step::Reduce {
                dsts, srcs, claim, ..
            } => (dsts, srcs.as_slice(), claim),
            Step::Signal { .. } | Step::Wait { .. } => return Ok(()),
        };
        let Some(early) = self.tiles.get_mut(&tile).unwrap().halfway.take() else {
            let early = if self.random.once_in(2) {
                Some(self.read(tile, srcs)?)
            } else {
                None
            };
            if early.is_some() {
                for dst in dsts {
                    if self.machine.stores(tile.rank, dst) {
                        self.machine.write(tile, dst, None)?;
                    }
                }
            }
            self.tiles.get_mut(&tile).unwrap().halfway = Some(early);
            return Ok(());
        };
        let contents = match early {
            Some(contents) => contents,
            None => self.read(tile, srcs)?,
        };
        for dst in dsts {
            let result = compute(step, dst, &contents)?;
            self.store(tile, step, dst, result)?;
        }
        if let Some(claim) = claim {
            self.claims
                .insert((tile.operation, tile.tile, claim.id), ClaimState::Done);
        }
        self.pass(tile);
        Ok(())
    }

    fn read(
        &self,
        tile: InterpretedTile,
        srcs: &[Slice],
    ) -> Result<Vec<Vec<CellValue>>, Impossible> {
        srcs.iter()
            .map(|src| self.machine.read(tile, src))
            .collect()
    }

    fn store(
        &mut self,
        by: InterpretedTile,
        step: &Step,
        dst: &Slice,
        contents: Vec<CellValue>,
    ) -> Result<(), Impossible> {
        if self.machine.bounds(dst.chunks.clone()).len() != contents.len() {
            return Err(Impossible(format!("{dst} has another size")));
        }
        if self.machine.stores(by.rank, dst) {
            return self.machine.write(by, dst, Some(&contents));
        }
        let is_put = matches!(step, Step::Copy { .. })
            && matches!(dst.buffer, Buffer::Receive { from, .. } if from == by.rank);
        if !is_put {
            return Err(Impossible(format!("no put reaches {dst}")));
        }
        let wire = self.wires.entry((by.rank, dst.rank)).or_default();
        wire.push_back(Parcel::Poison {
            by,
            dst: dst.clone(),
        });
        wire.push_back(Parcel::Data {
            by,
            dst: dst.clone(),
            contents,
        });
        Ok(())
    }

    fn deliver(&mut self, from: Rank, to: Rank) -> Result<(), Impossible> {
        match self
            .wires
            .get_mut(&(from, to))
            .unwrap()
            .pop_front()
            .unwrap()
        {
            Parcel::Poison { by, dst } => self.machine.write(by, &dst, None),
            Parcel::Data { by, dst, contents } => self.machine.write(by, &dst, Some(&contents)),
            Parcel::Signal { to, from, id } => {
                let word = (to.rank, to.tile % SLOTS, from);
                self.flags.insert(word, (to.operation, to.tile, id + 1));
                Ok(())
            }
        }
    }

    fn flush(&mut self, from: Rank, to: Rank) -> Result<(), Impossible> {
        while !self.wires[&(from, to)].is_empty() {
            self.deliver(from, to)?;
        }
        Ok(())
    }

    /// Checks, when no event is left, that every rank has left every operation with the right
    /// results.
    fn check(&self) -> Result<(), String> {
        if let Some(tile) = self.order.iter().find(|tile| !self.tiles[tile].ended) {
            return Err(format!("{tile:?} hangs at step {}", self.tiles[tile].next));
        }
        if self.schedules[0].collective == Collective::Barrier {
            return self.left_early.clone().map_or(Ok(()), Err);
        }
        for operation in 0..OPERATIONS {
            for tile in 0..TILES {
                self.check_tile(operation, tile)?;
            }
        }
        Ok(())
    }

    fn check_tile(&self, operation: u32, tile: u32) -> Result<(), String> {
        let collective = self.schedules[0].collective;
        let ranks = self.schedules.len() as Rank;
        let of = |rank| InterpretedTile {
            rank,
            operation,
            tile,
        };
        let given: Vec<Vec<CellValue>> = (0..ranks)
            .map(|rank| self.machine.contribution(of(rank)))
            .collect();
        let mut seen: HashMap<usize, u64> = HashMap::new();
        for rank in 0..ranks {
            let (input, output) = &self.left[&(rank, operation)][tile as usize];
            if *input != given[rank as usize] {
                return Err(format!("the input of rank {rank} changed"));
            }
            for (index, cell) in output.iter().enumerate() {
                let Some(expected) = expected(collective, &given, rank, index) else {
                    continue;
                };
                let wrong = || format!("{:?} has a wrong element {index}", of(rank));
                let element = cell.ok_or_else(wrong)?;
                if element.sum != expected {
                    return Err(wrong());
                }
                let same = collective == Collective::AllToAll
                    || matches!(collective, Collective::Reduce { root } if root != rank)
                    || *seen.entry(index).or_insert(element.bits) == element.bits;
                if !same {
                    return Err(format!("{:?} has other bits in element {index}", of(rank)));
                }
            }
        }
        Ok(())
    }
}
