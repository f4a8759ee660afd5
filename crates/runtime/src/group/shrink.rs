//! Groups of those that are left of a group that has broken.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use weft_agreement::Ranks;
use weft_bootstrap::Terms;
use weft_call::Completion;
use weft_transport::{EndpointId, LinkError};

use super::interruption::Interruption;
use super::{Group, GroupOptions, closed};
use crate::Error;
use crate::progress::{Dial, ShrinkStage, Waited};
use crate::selection::inherited;

/// How often a rank says again what may have been lost.
const REPEAT: Duration = Duration::from_millis(50);
/// How long an attempt to make a link may take.
const DIAL: Duration = Duration::from_secs(1);
/// So many links are made at a time.
const DIALS: usize = 16;

impl Group {
    /// Makes a group of the ranks that are left, in the order of their ranks here: of a group that
    /// has broken, or of one that is whole. It asks no store: the ranks agree over their links,
    /// which are made anew where they broke.
    ///
    /// Every rank that lives calls it. Those that have ended, as their system has told, are left
    /// out; so are those that are silent: ranks that live, as far as is known, but have not called
    /// within half of the time given, and those that cannot be reached, or fall silent in the
    /// middle, for the peer timeout. More than half of the ranks must go on, or half of them with
    /// rank 0, unless all others have ended: of a group that is cut in two, one part goes on at
    /// most. If more ranks end meanwhile, it goes on without them. The new group has this one's
    /// options, with this name. This group stays as it is.
    ///
    /// `timeout`: how long all of it may take; as this group's operations if none.
    ///
    /// Fails with [`Error::Timeout`], naming the ranks that are missing, where too few are left;
    /// with [`Error::Aborted`] where the others have gone on without this one, and once it is
    /// interrupted; with [`Error::Config`] if it was called before.
    pub fn shrink(&self, name: &str, timeout: Option<Duration>) -> Result<Arc<Group>, Error> {
        self.check_usable()?;
        let deadline = Instant::now() + timeout.unwrap_or(self.options.timeout);
        let never = AtomicBool::new(false);
        let mut group = self.survivors(name, deadline)?;
        loop {
            let linked = group.link_neighbours(deadline, &never);
            match linked.and_then(|()| group.wait_for_neighbours(deadline, &never)) {
                Ok(()) => return Ok(group),
                // Another one has ended since.
                Err(lost @ Error::PeerLost { .. }) => {
                    group.give_up(&lost);
                    group = group.survivors(name, deadline)?;
                }
                Err(error) => {
                    group.call_off(&error);
                    return Err(error);
                }
            }
        }
    }

    /// The numbers that the ranks of another group have in this one, in their order: all of them,
    /// if the other was made of some of this one's ranks.
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

    /// Agrees with the other survivors on who is left, and makes their group.
    fn survivors(&self, name: &str, deadline: Instant) -> Result<Arc<Group>, Error> {
        let (id, members) = self.agree(deadline)?;
        let ranks: Vec<u32> = members.into_iter().collect();
        let Some(rank) = ranks.iter().position(|rank| *rank == self.rank) else {
            return Err(self.left_out(&ranks));
        };
        let full_name = self.of_state(|group| group.name.split(name, &ranks))?;
        let meeting = self.meeting_of(&ranks);
        let policy = self.options.terms.policy.of_ranks(&ranks);
        let options = GroupOptions {
            timeout: self.options.timeout,
            name: name.into(),
            global_ranks: None,
            terms: Terms {
                policy: inherited(policy, &meeting),
                ..Terms::default()
            },
        };
        let (engine, rank) = (self.engine.clone(), rank as u32);
        Group::make(engine, meeting, (id, full_name), rank, options)
    }

    /// Who goes on, and the identity of their group.
    fn agree(&self, deadline: Instant) -> Result<(u64, Ranks), Error> {
        if self.engine.with(|state, _| state.is_shrunk(self.id)) {
            return Err(Error::Config(
                "this group has been shrunk already: use the group that came of that".into(),
            ));
        }
        let begin = self
            .engine
            .with(|state, finished| state.begin_shrink(self.id, finished));
        let settled = begin.ok_or_else(closed)?;
        let (stop, under_way) = (AtomicBool::new(false), Mutex::default());
        let agreed = thread::scope(|scope| {
            let dialler = Dialler {
                group: self,
                scope,
                stop: &stop,
                under_way: &under_way,
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
    ) -> Result<(u64, Ranks), Error> {
        let started = Instant::now();
        let patience = deadline.saturating_duration_since(started) / 2;
        let mut interruption = Interruption::of_this_call();
        loop {
            let stage = (self.engine)
                .with(|state, finished| state.shrink_stage(self.id, patience, finished));
            match stage.ok_or_else(closed)? {
                ShrinkStage::Decided { id, members } => return Ok((id, members)),
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
        let goes_on: Vec<String> = ranks.iter().map(u32::to_string).collect();
        Error::Aborted {
            reason: format!(
                "ranks {} have gone on without rank {}, which they have not heard of in time",
                goes_on.join(", "),
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
                "{}, not known to have ended: of {} ranks more than half must be left, or half \
                 with rank 0, where it may be the network that is cut",
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

/// Makes links to ranks, on threads of its own.
struct Dialler<'scope, 'env> {
    group: &'scope Group,
    scope: &'scope Scope<'scope, 'env>,
    stop: &'scope AtomicBool,
    under_way: &'scope Mutex<HashSet<u32>>,
}

impl Dialler<'_, '_> {
    /// Begins to make links to these ranks.
    fn dial(&self, ranks: Vec<u32>, deadline: Instant) {
        for rank in ranks {
            let mut under_way = lock(self.under_way);
            if under_way.len() >= DIALS || !under_way.insert(rank) {
                continue;
            }
            drop(under_way);
            let (group, stop, under_way) = (self.group, self.stop, self.under_way);
            let until = deadline.min(Instant::now() + DIAL);
            let dial = move || {
                let dial = dial(group, rank, until, stop);
                lock(under_way).remove(&rank);
                (group.engine)
                    .with(|state, finished| state.note_dial(group.id, rank, &dial, finished));
            };
            if thread::Builder::new()
                .spawn_scoped(self.scope, dial)
                .is_err()
            {
                // It is tried again.
                lock(self.under_way).remove(&rank);
            }
        }
    }
}

fn lock(ranks: &Mutex<HashSet<u32>>) -> MutexGuard<'_, HashSet<u32>> {
    ranks.lock().unwrap_or_else(PoisonError::into_inner)
}

fn dial(group: &Group, rank: u32, until: Instant, stop: &AtomicBool) -> Dial {
    let address = &group.meeting.members[rank as usize].address;
    let kind = group.meeting.kind(group.rank, rank);
    match group.engine.endpoint().try_link(address, kind, until, stop) {
        Ok(Ok(_)) => Dial::Linked,
        Ok(Err(LinkError::Absent(_))) => Dial::Absent,
        _ => Dial::Failed,
    }
}
