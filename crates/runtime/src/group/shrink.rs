//! Shrinking: a new group of the survivors of a broken group.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use weft_agreement::Survivors;
use weft_bootstrap::GroupTerms;
use weft_call::Completion;
use weft_transport::{EndpointId, LinkError};

use super::interruption::Interruption;
use super::{Group, GroupOptions, closed};
use crate::Error;
use crate::lock::lock;
use crate::progress::{DialOutcome, ShrinkStage, Waited};
use crate::selection::inherited;

/// Interval in which a rank repeats messages that may be lost.
const REPEAT: Duration = Duration::from_millis(10);
/// The timeout of an attempt to connect.
const DIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The most concurrent attempts to connect.
const DIALS_MAX: usize = 16;

impl Group {
    /// Makes a group of the surviving ranks, in the order of their ranks here. This group may be
    /// broken or not. No store is needed: the ranks agree over their links, and broken links are
    /// connected again.
    ///
    /// Every surviving rank calls it. Ranks whose processes have ended, as their kernel reports,
    /// are left out. So are silent ranks: those that have not called within half of the timeout,
    /// and those that cannot be reached, or stop answering, for the peer timeout. Unless all other
    /// ranks have ended, the survivors must be more than half of the ranks, or half of them with
    /// rank 0; so if the network divides a group, at most one part continues. If more ranks end
    /// meanwhile, the call continues without them. The new group has this one's options, with this
    /// name. This group does not change.
    ///
    /// `timeout`: the timeout of the whole call; that of this group's operations if `None`.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`]: too few ranks are left; it names the missing ones.
    /// - [`Error::Aborted`]: the others continue without this rank, or the call was interrupted.
    /// - [`Error::Config`]: it was called before.
    pub fn shrink(&self, name: &str, timeout: Option<Duration>) -> Result<Arc<Group>, Error> {
        let (group, _) = self.shrink_with_vote(name, false, timeout)?;
        Ok(group)
    }

    /// Like [`Group::shrink`], with a vote on a question that the callers have. The result is also
    /// whether all ranks of the new group have voted yes: the same on all of them, whichever ranks
    /// end at whichever moments. A rank that calls [`Group::shrink`] votes no.
    ///
    /// # Errors
    ///
    /// As for [`Group::shrink`].
    pub fn shrink_with_vote(
        &self,
        name: &str,
        vote: bool,
        timeout: Option<Duration>,
    ) -> Result<(Arc<Group>, bool), Error> {
        self.check_usable()?;
        let deadline = Instant::now() + timeout.unwrap_or(self.options.timeout);
        let never = AtomicBool::new(false);
        let (mut group, mut unanimous) = self.survivors(name, vote, deadline)?;
        loop {
            let linked = group.link_neighbours(deadline, &never);
            match linked.and_then(|()| group.wait_for_neighbours(deadline, &never)) {
                Ok(()) => return Ok((group, unanimous)),
                // Another rank has ended since. The decision that these ranks know stays.
                Err(lost @ Error::PeerLost { .. }) => {
                    group.break_with(&lost);
                    (group, unanimous) = group.survivors(name, unanimous, deadline)?;
                }
                Err(error) => {
                    group.report_setup_failure(&error);
                    return Err(error);
                }
            }
        }
    }

    /// The ranks in this group of the members of another group, in the other's order. Members that
    /// are not in this group are left out.
    pub fn ranks_of(&self, other: &Group) -> Vec<u32> {
        let mine = self.meeting.members.iter();
        let mine: HashMap<EndpointId, u32> = mine
            .zip(0..)
            .map(|(member, rank)| (member.address.id, rank))
            .collect();
        let others = other.meeting.members.iter();
        others
            .filter_map(|member| mine.get(&member.address.id).copied())
            .collect()
    }

    /// Agrees with the other ranks on the survivors, and makes their group. Returns it, and whether
    /// all of them have voted yes.
    fn survivors(
        &self,
        name: &str,
        vote: bool,
        deadline: Instant,
    ) -> Result<(Arc<Group>, bool), Error> {
        let (id, survivors) = self.agree(vote, deadline)?;
        let ranks: Vec<u32> = survivors.members.into_iter().collect();
        let Some(rank) = ranks.iter().position(|rank| *rank == self.rank) else {
            return Err(self.left_out(&ranks));
        };
        let full_name = self.with_state(|group| group.name.split(name, &ranks))?;
        let meeting = self.meeting_of(&ranks);
        let policy = self.options.terms.policy.of_ranks(&ranks);
        let options = GroupOptions {
            timeout: self.options.timeout,
            name: name.into(),
            global_ranks: None,
            terms: GroupTerms {
                policy: inherited(policy, &meeting),
                ..GroupTerms::default()
            },
        };
        let (engine, rank) = (self.engine.clone(), rank as u32);
        let group = Group::make(engine, meeting, (id, full_name), rank, options)?;
        Ok((group, survivors.unanimous))
    }

