//! Sums in transit: the sources of reductions that hold sums of several contributions already.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ir::{Buffer, Rank, Schedule, Slice, Step};

/// For each reduction of `rank`'s program, in order, and for each of its sources: whether it holds
/// the outcome of an earlier reduction, not final, in every chunk.
///
/// `schedules` are those of all ranks, which the verifier accepts: as it refuses races, contents
/// do not depend on the order in which ranks take their steps.
pub fn sums_in_transit(schedules: &[Schedule], rank: Rank) -> Vec<Vec<bool>> {
    let mut flow = DataFlow {
        sums: HashSet::new(),
        of_claims: HashMap::new(),
        signalled: HashMap::new(),
        found: Vec::new(),
        rank,
    };
    let mut positions = vec![0; schedules.len()];
    // By the awaited rank and signal: the waiting rank.
    let mut waiting: HashMap<(Rank, Rank), u32> = HashMap::new();
    let mut ready: VecDeque<Rank> = (0..schedules.len() as Rank).collect();
    while let Some(next) = ready.pop_front() {
        let schedule = &schedules[next as usize];
        let position = &mut positions[next as usize];
        while let Some(step) = schedule.steps.get(*position) {
            match step {
                Step::Wait { from, id } => {
                    let sent = flow.signalled.get(&(*from, next)).copied();
                    if sent.unwrap_or(0) <= *id {
                        waiting.insert((*from, next), *id);
                        break;
                    }
                }
                Step::Signal { to, id } => {
                    flow.signalled.insert((next, *to), id + 1);
                    if waiting
                        .get(&(next, *to))
                        .is_some_and(|awaited| awaited <= id)
                    {
                        waiting.remove(&(next, *to));
                        ready.push_back(*to);
                    }
                }
                step => flow.take(schedule, step),
            }
            *position += 1;
        }
    }
    let claimed = |found: Found| match found {
        Found::Sources(sums) => sums,
        Found::Claim(id) => flow.of_claims.get(&id).cloned().unwrap_or_default(),
    };
    flow.found.into_iter().map(claimed).collect()
}

/// A chunk's place in a buffer of a rank.
type Cell = (Rank, u8, u32, Rank, u32);

/// Knowledge about a reduction.
enum Found {
    /// Its sources.
    Sources(Vec<bool>),
    /// The claim whose owner takes it.
    Claim(u32),
}

struct DataFlow {
    /// The cells that hold sums.
    sums: HashSet<Cell>,
    /// The sources of claimable reductions.
    of_claims: HashMap<u32, Vec<bool>>,
    /// By sender and receiver: the number of signals.
    signalled: HashMap<(Rank, Rank), u32>,
    found: Vec<Found>,
    /// The rank of the reductions.
    rank: Rank,
}

impl DataFlow {
    /// Carries out a copy or a reduction of a rank; a claimable one in its owner's place.
    fn take(&mut self, schedule: &Schedule, step: &Step) {
        let (Step::Copy { dsts, claim, .. } | Step::Reduce { dsts, claim, .. }) = step else {
            return;
        };
        let owned = claim
            .as_ref()
            .is_none_or(|claim| claim.by[0] == schedule.rank);
        let content: Vec<bool> = match step {
            Step::Copy { src, .. } => cells(src).map(|cell| self.sums.contains(&cell)).collect(),
            Step::Reduce { srcs, is_final, .. } => {
                self.note(
                    schedule.rank,
                    srcs,
                    claim.as_ref().map(|claim| claim.id),
                    owned,
                );
                vec![!is_final; srcs[0].chunks.len()]
            }
            _ => return,
        };
        for cell in dsts
            .iter()
            .filter(|_| owned)
            .flat_map(|dst| cells(dst).zip(&content))
        {
            match cell {
                (cell, true) => self.sums.insert(cell),
                (cell, false) => self.sums.remove(&cell),
            };
        }
    }

    /// Notes which sources of a reduction are sums.
    fn note(&mut self, rank: Rank, srcs: &[Slice], claim: Option<u32>, owned: bool) {
        if rank != self.rank && claim.is_none() {
            return;
        }
        let is_sum = |src: &Slice| cells(src).all(|cell| self.sums.contains(&cell));
        let sums: Vec<bool> = srcs.iter().map(is_sum).collect();
        if let (Some(id), true) = (claim, owned) {
            self.of_claims.insert(id, sums.clone());
        }
        if rank == self.rank {
            self.found.push(match claim {
                Some(id) => Found::Claim(id),
                None => Found::Sources(sums),
            });
        }
    }
}

fn cells(slice: &Slice) -> impl Iterator<Item = Cell> + use<> {
    let (kind, entry, from, base) = match slice.buffer {
        Buffer::Input => (0, 0, 0, 0),
        Buffer::Output => (1, 0, 0, 0),
        Buffer::Scratch { entry, base } => (2, entry, 0, base),
        Buffer::Receive { from, entry, base } => (3, entry, from, base),
    };
    let rank = slice.rank;
    (slice.chunks.clone()).map(move |chunk| (rank, kind, entry, from, chunk - base))
}
