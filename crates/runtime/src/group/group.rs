//! Groups: creation, splitting, membership, abort and closing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use weft_bootstrap::{
    Endpoint, GroupTerms, Meeting, Member, Policy, Profile, Schedules, Store, Unshared,
    fail_meeting,
};
use weft_call::Completion;
use weft_channel::{ChannelLayout, Connections, ControlMessage, PartSet, formats};
use weft_schedule::WireFormat;
use weft_transport::{EndpointId, Link, PerProcess, TransportKind};

use super::counters::Counters;
use super::interruption::Interruption;
use super::setup_failure::GroupSetup;
use crate::Error;
use crate::execution::CallingThread;
use crate::progress::{Engine, GroupName, GroupState};
use crate::selection::{Selector, inherited};

/// Options of a new group.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// The timeout of operations, and of making the group.
    pub timeout: Duration,
    /// The group's name in messages.
    pub name: String,
    /// The ranks' numbers in the world for messages, if the group is a subset of the world.
    pub global_ranks: Option<Vec<u32>>,
    /// The policy for the choice of algorithms, the same on all ranks, and rank 0's profiles.
    pub terms: GroupTerms,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions {
            timeout: Duration::from_secs(300),
            name: "world".into(),
            global_ranks: None,
            terms: GroupTerms::default(),
        }
    }
}

/// Options of a group that is split off, as far as they differ from the parent's.
#[derive(Clone, Default, Debug)]
pub struct SplitOptions {
    /// The timeout of operations; the parent's if `None`.
    pub timeout: Option<Duration>,
    /// As [`Policy::algorithms`], the same on all ranks; the parent's if `None`.
    pub algorithms: Option<BTreeMap<String, String>>,
    /// As [`Policy::reproducible`]; the parent's if `None`.
    pub reproducible: Option<bool>,
    /// As [`Policy::wire`]; the parent's if `None`.
    pub wire: Option<WireFormat>,
    /// As [`Policy::levels`]; the parent's, restricted to the new ranks, if `None`.
    pub levels: Option<Vec<Vec<u32>>>,
    /// As [`Policy::schedules`]; those of the parent that fit the new group if `None`.
    pub schedules: Option<Schedules>,
    /// As [`Policy::domains`]; the parent's if `None`.
    pub domains: Option<Vec<Vec<u32>>>,
    /// Profiles for the choice of algorithms, the same on all ranks; the parent's if `None`.
    pub profiles: Option<Vec<Profile>>,
    /// The ranks' numbers in the world for messages; those in the group of the rendezvous if
    /// `None`.
    pub global_ranks: Option<Vec<u32>>,
    /// Whether the call waits until this rank's control neighbours have made the group too, as
    /// [`Group::create`] does.
    pub waits: bool,
}

/// A list of endpoints that communicate with each other, and this endpoint's rank in it.
///
/// All ranks of a group must issue its operations in the same order. Threads whose calls have no
/// fixed order must use different groups.
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
    /// The completion of operations that end within their call.
    pub(crate) done: Arc<Completion>,
    /// Set when they are first requested.
    pub(super) counters: Arc<OnceLock<Arc<Counters>>>,
}

