//! The group: creation, splitting, membership, abort and closing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_bootstrap::{
    Endpoint, Meeting, Member, Policy, Profile, Schedules, Store, Terms, Unshared, fail_meeting,
};
use weft_call::Completion;
use weft_channel::{ChannelLayout, Connections, ControlMessage, PartSet, formats};
use weft_schedule::WireFormat;
use weft_transport::{EndpointId, Link, PerProcess, TransportKind};

use super::call_off::Making;
use super::counters::Counters;
use super::interruption::Interruption;
use crate::Error;
use crate::execution::CallingThread;
use crate::progress::{Engine, GroupName, GroupState};
use crate::selection::{Selector, inherited};

/// How to make a group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// How long an operation may take, and how long making the group may take.
    pub timeout: Duration,
    /// What the group is called in messages.
    pub name: String,
    /// The ranks' numbers in the world, where the group is of some of its ranks, for messages.
    pub global_ranks: Option<Vec<u32>>,
    /// What is asked of the choice of algorithms, alike on all ranks, and rank 0's tables to choose
    /// by.
    pub terms: Terms,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions {
            timeout: Duration::from_secs(300),
            name: "world".into(),
            global_ranks: None,
            terms: Terms::default(),
        }
    }
}

/// How a group that is split off differs from the one that it is made from.
#[derive(Clone, Default, Debug)]
pub struct SplitOptions {
    /// How long an operation may take; as in the other group if none.
    pub timeout: Option<Duration>,
    /// As [`Policy::algorithms`], for all of its ranks; as in the other group if none.
    pub algorithms: Option<BTreeMap<String, String>>,
    /// As [`Policy::reproducible`]; as in the other group if none.
    pub reproducible: Option<bool>,
    /// As [`Policy::wire`]; as in the other group if none.
    pub wire: Option<WireFormat>,
    /// As [`Policy::levels`]; the part of the other group's that its ranks have if none.
    pub levels: Option<Vec<Vec<u32>>>,
    /// As [`Policy::schedules`]; those of the other group that are right in this one if none.
    pub schedules: Option<Schedules>,
    /// As [`Policy::domains`]; as in the other group if none.
    pub domains: Option<Vec<Vec<u32>>>,
    /// Tables to choose algorithms by, alike on all of its ranks; those of the other group if none.
    pub profiles: Option<Vec<Profile>>,
    /// The ranks' numbers in the world, for messages, where the other group is of all ranks; those
    /// in the group that they met in if none.
    pub global_ranks: Option<Vec<u32>>,
    /// Whether the call ends when the ranks next to this one have made the group as well, as that
    /// of [`Group::create`] does.
    pub waits: bool,
}

/// A list of endpoints that communicate with each other, and this endpoint's place in it.
///
/// All ranks of a group issue its operations in the same order. Threads that cannot keep an order
/// use groups of their own.
pub struct Group {
    pub(crate) engine: Arc<Engine>,
    pub(crate) meeting: Meeting,
    pub(crate) id: u64,
    pub(crate) rank: u32,
    pub(crate) options: GroupOptions,
    /// Serialises issuing, so that sequence numbers follow the order of calls.
    pub(crate) issuing: Mutex<()>,
    pub(crate) cancel: AtomicBool,
    /// The calling-thread path, where all ranks map each other's memory.
    pub(crate) calling_thread: Option<Arc<CallingThread>>,
    /// Stands for all operations that were done at once.
    pub(crate) done: Arc<Completion>,
    /// Once they have been asked for.
    pub(super) counters: Arc<OnceLock<Arc<Counters>>>,
}