    /// Agrees on the survivors. Returns the identity of their group, and the decision.
    fn agree(&self, vote: bool, deadline: Instant) -> Result<(u64, Survivors), Error> {
        if self.engine.with(|state, _| state.is_shrunk(self.id)) {
            return Err(Error::Config(
                "this group has been shrunk already: use the group that the earlier call returned"
                    .into(),
            ));
        }
        let begin = self
            .engine
            .with(|state, finished| state.begin_shrink(self.id, vote, finished));
        let settled = begin.ok_or_else(closed)?;
        let (stop, dialled) = (AtomicBool::new(false), Mutex::default());
        let agreed = thread::scope(|scope| {
            let dialler = Dialler {
                group: self,
                scope,
                stop: &stop,
                dialled: &dialled,
            };
            let agreed = self.wait_for_agreement(&dialler, &settled, deadline);
            stop.store(true, Ordering::Relaxed);
            agreed
        });
        agreed.inspect_err(|_| {
            (self.engine).with(|state, finished| state.withdraw_from_shrink(self.id, finished));
        })
    }

    fn wait_for_agreement(
        &self,
        dialler: &Dialler<'_, '_>,
        settled: &Completion,
        deadline: Instant,
    ) -> Result<(u64, Survivors), Error> {
        let started = Instant::now();
        let patience = deadline.saturating_duration_since(started) / 2;
        let mut interruption = Interruption::of_this_call();
        loop {
            let stage = (self.engine)
                .with(|state, finished| state.shrink_stage(self.id, patience, finished));
            match stage.ok_or_else(closed)? {
                ShrinkStage::Decided { id, survivors } => return Ok((id, survivors)),
                ShrinkStage::Waiting { unlinked } => dialler.dial(unlinked, deadline),
            }
            let until = deadline.min(Instant::now() + REPEAT);
            let waited = self.engine.wait(settled, Some(until), &mut || false);
            interruption.check()?;
            if waited != Waited::Done && Instant::now() >= deadline {
                return Err(self.too_few(started.elapsed()));
            }
        }
    }

    fn left_out(&self, ranks: &[u32]) -> Error {
        let survivors: Vec<String> = ranks.iter().map(u32::to_string).collect();
        Error::Aborted {
            reason: format!(
                "ranks {} continue without rank {}, whose messages they did not receive in time",
                survivors.join(", "),
                self.rank
            ),
        }
    }

    fn too_few(&self, after: Duration) -> Error {
        let missing = (self.engine).with(|state, _| state.missing_from_shrink(self.id));
        let names: Vec<String> = missing
            .iter()
            .map(|rank| {
                let host = &self.meeting.members[*rank as usize].address.host_name;
                format!("rank {rank} on {host}")
            })
            .collect();
        let waiting_for = match names.is_empty() {
            true => "the others to agree".into(),
            false => format!(
                "{}, not known to have ended: more than half of the {} ranks must be left, or half \
                 with rank 0, as the network may be divided",
                names.join(", "),
                self.size()
            ),
        };
        Error::Timeout {
            operation: format!("shrink of group {}", self.name()),
            waiting_for,
            after,
        }
    }
}

/// Connects to ranks on separate threads.
struct Dialler<'scope, 'env> {
    group: &'scope Group,
    scope: &'scope Scope<'scope, 'env>,
    stop: &'scope AtomicBool,
    dialled: &'scope Mutex<HashSet<u32>>,
}

impl Dialler<'_, '_> {
    /// Starts connecting to these ranks.
    fn dial(&self, ranks: Vec<u32>, deadline: Instant) {
        for rank in ranks {
            let mut dialled = lock(self.dialled);
            if dialled.len() >= DIALS_MAX || !dialled.insert(rank) {
                continue;
            }
            drop(dialled);
            let (group, stop, dialled) = (self.group, self.stop, self.dialled);
            let until = deadline.min(Instant::now() + DIAL_TIMEOUT);
            let dial = move || {
                let dial = dial(group, rank, until, stop);
                lock(dialled).remove(&rank);
                (group.engine)
                    .with(|state, finished| state.note_dial(group.id, rank, &dial, finished));
            };
            if thread::Builder::new()
                .spawn_scoped(self.scope, dial)
                .is_err()
            {
                // The next call tries again.
                lock(self.dialled).remove(&rank);
            }
        }
    }
}

fn dial(group: &Group, rank: u32, until: Instant, stop: &AtomicBool) -> DialOutcome {
    let address = &group.meeting.members[rank as usize].address;
    let kind = group.meeting.kind(group.rank, rank);
    match group.engine.endpoint().try_link(address, kind, until, stop) {
        Ok(Ok(_)) => DialOutcome::Linked,
        Ok(Err(LinkError::Absent(_))) => DialOutcome::Absent,
        _ => DialOutcome::Failed,
    }
}
