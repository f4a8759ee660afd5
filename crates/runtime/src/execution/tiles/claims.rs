//! Claimable steps: work of a rank that is behind, executed by other ranks of its host.
//!
//! [Note: Helping] The owner of a claimable step opens the step's word when it starts a tile, and
//! claims the step like any other rank when it reaches it. A helper considers such steps at their
//! place in its program, but only while it would otherwise wait after them and no other operation
//! can advance. So it never delays a signal that another rank waits for. It reports only to the
//! owner that a step is done; other ranks learn it by the later signals of the owner's program. The
//! verifier has executed this with every claimant, so a helper uses only memory of ranks that have
//! entered and cannot leave yet.
//!
//! If a helper's process ends during a step, its links report that as for any process: the owner,
//! which waits for the helper, fails with the group.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_channel::{Connections, Place};
use weft_program::{Instruction, LocalStep, Program};
use weft_schedule::Rank;
use weft_transport::claim::{self, Claimed};
use weft_transport::{Segment, Signal};

use super::super::budget::Budget;
use super::super::interpret::{Advance, Blocked, Driver, GroupFailure, execute};
use super::super::operation::Operation;
use super::driver::TileDriver;

/// Opens the claimable steps of a tile that starts.
pub(super) fn open(
    connections: &Connections,
    lane: usize,
    g: u64,
    program: &Program,
    pool: &Segment,
) {
    let layout = connections.layout;
    for id in &program.claims {
        let place = layout.claim(lane, layout.slot_of(g), *id);
        claim::open(pool.word(connections.scratch(place)), g);
    }
}

/// Executes a step for a rank that is behind, if the operation has one that may be taken over.
pub(crate) fn help(
    operation: &mut Operation,
    connections: &Connections,
    pool: &Segment,
    budget: &mut Budget,
) -> Result<bool, GroupFailure> {
    let Some(mut running) = operation.running.take() else {
        return Ok(false);
    };
    let mut tiles = std::mem::take(&mut running.tiles);
    let mut result = Ok(false);
    // In reverse order, since the owner begins with the first.
    for tile in tiles.iter_mut().rev().filter(|tile| !tile.done) {
        let mut driver = TileDriver::new(operation, &running, connections, pool, budget, tile);
        result = driver.help();
        if !matches!(result, Ok(false)) {
            break;
        }
    }
    running.tiles = tiles;
    operation.running = Some(running);
    result
}

impl TileDriver<'_> {
    /// Executes a step of this rank, unless a helper has claimed it.
    pub(super) fn own(&mut self, id: u32, step: LocalStep) -> Advance {
        let (rank, g) = (self.connections.rank, self.tile.g);
        let word = self.pool.word(self.connections.scratch(self.claim(id)));
        if let Some(blocked) = self.before_local(step)? {
            return Ok(Some(blocked));
        }
        if claim::take(word, g, rank) {
            let frame = self.frame();
            execute(self, frame, step);
            word.store(claim::done_value(g, rank), Ordering::Release);
            return Ok(None);
        }
        match claim::look(word, g) {
            Claimed::Done => Ok(None),
            Claimed::By(by) if by < self.connections.size() => {
                self.unless_left(Some(Blocked::Claimed { by }))
            }
            odd => Err(GroupFailure::internal(&format!(
                "the owner's claim word is {odd:?}"
            ))),
        }
    }

    /// Returns what blocks a tile at steps that it may help with: the signals that it would wait
    /// for after them, as long as any step is unclaimed.
    pub(super) fn before_help(&self, at: usize) -> Advance {
        let mut rest = self.running.plan.program.instructions[at..].iter();
        let mut left = false;
        let after = rest
            .by_ref()
            .find(|instruction| match self.helpable(instruction) {
                Some((owner, claim, _)) => {
                    left |= self.may_be_left(owner, claim);
                    false
                }
                None => true,
            });
        if !left {
            return Ok(None);
        }
        let waits = after.into_iter().chain(rest).map_while(|i| match i {
            Instruction::Wait { from, id } => Some((*from, *id)),
            _ => None,
        });
        let mut awaited = waits.filter_map(|(from, id)| self.awaits(from, id));
        self.unless_left(awaited.next())
    }

    /// A step of another rank that this one may execute: the owner, the claim, and the step.
    fn helpable(&self, instruction: &Instruction) -> Option<(Rank, u32, LocalStep)> {
        match instruction {
            Instruction::Claimable { claim, owner, step } if *owner != self.connections.rank => {
                Some((*owner, *claim, *step))
            }
            _ => None,
        }
    }

    /// Executes one of the steps that the tile may help with now. Begins with the last, as the
    /// owner begins with the first.
    fn help(&mut self) -> Result<bool, GroupFailure> {
        let (rank, g, frame) = (self.connections.rank, self.tile.g, self.frame());
        let rest = frame.program.instructions[self.tile.next..].iter();
        let steps = rest.take_while(|instruction| self.helpable(instruction).is_some());
        let end = self.tile.next + steps.count();
        for at in (self.tile.next..end).rev() {
            let Some((owner, claim, step)) = self.helpable(&frame.program.instructions[at]) else {
                continue;
            };
            if self.before_local(step)?.is_some() {
                continue;
            }
            let word = self.remote_claim(owner, claim);
            if word.is_some_and(|word| claim::take(word, g, rank)) {
                execute(self, frame, step);
                self.notify_owner(owner, claim)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn notify_owner(&self, owner: Rank, id: u32) -> Result<(), GroupFailure> {
        let (link, remote) = self.link(owner)?;
        let done = Signal {
            offset: remote.scratch(self.claim(id)),
            value: claim::done_value(self.tile.g, self.connections.rank),
        };
        link.signal(done)
            .map_err(|error| GroupFailure::Link(owner, error))
    }

    fn may_be_left(&self, owner: Rank, id: u32) -> bool {
        let word = self.remote_claim(owner, id);
        word.is_some_and(|word| matches!(claim::look(word, self.tile.g), Claimed::Open))
    }

    /// A claim's word in the pool of its owner.
    fn remote_claim(&self, owner: Rank, id: u32) -> Option<&AtomicU64> {
        let remote = self.connections.remote(owner)?;
        let pool = remote.pool.as_ref()?;
        pool.checked_word(remote.scratch(self.claim(id)))
    }

    /// The place of a claim's word in its owner's scratch memory.
    fn claim(&self, id: u32) -> Place {
        let layout = self.connections.layout;
        layout.claim(self.lane, layout.slot_of(self.tile.g), id)
    }
}
