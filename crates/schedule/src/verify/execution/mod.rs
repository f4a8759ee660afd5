//! Symbolic execution of all programs, once per tile, in an order that the signals and the reuse of
//! slots allow.

use std::collections::{BTreeSet, HashMap};

use super::claims;
use super::compute;
use super::lane::Clock;
use super::location::ClaimExecutors;
use super::location::TileRun;
use super::memory::{Access, ChunkProblem, MemoryPart, VerifierMemory};
use super::value::{ValueId, Values};
use super::verification::Verification;
use super::{Problem, StepLocation, Traffic, VerifyError};
use crate::ir::{Buffer, Rank, SignalId, Step};

/// The state after all programs have ended.
pub(super) struct Ended {
    /// The longest chain of signals in one tile.
    pub(super) latency_steps: u32,
    /// By rank, for one tile.
    pub(super) sent: Vec<Traffic>,
    /// By rank, for one tile.
    pub(super) read: Vec<Traffic>,
    pub(super) runs: Vec<EndedRun>,
}

/// One rank's end of a tile.
pub(super) struct EndedRun {
    pub(super) run: TileRun,
    pub(super) clock: Clock,
    /// The content of the rank's `Output`, chunk by chunk.
    pub(super) output: Vec<Option<ValueId>>,
}

/// Plays all programs, with claimable steps executed by the ranks in `choice`.
///
/// `None` when that choice cannot happen: a helper that only gets to a step after its owner passed
/// it.
pub(super) fn execute(
    verification: &Verification<'_>,
    choice: &ClaimExecutors,
    values: &mut Values,
) -> Result<Option<Ended>, VerifyError> {
    SymbolicExecution::new(verification, choice, values).run()
}

/// A run's progress.
struct RunState {
    run: TileRun,
    /// The runs whose end it still has to wait for before it begins.
    begins_after: Vec<TileRun>,
    /// The next step.
    next: usize,
    clock: Clock,
    /// By rank: how many of the steps of its run of this tile happened before, counting only its
    /// own signals to this rank.
    direct: Vec<u32>,
    /// Signals in the longest chain up to here, within the tile.
    depth: u32,
    blocked: Option<AwaitedEvent>,
    ended: bool,
}

/// An event that a run can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum AwaitedEvent {
    Signal {
        from: Rank,
        to: TileRun,
        id: SignalId,
    },
    Claimed {
        id: u32,
        by: Rank,
        owner: TileRun,
    },
    End(TileRun),
}

/// The knowledge that a waiting run receives with an event.
struct Happened {
    clock: Clock,
    step: u32,
    depth: u32,
}

struct SymbolicExecution<'a, 'b> {
    verification: &'a Verification<'a>,
    choice: &'a ClaimExecutors,
    values: &'b mut Values,
    states: Vec<RunState>,
    memory: VerifierMemory<'a>,
    happened: HashMap<AwaitedEvent, Happened>,
    /// By sender, receiver and slot: the last setter of the flag word.
    flags: HashMap<(Rank, Rank, u32), StepLocation>,
    /// Positions of runs that can continue. The lowest tile runs first, so that the later one is
    /// reported as interfering.
    ready: BTreeSet<usize>,
    sent: Vec<Traffic>,
    read: Vec<Traffic>,
}

impl<'a, 'b> SymbolicExecution<'a, 'b> {
    fn new(
        verification: &'a Verification<'a>,
        choice: &'a ClaimExecutors,
        values: &'b mut Values,
    ) -> Self {
        let ranks = verification.shape.ranks as usize;
        let state = |run: TileRun| RunState {
            run,
            begins_after: verification.lane.begins_after(run),
            next: 0,
            clock: Clock::new(&verification.lane, run),
            direct: vec![0; ranks],
            depth: 0,
            blocked: None,
            ended: false,
        };
        let states: Vec<RunState> = verification.lane.runs().map(state).collect();
        SymbolicExecution {
            verification,
            choice,
            values,
            memory: VerifierMemory::new(verification),
            happened: HashMap::new(),
            flags: HashMap::new(),
            ready: (0..states.len()).collect(),
            states,
            sent: vec![Traffic::default(); ranks],
            read: vec![Traffic::default(); ranks],
        }
    }

    fn run(mut self) -> Result<Option<Ended>, VerifyError> {
        while let Some(index) = self.ready.pop_first() {
            self.advance(index)?;
        }
        match self.states.iter().find(|state| !state.ended) {
            Some(state) => self.stuck(state.run).map_or(Ok(None), Err),
            None => self.end().map(Some),
        }
    }

