//! Claimable steps: what ranks of one host take over from one that is behind.
//!
//! [Note: Helping] The owner of a claimable step opens its word when it starts a tile, and takes the step like anybody else when it
//! gets there. A helper looks at such steps where they stand in its program, but only while it would otherwise wait at what
//! follows them, and once nothing else of any operation can go on: so it never keeps anybody waiting for a signal of its own.
//! It tells the owner alone that a step is done; all others learn of it by the signals that follow in the owner's program. That is what the
//! verifier has played, with every claimant, so a helper touches the memory of those only that have entered and cannot leave yet.
//!
//! A helper that dies with a step half done is noticed as any death is, by the links: the owner, which waits for it, fails with the group.

use std::sync::atomic::{AtomicU64, Ordering};

use weft_transport::claim::{self, Claimed};
use weft_transport::{Segment, Signal};

use super::{Blocked, Budget, Run, Trouble};
use crate::Error;
use crate::channel::slot_of;
use crate::group::Group;
use crate::group_state::GroupState;
use crate::operation::Tile;
use crate::plan::{Instruction, Plan, Work};

impl GroupState {
    /// Lets others take over what they may of a tile that starts.
    pub(super) fn open_claims(&self, lane: usize, g: u64, plan: &Plan, pool: &Segment) {
        for id in &plan.claims {
            let offset = self.layout.claim(lane, slot_of(g), *id);
            claim::open(pool.word(self.scratch.offset + offset), g);
        }
    }

    /// Executes one step of a rank that is behind, if the operation has one that may be taken over.
    pub(crate) fn help(
        &mut self,
        sequence: u64,
        pool: &Segment,
        budget: &mut Budget,
    ) -> Result<bool, Trouble> {
        let helped = self.help_with(sequence, pool, budget)?;
        self.steps_helped += u64::from(helped);
        Ok(helped)
    }

    fn help_with(
        &self,
        sequence: u64,
        pool: &Segment,
        budget: &mut Budget,
    ) -> Result<bool, Trouble> {
        let found = self.operations.iter().find(|op| op.sequence == sequence);
        let Some((operation, running)) = found.and_then(|op| Some((op, op.running.as_ref()?)))
        else {
            return Ok(false);
        };
        let mut run = Run {
            group: self,
            call: &operation.call,
            fingerprint: operation.fingerprint,
            running,
            lane: operation.lane(),
            pool,
            budget,
        };
        // The owner begins with the first.
        for tile in running.tiles.iter().rev().filter(|tile| !tile.done) {
            if run.help(tile)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Group {
    /// How many steps of other ranks this rank has executed, as they were behind, since the group was made.
    pub fn steps_helped(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.steps_helped)
        })
    }
}

impl Run<'_> {
    /// Executes a step of this rank's own, unless a helper has taken it.
    pub(super) fn own(
        &mut self,
        id: u32,
        work: &Work,
        tile: &Tile,
    ) -> Result<Option<Blocked>, Trouble> {
        let rank = self.group.rank;
        let word = self
            .pool
            .word(self.group.scratch.offset + self.claim(id, tile));
        if let Some(blocked) = self.before_work(work, tile) {
            return Ok(Some(blocked));
        }
        if claim::take(word, tile.g, rank) {
            self.work(work, tile);
            word.store(claim::done_value(tile.g, rank), Ordering::Release);
            return Ok(None);
        }
        match claim::look(word, tile.g) {
            Claimed::Done => Ok(None),
            Claimed::By(by) if by < self.group.size() => {
                self.unless_left(Some(Blocked::Claimed { by }))
            }
            odd => Err(internal(&format!("a claim is {odd:?} at its owner's"))),
        }
    }

    /// What keeps a tile from going on that has got to steps that it may help with: the signals for which it would wait
    /// behind them, as long as there is anything left to take.
    pub(super) fn before_help(&self, tile: &Tile) -> Result<Option<Blocked>, Trouble> {
        let mut rest = self.running.plan.program[tile.next..].iter();
        let mut left = false;
        let after = rest.by_ref().find(|instruction| match instruction {
            Instruction::Help { claim, owner, .. } => {
                left |= self.may_be_left(*owner, *claim, tile);
                false
            }
            _ => true,
        });
        if !left {
            return Ok(None);
        }
        let waits = after.into_iter().chain(rest).map_while(|i| match i {
            Instruction::Wait { from, id } => Some((*from, *id)),
            _ => None,
        });
        let mut awaited = waits.filter_map(|(from, id)| self.awaits(from, id, tile));
        self.unless_left(awaited.next())
    }

    /// Executes one of the steps that a tile may help with now. The owner begins with the first, so this begins with the last.
    fn help(&mut self, tile: &Tile) -> Result<bool, Trouble> {
        let program = &self.running.plan.program[tile.next..];
        let steps = program
            .iter()
            .take_while(|i| matches!(i, Instruction::Help { .. }));
        let rank = self.group.rank;
        for instruction in steps.collect::<Vec<_>>().into_iter().rev() {
            let Instruction::Help { claim, owner, work } = instruction else {
                continue;
            };
            let taken = self
                .remote_claim(*owner, *claim, tile)
                .is_some_and(|word| claim::take(word, tile.g, rank));
            if taken {
                self.work(work, tile);
                self.tell_owner(*owner, *claim, tile)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn tell_owner(&self, owner: u32, id: u32, tile: &Tile) -> Result<(), Trouble> {
        let (link, remote) = self.link(owner)?;
        let done = Signal {
            offset: remote.scratch + self.claim(id, tile),
            value: claim::done_value(tile.g, self.group.rank),
        };
        link.signal(done)
            .map_err(|error| Trouble::Link(owner, error))
    }

    fn may_be_left(&self, owner: u32, id: u32, tile: &Tile) -> bool {
        self.remote_claim(owner, id, tile)
            .is_some_and(|word| matches!(claim::look(word, tile.g), Claimed::Open))
    }

    /// A claim's word in the pool of its owner.
    fn remote_claim(&self, owner: u32, id: u32, tile: &Tile) -> Option<&AtomicU64> {
        let remote = self.group.channels[owner as usize]
            .as_ref()?
            .remote
            .as_ref()?;
        let pool = remote.pool.as_ref()?;
        pool.checked_word(remote.scratch + self.claim(id, tile))
    }

    /// Where a claim's word lies in its owner's scratch memory.
    fn claim(&self, id: u32, tile: &Tile) -> u64 {
        self.group.layout.claim(self.lane, slot_of(tile.g), id)
    }
}

fn internal(what: &str) -> Trouble {
    Trouble::Other(Error::Internal(what.into()))
}