impl Group {
    /// Meets the other ranks through the store and makes a group with them.
    ///
    /// Every rank calls it with the same `size` and with a store that is used for this group only.
    /// Fails with [`Error::Timeout`] naming the missing ranks, with [`Error::Aborted`] once
    /// `cancel` is true, with [`Error::Config`] where settings differ, with [`Error::PeerLost`] if
    /// a rank has ended meanwhile, and as a call has failed by which another rank that has its
    /// group already has broken it. A rank may leave as soon as it has its group: no other's
    /// creation fails by that.
    pub fn create(
        endpoint: Arc<Endpoint>,
        store: &dyn Store,
        rank: u32,
        size: u32,
        options: GroupOptions,
        cancel: &AtomicBool,
    ) -> Result<Arc<Group>, Error> {
        let engine = engine_of(&endpoint)
            .inspect_err(|error| fail_meeting(store, rank, size, error, cancel))?;
        let deadline = Instant::now() + options.timeout;
        let terms = options.terms.clone();
        let name = GroupName::met(&options.name, options.global_ranks.as_deref());
        let meeting = meet(&endpoint, store, rank, size, terms, deadline, cancel)
            .map_err(|error| name.at_rendezvous(error))?;
        let id = meeting.group_id;
        let group = Self::join(engine, meeting, (id, name), rank, options, deadline, cancel)?;
        group
            .wait_for_neighbours(deadline, cancel)
            .inspect_err(|error| group.call_off(error))?;
        Ok(group)
    }