    /// Plays a run until it has to wait, or has ended.
    fn advance(&mut self, index: usize) -> Result<(), VerifyError> {
        if !self.begin(index) {
            return Ok(());
        }
        let TileRun { rank, tile } = self.states[index].run;
        let schedule = &self.verification.schedules[rank as usize];
        while let Some(step) = schedule.steps.get(self.states[index].next) {
            let state = &mut self.states[index];
            let next = state.next;
            state.clock.note(state.place());
            let passed = self.pass(index, step).map_err(|(chunk, problem)| {
                let error = VerifyError::at(schedule, next, problem).tile(tile);
                chunk.map_or(error.clone(), |chunk| error.chunk(chunk))
            })?;
            if !passed {
                return Ok(());
            }
            self.states[index].next += 1;
        }
        self.states[index].ended = true;
        let ended = AwaitedEvent::End(self.states[index].run);
        for follower in self.verification.lane.followers(self.states[index].run) {
            self.wake(follower, ended);
        }
        Ok(())
    }

    /// Waits for the ends of the runs that had the slot before. False when there is one to wait for
    /// still.
    fn begin(&mut self, index: usize) -> bool {
        while let Some(former) = self.states[index].begins_after.last().copied() {
            let before = &self.states[self.verification.lane.index(former)];
            if !before.ended {
                self.states[index].blocked = Some(AwaitedEvent::End(former));
                return false;
            }
            let known = before.clock.clone();
            self.states[index].clock.join(&known);
            self.states[index].begins_after.pop();
        }
        true
    }

    /// Plays a step. False when it has to wait.
    fn pass(&mut self, index: usize, step: &Step) -> Result<bool, (Option<u32>, Problem)> {
        let TileRun { rank, tile } = self.states[index].run;
        let run = |rank| TileRun { rank, tile };
        match step {
            Step::Signal { to, id } => {
                self.set_flag(index, *to)
                    .map_err(|problem| (None, problem))?;
                let (from, to, id) = (rank, run(*to), *id);
                self.notify(index, to, AwaitedEvent::Signal { from, to, id });
                return Ok(true);
            }
            Step::Wait { from, id } => {
                let (from, to, id) = (*from, run(rank), *id);
                return Ok(self.learn(index, from, AwaitedEvent::Signal { from, to, id }));
            }
            Step::Copy { .. } | Step::Reduce { .. } => (),
        }
        if let Some(claim) = claims::of(step) {
            let (id, by, owner) = (claim.id, self.choice[&claim.id], run(claim.by[0]));
            let event = AwaitedEvent::Claimed { id, by, owner };
            if rank != by {
                return Ok(rank != owner.rank || self.learn(index, by, event));
            }
            self.execute(index, step)
                .map_err(|(chunk, problem)| (Some(chunk), problem))?;
            if by != owner.rank {
                self.notify(index, owner, event);
            }
            return Ok(true);
        }
        self.execute(index, step)
            .map_err(|(chunk, problem)| (Some(chunk), problem))?;
        Ok(true)
    }

    /// Sets the flag word that reports a signal to `to`. Tiles with the same slot share it, and it
    /// must only grow.
    fn set_flag(&mut self, index: usize, to: Rank) -> Result<(), Problem> {
        let state = &self.states[index];
        let TileRun { rank, tile } = state.run;
        let word = (rank, to, self.verification.lane.slot(tile));
        match self.flags.insert(word, state.place()) {
            Some(other) if !state.clock.knows(other) => Err(Problem::FlagReused { other }),
            _ => Ok(()),
        }
    }

    /// Passes a run's knowledge to `to`.
    fn notify(&mut self, index: usize, to: TileRun, event: AwaitedEvent) {
        let state = &self.states[index];
        let happened = Happened {
            clock: state.clock.clone(),
            step: state.next as u32,
            depth: state.depth,
        };
        self.happened.insert(event, happened);
        self.wake(to, event);
    }

    /// Resumes the run that waits for this.
    fn wake(&mut self, run: TileRun, event: AwaitedEvent) {
        let index = self.verification.lane.index(run);
        let state = &mut self.states[index];
        if state.blocked == Some(event) {
            state.blocked = None;
            self.ready.insert(index);
        }
    }

    /// Merges the knowledge that came with an event of `from` into a run's. False if the event has
    /// not happened.
    fn learn(&mut self, index: usize, from: Rank, event: AwaitedEvent) -> bool {
        let state = &mut self.states[index];
        let Some(happened) = self.happened.remove(&event) else {
            state.blocked = Some(event);
            return false;
        };
        state.clock.join(&happened.clock);
        let is_signal = matches!(event, AwaitedEvent::Signal { .. });
        if is_signal {
            let direct = &mut state.direct[from as usize];
            *direct = (*direct).max(happened.step + 1);
        }
        state.depth = state.depth.max(happened.depth + u32::from(is_signal));
        true
    }

