//! Plays all programs once, in an order that the signals allow.

use std::collections::HashMap;

use super::claims::{self, Choice};
use super::memory::{Access, ChunkProblem, Memory, Store};
use super::value::{Uncombinable, ValueId, Values};
use super::{Place, Problem, Team, Traffic, ValueProblem, VerifyError};
use crate::ir::{Buffer, Collective, Rank, SignalId, Slice, Step};

/// What is there when all programs have ended.
pub(super) struct Ended {
    pub(super) latency_steps: u32,
    pub(super) sent: Vec<Traffic>,
    pub(super) read: Vec<Traffic>,
    /// By rank: its clock at its end.
    pub(super) clocks: Vec<Vec<u32>>,
    /// By rank: what it has in its `Output`, chunk by chunk.
    pub(super) outputs: Vec<Vec<Option<ValueId>>>,
}

/// Plays all programs, with claimable steps executed by the ranks in `choice`.
///
/// `None` when that choice cannot happen: a helper that only gets to a step after its owner passed it.
pub(super) fn play(
    team: &Team<'_>,
    choice: &Choice,
    values: &mut Values,
) -> Result<Option<Ended>, VerifyError> {
    let mut player = Player::new(team, choice, values);
    while let Some(rank) = player.ready.pop() {
        player.run(rank)?;
    }
    if let Some(stuck) = player
        .players
        .iter()
        .position(|state| state.blocked.is_some())
    {
        return player.stuck(stuck as Rank).map_or(Ok(None), Err);
    }
    player.end().map(Some)
}

/// One rank's progress.
struct State {
    /// The next step.
    next: usize,
    /// By rank: how many of its steps happened before this rank's next one, plus one when it has entered.
    clock: Vec<u32>,
    /// By rank: as `clock`, but counting only its own signals to this rank.
    direct: Vec<u32>,
    /// Signals in the longest chain up to here.
    depth: u32,
    blocked: Option<Event>,
}

/// What a rank can wait for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Event {
    Signal { from: Rank, to: Rank, id: SignalId },
    Claimed { id: u32, by: Rank, owner: Rank },
}

/// What the one who waits learns.
struct Happened {
    clock: Vec<u32>,
    step: u32,
    depth: u32,
}

struct Player<'a, 'b> {
    team: &'a Team<'a>,
    choice: &'a Choice,
    values: &'b mut Values,
    players: Vec<State>,
    memory: Memory<'a>,
    happened: HashMap<Event, Happened>,
    ready: Vec<Rank>,
    sent: Vec<Traffic>,
    read: Vec<Traffic>,
}

impl<'a, 'b> Player<'a, 'b> {
    fn new(team: &'a Team<'a>, choice: &'a Choice, values: &'b mut Values) -> Self {
        let ranks = team.shape.ranks as usize;
        let state = |rank: usize| {
            let mut clock = vec![0; ranks];
            clock[rank] = 1;
            State {
                next: 0,
                clock,
                direct: vec![0; ranks],
                depth: 0,
                blocked: None,
            }
        };
        Player {
            team,
            choice,
            values,
            players: (0..ranks).map(state).collect(),
            memory: Memory::new(team),
            happened: HashMap::new(),
            ready: (0..team.shape.ranks).rev().collect(),
            sent: vec![Traffic::default(); ranks],
            read: vec![Traffic::default(); ranks],
        }
    }

    /// Plays a rank until it has to wait, or has ended.
    fn run(&mut self, rank: Rank) -> Result<(), VerifyError> {
        let team = self.team;
        let schedule = &team.schedules[rank as usize];
        while let Some(step) = schedule.steps.get(self.players[rank as usize].next) {
            let index = self.players[rank as usize].next;
            self.players[rank as usize].clock[rank as usize] = index as u32 + 1;
            let passed = self.pass(rank, step).map_err(|(chunk, problem)| {
                let error = VerifyError::at(schedule, index, problem);
                chunk.map_or(error.clone(), |chunk| error.chunk(chunk))
            })?;
            if !passed {
                return Ok(());
            }
            self.players[rank as usize].next += 1;
        }
        Ok(())
    }