    /// Makes a group of ranks that have met. Where that fails here, it fails on the other ranks.
    pub(super) fn join(
        engine: Arc<Engine>,
        meeting: Meeting,
        (id, name): (u64, GroupName),
        rank: u32,
        options: GroupOptions,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<Group>, Error> {
        let group = Self::make(engine, meeting, (id, name), rank, options)?;
        group
            .link_neighbours(deadline, cancel)
            .inspect_err(|error| group.call_off(error))?;
        Ok(group)
    }

    /// A new group, without links to its other ranks.
    pub(super) fn make(
        engine: Arc<Engine>,
        meeting: Meeting,
        (id, name): (u64, GroupName),
        rank: u32,
        options: GroupOptions,
    ) -> Result<Arc<Group>, Error> {
        let state = Self::state(&engine, meeting.clone(), (id, name.clone()), rank, &options);
        let state = state.inspect_err(|error| {
            let making = Making {
                engine: &engine,
                meeting: &meeting,
                id,
                name: &name,
                rank,
            };
            making.call_off(error);
        })?;
        let calling_thread = state.executor.calling_thread.clone();
        engine.with(|s, finished| s.add_group(state, finished));
        Ok(Arc::new(Group {
            engine,
            meeting,
            id,
            rank,
            options,
            issuing: Mutex::new(()),
            cancel: AtomicBool::new(false),
            calling_thread,
            done: Completion::done(),
            counters: Arc::default(),
        }))
    }

    /// The engine's state of a new group.
    fn state(
        engine: &Engine,
        meeting: Meeting,
        (id, name): (u64, GroupName),
        rank: u32,
        options: &GroupOptions,
    ) -> Result<GroupState, Error> {
        let size = meeting.members.len() as u32;
        // Ranks of one machine compete for its cores, whether they share memory or not.
        let machine = |member: &Member| member.address.machine().to_owned();
        let mine = machine(&meeting.members[rank as usize]);
        let here = meeting
            .members
            .iter()
            .filter(|member| machine(member) == mine);
        engine.local_ranks(here.count());
        // Links that have ended are not to be used again, and memory is free by ends of processes.
        engine.with(|state, finished| {
            state.notified = true;
            state.pass(finished);
            state.look_for_ends(finished);
        });
        let layout = ChannelLayout::new(size, meeting.round_trip);
        let selector = Selector::new(&meeting, rank, layout, &options.terms.policy)?;
        let endpoint = engine.endpoint();
        let shared = (endpoint.registrations(), endpoint.stages());
        let connections = Connections::new(id, rank, meeting, layout, shared);
        let here = (&**engine.endpoint().pool(), engine.endpoint().flight());
        Ok(GroupState::new(
            name,
            connections,
            selector,
            options.timeout,
            here,
        ))
    }

    /// Makes a group of some of this group's ranks, in the order given. `None` if this rank is not
    /// among them.
    ///
    /// Every member calls it with the same list, name and options, and equally often. Where groups
    /// with common members are given one name, all ranks of this group call it, in the same order:
    /// another list in the place of a call, or other options, is [`Error::Config`], told by the
    /// call or by the use of the new group. Unless it is asked to, it waits for nobody: whoever
    /// leaves before another member has split may make that fail with [`Error::PeerLost`].
    pub fn split(
        &self,
        ranks: &[u32],
        name: &str,
        mut options: SplitOptions,
    ) -> Result<Option<Arc<Group>>, Error> {
        self.check_usable()?;
        let size = self.size();
        if let Some(wrong) = ranks.iter().find(|rank| **rank >= size) {
            return Err(Error::Config(format!(
                "rank {wrong} is not in this group of {size} ranks"
            )));
        }
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::Config(format!(
                "the ranks of a group must be distinct: {ranks:?}"
            )));
        }
        let (waits, global_ranks) = (options.waits, options.global_ranks.take());
        let (meeting, options) = self.inherit(ranks, name, options);
        let policy = options.terms.policy.digest();
        let (split, full_name) = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            let call = group.splits.call(self.id, name, ranks, policy);
            let full_name = match global_ranks {
                Some(global) => GroupName::met(name, Some(&global)),
                None => group.name.split(name, ranks),
            };
            Ok((call, full_name))
        })?;
        let settle =
            || (self.engine).with(|state, finished| state.settle_split(self.id, &split, finished));
        let Some(rank) = ranks.iter().position(|rank| *rank == self.rank) else {
            return settle().map(|()| None);
        };
        let deadline = Instant::now() + options.timeout;
        let engine = self.engine.clone();
        let group = Self::join(
            engine,
            meeting,
            (split.child, full_name),
            rank as u32,
            options,
            deadline,
            &self.cancel,
        );
        settle()?;
        let group = group?;
        if waits {
            group
                .wait_for_neighbours(deadline, &self.cancel)
                .inspect_err(|error| group.call_off(error))?;
        }
        Ok(Some(group))
    }

    /// What a group of some of the ranks is made with: what is not given is as in this one.
    fn inherit(&self, ranks: &[u32], name: &str, given: SplitOptions) -> (Meeting, GroupOptions) {
        let mut meeting = self.meeting_of(ranks);
        if let Some(profiles) = given.profiles {
            meeting.profiles = profiles;
        }
        let inherited = inherited(self.options.terms.policy.of_ranks(ranks), &meeting);
        let policy = Policy {
            algorithms: given.algorithms.unwrap_or(inherited.algorithms),
            reproducible: given.reproducible.unwrap_or(inherited.reproducible),
            levels: given.levels.unwrap_or(inherited.levels),
            schedules: given.schedules.unwrap_or(inherited.schedules),
            domains: given.domains.or(inherited.domains),
            wire: given.wire.unwrap_or(inherited.wire),
        };
        let options = GroupOptions {
            timeout: given.timeout.unwrap_or(self.options.timeout),
            name: name.into(),
            global_ranks: None,
            terms: Terms {
                policy,
                ..Terms::default()
            },
        };
        (meeting, options)
    }

    /// What some of the ranks agree on without another word.
    pub(super) fn meeting_of(&self, ranks: &[u32]) -> Meeting {
        let mut meeting = self.meeting.of_ranks(ranks);
        // A table that was asked for is meant for the group that it was given to.
        for profile in &mut meeting.profiles {
            profile.required = false;
        }
        meeting
    }

    /// This rank's number in the group.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// The number of ranks.
    pub fn size(&self) -> u32 {
        self.meeting.members.len() as u32
    }

    /// A number that tells the group apart from all others, the same on all ranks.
    pub fn identity(&self) -> u64 {
        self.id
    }

    /// The group's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// For each rank, the lowest rank that shares memory with it.
    pub fn hosts(&self) -> Vec<u32> {
        self.meeting
            .members
            .iter()
            .map(|member| member.host)
            .collect()
    }

    /// Levels of domains inside hosts, innermost first: for each rank, the lowest rank of its
    /// domain.
    pub fn domains(&self) -> Result<Vec<Vec<u32>>, Error> {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id).ok_or_else(closed)?;
            Ok(group.selector.site.domains())
        })
    }

    /// For each rank, the name of its host.
    pub fn host_names(&self) -> Vec<String> {
        self.meeting
            .members
            .iter()
            .map(|member| member.address.host_name.clone())
            .collect()
    }

    /// Pairs of ranks that run on one machine and share no memory, as all ranks were told when they
    /// met; none for a group that was made of another.
    pub fn unshared(&self) -> &[Unshared] {
        &self.meeting.unshared
    }

    /// How this rank reaches another; nothing for itself.
    pub fn transport(&self, rank: u32) -> Option<TransportKind> {
        (rank != self.rank && rank < self.size()).then(|| self.meeting.kind(self.rank, rank))
    }

    /// The name of the cipher that seals everything between this rank and another; nothing where
    /// they share memory, or links are not encrypted.
    pub fn cipher(&self, rank: u32) -> Option<&'static str> {
        let kind = self.transport(rank)?;
        let member = &self.meeting.members[rank as usize];
        self.engine.endpoint().cipher(&member.address, kind)
    }

    /// How many steps of other ranks this rank has executed, as they were behind, since the group
    /// was made.
    pub fn steps_helped(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.executor.steps_helped)
        })
    }

    /// Makes sure that there is a link and a channel to a rank, with these parts for it.
    pub(crate) fn connect(
        &self,
        rank: u32,
        parts: PartSet,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let address = &self.meeting.members[rank as usize].address;
        let link = (self.link(rank, deadline, cancel)).map_err(|error| match error {
            // The rendezvous has given the address and its token: who refuses now was there and
            // has ended.
            Error::PeerLost { detail, .. } | Error::Auth(detail) => Error::PeerLost {
                rank: Some(rank),
                host: address.host_name.clone(),
                detail,
            },
            error => error,
        });
        let link = match (link, self.broken()) {
            (Ok(link), None) => link,
            (_, Some(error)) | (Err(error), None) => return Err(error),
        };
        self.engine.with(|state, _| {
            let endpoint = state.endpoint.clone();
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.connections.open_channel(rank, &link)?;
            group.connections.grant(endpoint.pool(), [rank], parts)
        })
    }

    /// The link to a rank. Where it is made, that can be interrupted, and ends when the group does.
    fn link(
        &self,
        rank: u32,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Arc<dyn Link>, Error> {
        let address = &self.meeting.members[rank as usize].address;
        let kind = self.meeting.kind(self.rank, rank);
        let endpoint = self.engine.endpoint();
        if let Some(link) = endpoint.ready_link(address.id, kind) {
            return Ok(link);
        }
        let stops = || {
            self.take_in_messages();
            cancel.load(Ordering::Relaxed) || self.broken().is_some()
        };
        Interruption::of_this_call()
            .watch(stops, |stop| endpoint.link(address, kind, deadline, stop))
    }

    /// Takes in what has come, at a moment at which perhaps nobody else does.
    pub(super) fn take_in_messages(&self) {
        self.engine.with(|state, finished| {
            state.notified = true;
            state.pass(finished);
        });
    }

    /// Ends everything under way in this group, here and on the other ranks, with
    /// [`Error::Aborted`]. From any thread.
    pub fn abort(&self, reason: &str) {
        if self.check_usable().is_err() {
            return;
        }
        self.cancel.store(true, Ordering::SeqCst);
        let error = Error::Aborted {
            reason: reason.into(),
        };
        self.engine.with(|state, finished| {
            if let Some(group) = state.groups.get_mut(&self.id) {
                group.abort(&error, finished);
            }
        });
    }

    /// Breaks the group: nothing more can be called, here and on the other ranks. Operations that
    /// all ranks have issued go on.
    pub fn fail(&self, reason: &str) {
        if self.check_usable().is_ok() {
            self.give_up(&Error::Aborted {
                reason: reason.into(),
            });
        }
    }

    /// Why the group is broken, if it is.
    pub fn broken(&self) -> Option<Error> {
        if let Err(error) = self.check_usable() {
            return Some(error);
        }
        self.engine.with(|state, _| {
            state
                .groups
                .get(&self.id)
                .and_then(|group| group.broken.clone())
        })
    }

    /// Calls back when the group breaks, with the reason; when it is closed before, without one.
    ///
    /// Runs on whichever thread meets the failure: it must be short and must not wait.
    pub fn on_end(&self, callback: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        let end = self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map(|group| group.end.clone())
        });
        match end {
            Some(end) => end.on_done(callback),
            None => callback(Ok(())),
        }
    }

    /// Leaves the group. What is under way here fails with [`Error::Aborted`]. Idempotent.
    pub fn close(&self) {
        if self.check_usable().is_err() {
            return;
        }
        self.cancel.store(true, Ordering::SeqCst);
        self.engine.with(|state, finished| {
            let Some(group) = state.groups.get_mut(&self.id) else {
                return;
            };
            if group.closed {
                return;
            }
            finished.push((group.end.clone(), Ok(())));
            group.leave(&closed(), finished);
            group.closed = true;
            group.flight.close();
            let goodbye = ControlMessage::Detach {
                group: self.id,
                asks: false,
            };
            group.connections.tell_all(&goodbye);
            let links = state.links.values().map(|watched| &watched.link);
            links.for_each(|link| state.detach_again(link));
            state.release(self.id);
        });
    }

    pub(crate) fn check_rank(&self, what: &str, rank: u32) -> Result<(), Error> {
        if rank < self.size() {
            return Ok(());
        }
        Err(Error::Config(format!(
            "{what} rank {rank}: this group has {} ranks",
            self.size()
        )))
    }

    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.engine.check_generation()
    }

    /// Ends this group while it is being made.
    pub(super) fn call_off(&self, error: &Error) {
        let name = (self.engine).with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map(|group| group.name.clone())
        });
        let Some(name) = name else { return };
        Making {
            engine: &self.engine,
            meeting: &self.meeting,
            id: self.id,
            name: &name,
            rank: self.rank,
        }
        .call_off(error);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.close();
    }
}

