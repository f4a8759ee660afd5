//! Claimable steps: their form, and the combinations of claimants to execute.

use std::collections::BTreeMap;

use super::location::ClaimExecutors;
use super::{Problem, VerifyError};
use crate::ir::{Claim, Rank, Schedule, Step};

/// The claimable steps by their ids, with the ranks that may execute them, the owner first.
pub(super) struct Claims(BTreeMap<u32, Vec<Rank>>);

/// The claim of a step.
pub(super) fn of(step: &Step) -> Option<&Claim> {
    match step {
        Step::Copy { claim, .. } | Step::Reduce { claim, .. } => claim.as_ref(),
        Step::Signal { .. } | Step::Wait { .. } => None,
    }
}

/// Collects the claimable steps, and checks that each stands once in the program of every rank that
/// it names.
pub(super) fn collect(schedules: &[Schedule]) -> Result<Claims, VerifyError> {
    let mut found: BTreeMap<u32, Vec<(&Schedule, usize)>> = BTreeMap::new();
    for schedule in schedules {
        for (index, step) in schedule.steps.iter().enumerate() {
            if let Some(claim) = of(step) {
                check_claim(claim, schedule)
                    .map_err(|why| refuse(schedule, index, why.to_owned()))?;
                found.entry(claim.id).or_default().push((schedule, index));
            }
        }
    }
    let mut claims = BTreeMap::new();
    for (id, places) in found {
        let (first, step) = places[0];
        let Some(claim) = of(&first.steps[step]) else {
            continue;
        };
        check_places(claim, &places)?;
        claims.insert(id, claim.by.clone());
    }
    Ok(Claims(claims))
}

impl Claims {
    /// Every step is executed by its owner.
    pub(super) fn owners(&self) -> ClaimExecutors {
        self.0.iter().map(|(id, by)| (*id, by[0])).collect()
    }

    /// The other combinations to execute: all when there are at most `limit`, else every helper of
    /// every step, one at a time.
    pub(super) fn alternatives(&self, limit: u32) -> Vec<ClaimExecutors> {
        let sizes = self.0.values().map(|by| by.len() as u64);
        let combinations = sizes.fold(1_u64, u64::saturating_mul);
        if combinations <= u64::from(limit) {
            self.combinations(combinations)
        } else {
            self.one_at_a_time()
        }
    }

    /// All combinations but the first, which is that of the owners.
    fn combinations(&self, count: u64) -> Vec<ClaimExecutors> {
        let numbered = (1..count).map(|number| {
            let mut rest = number;
            let digit = |(id, by): (&u32, &Vec<Rank>)| {
                let digit = rest % by.len() as u64;
                rest /= by.len() as u64;
                (*id, by[digit as usize])
            };
            self.0.iter().map(digit).collect()
        });
        numbered.collect()
    }

    fn one_at_a_time(&self) -> Vec<ClaimExecutors> {
        let helpers = self
            .0
            .iter()
            .flat_map(|(id, by)| by[1..].iter().map(|rank| (*id, *rank)));
        let choice = |(id, helper)| {
            let mut choice = self.owners();
            choice.insert(id, helper);
            choice
        };
        helpers.map(choice).collect()
    }
}

fn check_claim(claim: &Claim, schedule: &Schedule) -> Result<(), &'static str> {
    let mut by = claim.by.clone();
    by.sort_unstable();
    by.dedup();
    if by.len() != claim.by.len() {
        return Err("a claim names a rank twice");
    }
    if by.last().is_some_and(|rank| *rank >= schedule.ranks) {
        return Err("a claim names a rank that does not exist");
    }
    if !by.contains(&schedule.rank) {
        return Err("the claim does not name this rank");
    }
    Ok(())
}

/// Checks that the same step stands once in the program of every rank that may claim it.
fn check_places(claim: &Claim, places: &[(&Schedule, usize)]) -> Result<(), VerifyError> {
    let (first, first_step) = places[0];
    for (index, (schedule, step)) in places.iter().enumerate() {
        if schedule.steps[*step] != first.steps[first_step] {
            let why = format!(
                "claim {} stands at another step of rank {}",
                claim.id, first.rank
            );
            return Err(refuse(schedule, *step, why));
        }
        if index > 0 && places[index - 1].0.rank == schedule.rank {
            let why = format!("claim {} stands in this program twice", claim.id);
            return Err(refuse(schedule, *step, why));
        }
    }
    let absent = |rank: &&Rank| !places.iter().any(|(schedule, _)| schedule.rank == **rank);
    if let Some(rank) = claim.by.iter().find(absent) {
        let why = format!(
            "claim {} does not stand in the program of rank {rank}",
            claim.id
        );
        return Err(refuse(first, first_step, why));
    }
    Ok(())
}

fn refuse(schedule: &Schedule, step: usize, why: String) -> VerifyError {
    VerifyError::at(schedule, step, Problem::Malformed(why))
}