    /// Plays a step. False when it has to wait.
    fn pass(&mut self, rank: Rank, step: &Step) -> Result<bool, (Option<u32>, Problem)> {
        match step {
            Step::Signal { to, id } => {
                let (from, to, id) = (rank, *to, *id);
                self.tell(rank, to, Event::Signal { from, to, id });
                return Ok(true);
            }
            Step::Wait { from, id } => {
                let (from, to, id) = (*from, rank, *id);
                return Ok(self.learn(rank, from, Event::Signal { from, to, id }));
            }
            Step::Copy { .. } | Step::Reduce { .. } => (),
        }
        if let Some(claim) = claims::of(step) {
            let (owner, by) = (claim.by[0], self.choice[&claim.id]);
            let event = Event::Claimed {
                id: claim.id,
                by,
                owner,
            };
            if rank != by {
                return Ok(rank != owner || self.learn(rank, by, event));
            }
            self.execute(rank, step)
                .map_err(|(chunk, problem)| (Some(chunk), problem))?;
            if by != owner {
                self.tell(rank, owner, event);
            }
            return Ok(true);
        }
        self.execute(rank, step)
            .map_err(|(chunk, problem)| (Some(chunk), problem))?;
        Ok(true)
    }

    /// Lets `to` know what `rank` knows.
    fn tell(&mut self, rank: Rank, to: Rank, event: Event) {
        let state = &self.players[rank as usize];
        let happened = Happened {
            clock: state.clock.clone(),
            step: state.next as u32,
            depth: state.depth,
        };
        self.happened.insert(event, happened);
        let waiter = &mut self.players[to as usize];
        if waiter.blocked == Some(event) {
            waiter.blocked = None;
            self.ready.push(to);
        }
    }

    /// Lets `rank` know what `from` told it. False when that has not happened.
    fn learn(&mut self, rank: Rank, from: Rank, event: Event) -> bool {
        let state = &mut self.players[rank as usize];
        let Some(happened) = self.happened.remove(&event) else {
            state.blocked = Some(event);
            return false;
        };
        for (known, new) in state.clock.iter_mut().zip(&happened.clock) {
            *known = (*known).max(*new);
        }
        let is_signal = matches!(event, Event::Signal { .. });
        if is_signal {
            let direct = &mut state.direct[from as usize];
            *direct = (*direct).max(happened.step + 1);
        }
        state.depth = state.depth.max(happened.depth + u32::from(is_signal));
        true
    }

    fn execute(&mut self, rank: Rank, step: &Step) -> Result<(), ChunkProblem> {
        let (dsts, srcs) = match step {
            Step::Copy { dsts, src, .. } => (dsts, std::slice::from_ref(src)),
            Step::Reduce { dsts, srcs, .. } => (dsts, srcs.as_slice()),
            Step::Signal { .. } | Step::Wait { .. } => return Ok(()),
        };
        let state = &self.players[rank as usize];
        let access = Access {
            place: Place {
                rank,
                step: state.next as u32,
            },
            clock: &state.clock,
            direct: &state.direct,
        };
        let mut contents = Vec::with_capacity(srcs.len());
        for src in srcs {
            contents.push(self.memory.read(&access, src, self.values)?);
            if src.rank != rank {
                self.read[rank as usize].count(src.encoding, src.chunks.clone());
            }
        }
        for dst in dsts {
            let result = match step {
                Step::Reduce { last, .. } => combine(self.values, dst, srcs, &contents, *last)?,
                _ => convert(self.values, dst, &contents[0]),
            };
            check_sizes_known(self.team, self.values, rank, dst, &result)?;
            self.memory.write(&access, dst, &result, self.values)?;
            if dst.rank != rank {
                self.sent[rank as usize].count(dst.encoding, dst.chunks.clone());
            }
        }
        Ok(())
    }

