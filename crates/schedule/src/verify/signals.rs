//! Checks of signals and waits: numbering in order, and matching of counterparts.

use std::collections::{HashMap, HashSet};

use super::{Problem, VerifyError};
use crate::ir::{Rank, Schedule, SignalId, Step};

/// The signals from one rank to another in one tile: flag words have 16 bits for their numbers, 0
/// for none.
const SIGNALS_MAX: SignalId = (1 << 16) - 1;

/// Checks that every signal is waited for exactly once, and numbered as its link counts.
pub(super) fn check(schedules: &[Schedule]) -> Result<(), VerifyError> {
    let mut sent = HashMap::new();
    for schedule in schedules {
        count_signals(schedule, &mut sent)?;
    }
    let mut waited = HashSet::new();
    for schedule in schedules {
        check_waits(schedule, &sent, &mut waited)?;
    }
    for schedule in schedules {
        for (index, step) in schedule.steps.iter().enumerate() {
            if let Step::Signal { to, id } = step
                && !waited.contains(&(schedule.rank, *to, *id))
            {
                return Err(VerifyError::at(schedule, index, Problem::UnmatchedSignal));
            }
        }
    }
    Ok(())
}

fn count_signals(
    schedule: &Schedule,
    sent: &mut HashMap<(Rank, Rank), SignalId>,
) -> Result<(), VerifyError> {
    for (index, step) in schedule.steps.iter().enumerate() {
        let Step::Signal { to, id } = step else {
            continue;
        };
        check_peer(schedule, index, *to)?;
        let count = sent.entry((schedule.rank, *to)).or_insert(0);
        if *id != *count {
            let problem = Problem::Misnumbered { expected: *count };
            return Err(VerifyError::at(schedule, index, problem));
        }
        *count += 1;
        if *count > SIGNALS_MAX {
            let problem = Problem::Malformed(format!(
                "there are more than {SIGNALS_MAX} signals to rank {to}"
            ));
            return Err(VerifyError::at(schedule, index, problem));
        }
    }
    Ok(())
}

fn check_waits(
    schedule: &Schedule,
    sent: &HashMap<(Rank, Rank), SignalId>,
    waited: &mut HashSet<(Rank, Rank, SignalId)>,
) -> Result<(), VerifyError> {
    for (index, step) in schedule.steps.iter().enumerate() {
        let Step::Wait { from, id } = step else {
            continue;
        };
        check_peer(schedule, index, *from)?;
        let count = sent.get(&(*from, schedule.rank)).copied().unwrap_or(0);
        if *id >= count {
            return Err(VerifyError::at(schedule, index, Problem::UnmatchedWait));
        }
        if !waited.insert((*from, schedule.rank, *id)) {
            return Err(VerifyError::at(schedule, index, Problem::DoubledWait));
        }
    }
    Ok(())
}

fn check_peer(schedule: &Schedule, step: usize, peer: Rank) -> Result<(), VerifyError> {
    let refuse = |why: String| Err(VerifyError::at(schedule, step, Problem::Malformed(why)));
    if peer == schedule.rank {
        return refuse("a rank does not signal itself".to_owned());
    }
    if peer >= schedule.ranks {
        return refuse(format!("there is no rank {peer}"));
    }
    Ok(())
}