impl Group {
    /// Meets the other ranks through the store and makes a group with them.
    ///
    /// Every rank calls it with the same `size` and with a store that is used for this group only.
    /// A rank may leave as soon as it has its group: other ranks' calls do not fail by that.
    ///
    /// # Errors
    ///
    /// - [`Error::Timeout`]: ranks are missing; it names them.
    /// - [`Error::Aborted`]: `cancel` is true.
    /// - [`Error::Config`]: settings of ranks differ.
    /// - [`Error::PeerLost`]: a rank has ended meanwhile.
    /// - The error of another rank that has made the group and broken it already.
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
        group.engine.answer_at(store);
        group
            .wait_for_neighbours(deadline, cancel)
            .inspect_err(|error| group.report_setup_failure(error))?;
        Ok(group)
    }

    /// Makes a group of ranks that have met. A failure here also fails the other ranks' calls.
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
            .inspect_err(|error| group.report_setup_failure(error))?;
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
            let setup = GroupSetup {
                engine: &engine,
                meeting: &meeting,
                id,
                name: &name,
                rank,
            };
            setup.report_failure(error);
        })?;
        let calling_thread = state.executor.calling_thread.clone();
        engine.with(|s, finished| s.add_group(state, finished));
        engine.serve_status();
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
        // All ranks of a machine compete for its cores, even if they share no memory.
        let machine = |member: &Member| member.address.machine().to_owned();
        let mine = machine(&meeting.members[rank as usize]);
        let here = meeting
            .members
            .iter()
            .filter(|member| machine(member) == mine);
        engine.note_local_ranks(here.count());
        // Handles ended links and processes first, so that they are not used and their memory is
        // free.
        engine.with(|state, finished| {
            state.notified = true;
            state.pass(finished);
            state.detect_process_ends(finished);
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
    /// Every member calls it with the same list, name and options, and equally often. If groups
    /// with common members have the same name, all ranks of this group call it in the same order.
    /// Unless [`SplitOptions::waits`] is set, it does not wait for other ranks: if a rank leaves
    /// before another member has split, that member's call may fail with [`Error::PeerLost`].
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if `ranks` is invalid, or if members pass different lists or options; the
    /// latter may also be reported when the new group is used. Otherwise as [`Group::create`].
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
                "rank {wrong} is not in this group, which has {size} ranks"
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
                .inspect_err(|error| group.report_setup_failure(error))?;
        }
        Ok(Some(group))
    }

    /// The options of a group of some of the ranks: those given, and this group's for the rest.
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
            terms: GroupTerms {
                policy,
                ..GroupTerms::default()
            },
        };
        (meeting, options)
    }

    /// The meeting of some of the ranks, without further communication.
    pub(super) fn meeting_of(&self, ranks: &[u32]) -> Meeting {
        let mut meeting = self.meeting.of_ranks(ranks);
        // A profile that was given explicitly is meant for its own group only.
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

    /// A number that identifies the group, the same on all ranks.
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
    ///
    /// # Errors
    ///
    /// [`Error::Aborted`] if the group is closed.
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

    /// Pairs of ranks on one machine that share no memory, as determined at the rendezvous; empty
    /// for a group that was made from another.
    pub fn unshared(&self) -> &[Unshared] {
        &self.meeting.unshared
    }

    /// The transport to another rank; `None` for this rank.
    pub fn transport(&self, rank: u32) -> Option<TransportKind> {
        (rank != self.rank && rank < self.size()).then(|| self.meeting.kind(self.rank, rank))
    }

    /// The name of the cipher between this rank and another; `None` if they share memory, or links
    /// are not encrypted.
    pub fn cipher(&self, rank: u32) -> Option<&'static str> {
        let kind = self.transport(rank)?;
        let member = &self.meeting.members[rank as usize];
        self.engine.endpoint().cipher(&member.address, kind)
    }

    /// The number of steps that this rank has executed for ranks that were behind.
    pub fn steps_helped(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.executor.steps_helped)
        })
    }

    /// Ensures that a rank has a link, a channel and these parts of this rank's memory.
    pub(crate) fn connect(
        &self,
        rank: u32,
        parts: PartSet,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), Error> {
        let address = &self.meeting.members[rank as usize].address;
        let link = (self.link(rank, deadline, cancel)).map_err(|error| match error {
            // The rendezvous delivered the address and its token, so a refusal means that the
            // process has ended and another listens there.
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

    /// The link to a rank. Connecting can be interrupted, and ends when the group does.
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
            self.receive_messages();
            cancel.load(Ordering::Relaxed) || self.broken().is_some()
        };
        Interruption::of_this_call()
            .watch(stops, |stop| endpoint.link(address, kind, deadline, stop))
    }

    /// Receives messages while perhaps no thread drives progress.
    pub(super) fn receive_messages(&self) {
        self.engine.with(|state, finished| {
            state.notified = true;
            state.pass(finished);
        });
    }

    /// Ends all operations of this group, here and on the other ranks, with [`Error::Aborted`]. May
    /// be called from any thread.
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

    /// Like [`Group::abort`], with the error of another group of the same ranks, if it is broken.
    pub fn abort_as(&self, other: &Group) {
        if self.check_usable().is_err() {
            return;
        }
        self.engine.with(|state, finished| {
            let report = state.groups.get(&other.id).and_then(GroupState::report);
            if let (Some(report), Some(group)) = (report, state.groups.get_mut(&self.id)) {
                self.cancel.store(true, Ordering::SeqCst);
                group.abort_as_reported(report, finished);
            }
        });
    }

    /// Breaks the group, here and on the other ranks: further calls fail. Operations that all ranks
    /// have issued continue.
    pub fn fail(&self, reason: &str) {
        if self.check_usable().is_ok() {
            self.break_with(&Error::Aborted {
                reason: reason.into(),
            });
        }
    }

    /// The group's error, if it is broken.
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

    /// Calls back when the group breaks, with its error, or when it is closed, without one.
    ///
    /// The callback runs on the thread that detects the failure: it must be short and must not
    /// wait.
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

    /// Leaves the group. Its unfinished operations fail with [`Error::Aborted`]. Idempotent.
    pub fn close(&self) {
        if self.check_usable().is_err() {
            return;
        }
        self.cancel.store(true, Ordering::SeqCst);
        let ended = self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id)?;
            if group.closed {
                return None;
            }
            finished.push((group.end.clone(), Ok(())));
            group.leave(&closed(), finished);
            group.closed = true;
            let ended = group.flight.close();
            let goodbye = ControlMessage::Detach {
                group: self.id,
                asks: false,
            };
            group.connections.send_to_all(&goodbye);
            let links = state.links.values().map(|watched| &watched.link);
            links.for_each(|link| state.detach_again(link));
            state.free_quarantined(self.id);
            ended
        });
        if let Some(job) = ended {
            self.engine.end_job(job);
        }
    }

    pub(crate) fn check_rank(&self, operation: &str, rank: u32) -> Result<(), Error> {
        if rank < self.size() {
            return Ok(());
        }
        Err(Error::Config(format!(
            "{operation} rank {rank}: this group has the ranks 0 to {}",
            self.size() - 1
        )))
    }

    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.engine.check_generation()
    }

    /// Ends this group during its set-up, here and on the other ranks.
    pub(super) fn report_setup_failure(&self, error: &Error) {
        let name = (self.engine).with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map(|group| group.name.clone())
        });
        let Some(name) = name else { return };
        GroupSetup {
            engine: &self.engine,
            meeting: &self.meeting,
            id: self.id,
            name: &name,
            rank: self.rank,
        }
        .report_failure(error);
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

/// Meets the other ranks, as the first step of [`Group::create`]: publishes this endpoint's
/// address, and receives theirs.
///
/// Every rank of the new group calls it with the same size and with a store that is used for this
/// purpose only. Adds the wire formats of this build to the terms.
///
/// # Errors
///
/// As [`Group::create`].
pub fn meet(
    endpoint: &Endpoint,
    store: &dyn Store,
    rank: u32,
    size: u32,
    terms: GroupTerms,
    deadline: Instant,
    cancel: &AtomicBool,
) -> Result<Meeting, Error> {
    let terms = GroupTerms {
        formats: formats(),
        ..terms
    };
    weft_bootstrap::meet(endpoint, store, rank, size, terms, deadline, cancel)
}

type Engines = Vec<(EndpointId, Weak<Engine>)>;
static ENGINES: PerProcess<Mutex<Engines>> = PerProcess::new(Mutex::default);

/// The engine of an endpoint, which is started with its first group.
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

/// The engine of an endpoint, if it is running.
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