    /// The deadlock that `rank` is part of, or waits for. `None` when only a choice of claimants that cannot happen is to blame.
    fn stuck(&self, rank: Rank) -> Option<VerifyError> {
        let waits_for = |rank: Rank| match self.players[rank as usize].blocked {
            Some(Event::Signal { from, .. }) => Some(from),
            Some(Event::Claimed { .. }) | None => None,
        };
        if self
            .players
            .iter()
            .any(|state| matches!(state.blocked, Some(Event::Claimed { .. })))
        {
            return None;
        }
        let mut path = vec![rank];
        loop {
            let next = waits_for(path[path.len() - 1])?;
            if let Some(start) = path.iter().position(|seen| *seen == next) {
                path.drain(..start);
                break;
            }
            path.push(next);
        }
        let place = |rank: &Rank| Place {
            rank: *rank,
            step: self.players[*rank as usize].next as u32,
        };
        let cycle: Vec<Place> = path.iter().map(place).collect();
        let schedule = &self.team.schedules[cycle[0].rank as usize];
        let step = cycle[0].step as usize;
        Some(VerifyError::at(schedule, step, Problem::Deadlock { cycle }))
    }

    fn end(mut self) -> Result<Ended, VerifyError> {
        let states = std::mem::take(&mut self.players);
        let latency_steps = states.iter().map(|state| state.depth).max().unwrap_or(0);
        let clocks: Vec<Vec<u32>> = states.into_iter().map(|state| state.clock).collect();
        if let Some((key, chunk, place)) = self.memory.late_access(&clocks) {
            let store = match key.store {
                Store::Input => "input".to_owned(),
                Store::Output => "output".to_owned(),
                Store::Scratch { entry } => format!("scratch({entry})"),
                Store::Landing { entry, from } => format!("landing({from}:{entry})"),
            };
            let buffer = format!("{}.{store}", key.rank);
            let schedule = &self.team.schedules[place.rank as usize];
            let problem = Problem::AfterExit { buffer };
            return Err(VerifyError::at(schedule, place.step as usize, problem).chunk(chunk));
        }
        let shape = &self.team.shape;
        let mut outputs = Vec::with_capacity(clocks.len());
        for rank in 0..shape.ranks {
            let held = shape.held(rank, Buffer::Output);
            let value = |chunk| self.memory.value(rank, Store::Output, chunk, self.values);
            outputs.push(held.map(value).collect());
        }
        Ok(Ended {
            latency_steps,
            sent: self.sent,
            read: self.read,
            clocks,
            outputs,
        })
    }
}

/// The combination of the sources' contents, chunk by chunk.
fn combine(
    values: &mut Values,
    dst: &Slice,
    srcs: &[Slice],
    contents: &[Vec<ValueId>],
    last: bool,
) -> Result<Vec<ValueId>, ChunkProblem> {
    let mut result = Vec::with_capacity(dst.chunks.len());
    for (index, chunk) in dst.chunks.clone().enumerate() {
        let sources: Vec<ValueId> = contents.iter().map(|content| content[index]).collect();
        let combined = values.combine(&sources, last, dst.encoding).map_err(|why| {
            let problem = match why {
                Uncombinable::AlreadyFinal { source } => ValueProblem::AlreadyFinal {
                    slice: srcs[source].to_string(),
                },
                Uncombinable::Doubled { contributor } => ValueProblem::Doubled { contributor },
                Uncombinable::Missing { contributor } => ValueProblem::Missing { contributor },
            };
            (chunk, problem.into())
        });
        result.push(combined?);
    }
    Ok(result)
}

/// The contents, converted to the encoding of `dst`.
fn convert(values: &mut Values, dst: &Slice, contents: &[ValueId]) -> Vec<ValueId> {
    let converted = contents
        .iter()
        .map(|value| values.encoded(*value, dst.encoding));
    converted.collect()
}

/// Checks that both who writes a block and whose memory it is know its size: in an all-to-all with sizes per pair, only its two ends do.
fn check_sizes_known(
    team: &Team<'_>,
    values: &Values,
    rank: Rank,
    dst: &Slice,
    contents: &[ValueId],
) -> Result<(), ChunkProblem> {
    if !team.shape.sizes_vary || team.shape.collective != Collective::AllToAll {
        return Ok(());
    }
    for (chunk, value) in dst.chunks.clone().zip(contents) {
        let Some((from, to)) = values.origin(*value) else {
            continue;
        };
        for party in [rank, dst.rank] {
            if party != from && party != to {
                return Err((chunk, ValueProblem::UnknownSize { from, to }.into()));
            }
        }
    }
    Ok(())
}