    fn execute(&mut self, index: usize, step: &Step) -> Result<(), ChunkProblem> {
        let (dsts, srcs) = match step {
            Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src)),
            Step::Reduce { dsts, srcs, .. } => (dsts, srcs.as_slice()),
            Step::Signal { .. } | Step::Wait { .. } => return Ok(()),
        };
        let state = &self.states[index];
        let TileRun { rank, tile } = state.run;
        let counts = tile == 0;
        let access = Access {
            place: state.place(),
            clock: &state.clock,
            direct: &state.direct,
        };
        let mut contents = Vec::with_capacity(srcs.len());
        for src in srcs {
            contents.push(self.memory.read(&access, src, self.values)?);
            if src.rank != rank && counts {
                self.read[rank as usize].count(src.encoding, src.chunks.clone());
            }
        }
        for dst in dsts {
            let result = compute::result(self.values, step, dst, &contents)?;
            compute::check_sizes_known(self.verification, self.values, rank, dst, &result)?;
            self.memory.write(&access, dst, &result, self.values)?;
            if dst.rank != rank && counts {
                self.sent[rank as usize].count(dst.encoding, dst.chunks.clone());
            }
        }
        Ok(())
    }

    /// The deadlock that `run` is part of, or waits for. `None` when only a choice of claimants
    /// that cannot happen is to blame.
    fn stuck(&self, run: TileRun) -> Option<VerifyError> {
        let impossible =
            |state: &RunState| matches!(state.blocked, Some(AwaitedEvent::Claimed { .. }));
        if self.states.iter().any(impossible) {
            return None;
        }
        let state = |run: TileRun| &self.states[self.verification.lane.index(run)];
        let mut path = vec![run];
        loop {
            let next = match state(path[path.len() - 1]).blocked? {
                AwaitedEvent::Signal { from, to, .. } => TileRun { rank: from, ..to },
                AwaitedEvent::End(former) => former,
                AwaitedEvent::Claimed { .. } => return None,
            };
            if let Some(start) = path.iter().position(|seen| *seen == next) {
                path.drain(..start);
                break;
            }
            path.push(next);
        }
        let cycle: Vec<StepLocation> = path.iter().map(|run| state(*run).place()).collect();
        let StepLocation { rank, tile, step } = cycle[0];
        let schedule = &self.verification.schedules[rank as usize];
        let problem = Problem::Deadlock { cycle };
        Some(VerifyError::at(schedule, step as usize, problem).tile(tile))
    }

    fn end(mut self) -> Result<Ended, VerifyError> {
        let states = std::mem::take(&mut self.states);
        let first = states.iter().filter(|state| state.run.tile == 0);
        let latency_steps = first.map(|state| state.depth).max().unwrap_or(0);
        let ends: Vec<(TileRun, Clock)> = states.into_iter().map(|s| (s.run, s.clock)).collect();
        self.check_late_access(&ends)?;
        let shape = &self.verification.shape;
        let mut runs = Vec::with_capacity(ends.len());
        for (run, clock) in ends {
            let held = shape.held(run.rank, Buffer::Output);
            let value = |chunk| self.memory.output(run, chunk, self.values);
            let output = held.map(value).collect();
            runs.push(EndedRun { run, clock, output });
        }
        Ok(Ended {
            latency_steps,
            sent: self.sent,
            read: self.read,
            runs,
        })
    }

    /// Checks that no rank touches a rank's memory after its end of the tile.
    fn check_late_access(&self, ends: &[(TileRun, Clock)]) -> Result<(), VerifyError> {
        let knows = |run, place| ends[self.verification.lane.index(run)].1.knows(place);
        let Some((key, chunk, place)) = self.memory.late_access(&knows) else {
            return Ok(());
        };
        let store = match key.store {
            MemoryPart::Input => "input".to_owned(),
            MemoryPart::Output => "output".to_owned(),
            MemoryPart::Scratch { entry } => format!("scratch({entry})"),
            MemoryPart::Receive { entry, from } => format!("receive({from}:{entry})"),
        };
        let buffer = format!("{}.{store}", key.rank);
        let schedule = &self.verification.schedules[place.rank as usize];
        let problem = Problem::AfterExit { buffer };
        let error = VerifyError::at(schedule, place.step as usize, problem);
        Err(error.tile(place.tile).chunk(chunk))
    }
}

impl RunState {
    /// Where it is.
    fn place(&self) -> StepLocation {
        StepLocation {
            rank: self.run.rank,
            tile: self.run.tile,
            step: self.next as u32,
        }
    }
}

#[cfg(test)]
mod tests;