pub(crate) fn closed() -> Error {
    Error::Aborted {
        reason: "the group is closed".into(),
    }
}

/// Meets the other ranks, as [`Group::create`] does first: publishes this endpoint's address, and
/// learns theirs.
///
/// Every rank of the new group calls it with the same size and with a store that is used for this
/// purpose only. The formats of this build are put into the terms.
pub fn meet(
    endpoint: &Endpoint,
    store: &dyn Store,
    rank: u32,
    size: u32,
    terms: Terms,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<Meeting, Error> {
    let terms = Terms {
        formats: formats(),
        ..terms
    };
    weft_bootstrap::meet(endpoint, store, rank, size, terms, deadline, cancel)
}

type Engines = Vec<(EndpointId, Weak<Engine>)>;
static ENGINES: PerProcess<Mutex<Engines>> = PerProcess::new(Mutex::default);

/// The engine of an endpoint; started with its first group.
pub(super) fn engine_of(endpoint: &Arc<Endpoint>) -> Result<Arc<Engine>, Error> {
    let mut engines = engines();
    engines.retain(|(_, engine)| engine.strong_count() > 0);
    let id = endpoint.id();
    if let Some(engine) = find_engine(&engines, id) {
        return Ok(engine);
    }
    let engine = Engine::start(endpoint.clone())?;
    engines.push((id, Arc::downgrade(&engine)));
    Ok(engine)
}

/// The engine of an endpoint, if it has been started and is still used.
pub(super) fn running_engine(endpoint: EndpointId) -> Option<Arc<Engine>> {
    find_engine(&engines(), endpoint)
}

fn find_engine(engines: &Engines, endpoint: EndpointId) -> Option<Arc<Engine>> {
    let mut running = engines.iter().filter(|(id, _)| *id == endpoint);
    running.find_map(|(_, engine)| engine.upgrade())
}

fn engines() -> MutexGuard<'static, Engines> {
    ENGINES.get().lock().unwrap_or_else(PoisonError::into_inner)
}
