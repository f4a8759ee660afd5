//! The state under the engine's lock, and one pass over it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_bootstrap::Endpoint;
use weft_call::Finished;
use weft_channel::{Part, PartSet};
use weft_transport::{EndpointId, FlushState, Link, LinkError, PolledMessages, Presence};

use super::early_messages::EarlyMessages;
use super::group_state::GroupState;
use super::poller::Poller;
use super::shrink_state::Shrinking;
use crate::execution::{Budget, GroupFailure, Operation};
use crate::point_to_point::Route;

/// How often deadlines and stalls are looked at.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// How often links are looked at while nothing asks for it.
const LINK_POLL: Duration = Duration::from_millis(1);
/// Bytes that one pass may move, so that whoever waits for the lock gets it soon.
const PASS_BYTES: u64 = 2 << 20;
/// Closed groups that are remembered.
const CLOSED: usize = 1024;

/// A way to send what a link has queued.
type Flush = fn(&(dyn Link + 'static)) -> Result<FlushState, LinkError>;

/// A link as the engine watches it.
pub(crate) struct WatchedLink {
    pub(crate) link: Arc<dyn Link>,
    /// The same, if its polled messages wait in memory.
    pub(super) polled: Option<Arc<dyn PolledMessages>>,
    /// See [`weft_transport::Capabilities::manual_progress`].
    pub(crate) manual: bool,
    /// Something waits for room in it.
    writing: bool,
}

/// Links that became ready on other threads, on their way to the state.
#[derive(Default)]
pub(crate) struct Newcomers {
    /// Spares passes the lock.
    waiting: AtomicBool,
    links: Mutex<Vec<Arc<dyn Link>>>,
}

impl Newcomers {
    pub(crate) fn add(&self, link: Arc<dyn Link>) {
        self.lock().push(link);
        self.waiting.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that progress needs.
pub(crate) struct ProgressState {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) groups: HashMap<u64, GroupState>,
    pub(crate) links: HashMap<u64, WatchedLink>,
    /// Links that are ready, and not watched yet.
    pub(crate) newcomers: Arc<Newcomers>,
    next_key: u64,
    pub(crate) poller: Poller,
    pub(super) early: EarlyMessages,
    pub(super) shrinks: HashMap<u64, Shrinking>,
    /// Endpoints whose processes have ended, as is proven, and what was seen of it.
    pub(crate) known_dead: HashMap<EndpointId, String>,
    /// Links that have ended, to peers that map this endpoint's memory and may still live.
    pub(crate) unproven: Vec<Arc<dyn Link>>,
    /// Groups that were closed here not long ago.
    pub(crate) closed: VecDeque<u64>,
    budget: Budget,
    now: Instant,
    polled: Instant,
    housekept: Instant,
    /// A notification that ended a sleep and is not acted on yet.
    pub(crate) notified: bool,
    /// Whether any link makes progress by calls only, so that sleeping must watch descriptors.
    pub(crate) manual_progress: bool,
}

impl ProgressState {
    pub(crate) fn new(endpoint: Arc<Endpoint>, poller: Poller) -> Self {
        let now = Instant::now();
        ProgressState {
            endpoint,
            groups: HashMap::new(),
            links: HashMap::new(),
            newcomers: Arc::default(),
            next_key: 0,
            poller,
            early: EarlyMessages::default(),
            shrinks: HashMap::new(),
            known_dead: HashMap::new(),
            unproven: Vec::new(),
            closed: VecDeque::new(),
            budget: Budget {
                bytes: 0,
                addresses: Vec::new(),
            },
            now,
            polled: now,
            housekept: now,
            notified: false,
            manual_progress: false,
        }
    }

    /// The number of things under way.
    pub(crate) fn pending(&self) -> usize {
        let groups: usize = self.groups.values().map(GroupState::pending).sum();
        groups
            + self
                .links
                .values()
                .filter(|watched| watched.writing)
                .count()
    }

    /// Whether anything waits for room in a link.
    pub(crate) fn unsent(&self) -> bool {
        self.links.values().any(|watched| watched.writing)
    }

    /// Starts watching links that have become ready since the last time.
    pub(crate) fn adopt(&mut self) {
        if self.newcomers.waiting.load(Ordering::Acquire) {
            // Before the list is taken: what is added meanwhile is seen by the next pass.
            self.newcomers.waiting.store(false, Ordering::Relaxed);
            let links = std::mem::take(&mut *self.newcomers.lock());
            links.into_iter().for_each(|link| self.watch(link));
        }
    }

    fn watch(&mut self, link: Arc<dyn Link>) {
        self.next_key += 1;
        if let Some(descriptor) = link.descriptor() {
            self.poller.add(descriptor, self.next_key);
        }
        // What came before this moment has notified already, perhaps in vain.
        self.endpoint.doorbell().notify();
        self.detach_again(&link);
        let manual = link.capabilities().manual_progress;
        self.manual_progress |= manual;
        let watched = WatchedLink {
            polled: Arc::clone(&link).polled_messages(),
            link,
            manual,
            writing: false,
        };
        self.links.insert(self.next_key, watched);
    }

    /// One pass: takes in what has arrived and takes every operation as far as it goes. True if
    /// anything moved.
    pub(crate) fn pass(&mut self, finished: &mut Finished) -> bool {
        let mut progressed = false;
        let now = Instant::now();
        self.now = now;
        self.adopt();
        let notified =
            self.endpoint.doorbell().take_notification() || std::mem::take(&mut self.notified);
        self.resume(finished);
        if notified || self.manual_progress || now - self.polled > LINK_POLL {
            self.polled = now;
            progressed |= self.receive(notified, finished);
        }
        if self.awaits_polled_messages() {
            progressed |= self.take_polled_message(finished);
        }
        self.budget.bytes = PASS_BYTES;
        progressed |= self.advance(finished);
        if !progressed {
            progressed = self.help(finished);
        }
        match progressed {
            true => self.flush(finished),
            false => self.flush_late(finished),
        }
        if now - self.housekept > HOUSEKEEPING {
            self.housekept = now;
            self.housekeep(now, finished);
        }
        progressed
    }

    /// Such operations whose turn has come, the most urgent first: their numbers and groups.
    fn in_order(&self, such: fn(&Operation) -> bool) -> Vec<(u64, u64)> {
        let mut order: Vec<(std::cmp::Reverse<i32>, u64, u64)> = Vec::new();
        for (id, group) in self.groups.iter().filter(|(_, g)| g.suspicion.is_none()) {
            let front = group.executor.front().filter(|op| such(op));
            order.extend(front.map(|op| (std::cmp::Reverse(op.call.priority), op.sequence, *id)));
        }
        order.sort_unstable();
        let numbers = order.into_iter().map(|(_, sequence, id)| (sequence, id));
        numbers.collect()
    }

    /// Where the peer is that something waits for: of several, one that will soon go on.
    pub(crate) fn awaited_peer(&self) -> Presence {
        let rank_of = |presence: &Presence| match presence {
            Presence::Away { .. } => (0, Duration::ZERO),
            Presence::Unknown { round_trip } => (1, *round_trip),
            Presence::Inside { .. } => (2, Duration::ZERO),
        };
        let awaited = self.groups.values().flat_map(GroupState::awaited_peers);
        awaited
            .max_by_key(rank_of)
            .unwrap_or(Presence::Away { core: None })
    }

    /// Executes a step of some rank that is behind, as nothing else can go on here. True if there
    /// was one.
    fn help(&mut self, finished: &mut Finished) -> bool {
        for (sequence, id) in self.in_order(Operation::may_help) {
            let Some(group) = self.groups.get_mut(&id) else {
                continue;
            };
            let pool = self.endpoint.pool().segment();
            let GroupState {
                executor,
                connections,
                ..
            } = group;
            match executor.help(connections, sequence, pool, &mut self.budget) {
                Ok(false) => {}
                Ok(true) => return true,
                Err(failure) => {
                    self.fail(id, sequence, failure, finished);
                    return true;
                }
            }
        }
        false
    }

    /// Takes every operation as far as it goes, the most urgent first.
    fn advance(&mut self, finished: &mut Finished) -> bool {
        let mut progressed = false;
        for (sequence, id) in self.in_order(|_| true) {
            progressed |= self.advance_operation(id, sequence, finished);
        }
        let busy: Vec<(u64, u32)> = self
            .groups
            .iter()
            .flat_map(|(id, group)| group.matching.busy().into_iter().map(|rank| (*id, rank)))
            .collect();
        for (id, rank) in busy {
            progressed |= self.advance_messages(id, rank, finished);
        }
        progressed |= self.advance_one_sided(finished);
        self.fail_where_ranks_are_missing(finished);
        self.note_joined(finished);
        progressed
    }

    /// Takes one-sided operations as far as they go.
    fn advance_one_sided(&mut self, finished: &mut Finished) -> bool {
        let mut progressed = false;
        let mut failures = Vec::new();
        let busy = |group: &&mut GroupState| group.one_sided.pending() > 0;
        for group in self.groups.values_mut().filter(busy) {
            match group.advance_one_sided(finished) {
                Ok(moved) => progressed |= moved,
                Err(failure) => failures.push((group.id, failure)),
            }
        }
        progressed |= !failures.is_empty();
        for (id, failure) in failures {
            self.fail(id, u64::MAX, failure, finished);
        }
        progressed
    }

    fn advance_operation(&mut self, id: u64, sequence: u64, finished: &mut Finished) -> bool {
        let Some(group) = self.groups.get_mut(&id) else {
            return false;
        };
        let pool = self.endpoint.pool();
        let GroupState {
            executor,
            connections,
            ..
        } = group;
        let budget = &mut self.budget;
        match executor.advance(connections, sequence, pool, budget, self.now, finished) {
            Ok(progressed) => {
                group.report_failed(finished);
                progressed
            }
            Err(failure) => {
                self.fail(id, sequence, failure, finished);
                true
            }
        }
    }

    fn advance_messages(&mut self, id: u64, rank: u32, finished: &mut Finished) -> bool {
        let Some(group) = self.groups.get_mut(&id) else {
            return false;
        };
        let (pool, parts) = (
            self.endpoint.pool(),
            PartSet::from(Part::FIRST) | Part::FRAGMENTS,
        );
        if let Err(error) = group.connections.grant(pool, [rank], parts) {
            self.fail(id, u64::MAX, GroupFailure::Other(error), finished);
            return true;
        }
        let GroupState {
            connections,
            matching,
            ..
        } = group;
        let link = &connections.links[rank as usize];
        let (Some(link), Some(channel)) = (link, &connections.channels[rank as usize]) else {
            return false;
        };
        if !channel.is_granted(parts) {
            return false;
        }
        let route = Route {
            link: link.as_ref(),
            channel,
            layout: connections.layout,
            pool: pool.segment(),
            registrations: &connections.registrations,
            count_staged: &|bytes| connections.count_staged(bytes),
        };
        match matching.advance(rank, &route, finished) {
            Ok(moved) => moved,
            Err(error) => {
                self.fail(id, u64::MAX, GroupFailure::Link(rank, error), finished);
                true
            }
        }
    }

    /// Sends what was queued since the last time, and watches for writability where not all could
    /// go.
    pub(crate) fn flush(&mut self, finished: &mut Finished) {
        self.flush_links(false, <dyn Link>::flush, finished);
    }

    /// Sends what had no room before. What is complete then must be looked at: so whoever drives
    /// does this, before anything else.
    pub(crate) fn resume(&mut self, finished: &mut Finished) {
        self.flush_links(true, <dyn Link>::flush, finished);
    }

    /// Sends also the signals that may be late: as soon as there is nothing else to do.
    pub(crate) fn flush_late(&mut self, finished: &mut Finished) {
        self.flush_links(false, <dyn Link>::flush_late, finished);
    }

    fn flush_links(&mut self, writing: bool, flush: Flush, finished: &mut Finished) {
        let mut ended = Vec::new();
        // The others send by themselves what waits.
        let such = |watched: &WatchedLink| watched.manual && watched.writing == writing;
        for (key, watched) in self.links.iter_mut().filter(|(_, watched)| such(watched)) {
            match flush(watched.link.as_ref()) {
                Ok(progress) => {
                    let writing = progress == FlushState::Pending;
                    if writing != watched.writing {
                        watched.writing = writing;
                        if let Some(descriptor) = watched.link.descriptor() {
                            self.poller.change(descriptor, *key, writing);
                        }
                    }
                }
                Err(error) => ended.push((*key, watched.link.clone(), error)),
            }
        }
        for (key, link, error) in ended {
            self.link_ended(key, &link, error, finished);
        }
    }

    /// Stops watching a link.
    pub(crate) fn unwatch(&mut self, key: u64) {
        if let Some(watched) = self.links.remove(&key)
            && let Some(descriptor) = watched.link.descriptor()
        {
            self.poller.remove(descriptor);
        }
    }

    /// Takes note that a group is closed here. What was agreed on when it shrank is kept as long.
    pub(crate) fn note_closed(&mut self, id: u64) {
        self.closed.push_back(id);
        if self.closed.len() > CLOSED
            && let Some(oldest) = self.closed.pop_front()
        {
            self.shrinks.remove(&oldest);
        }
    }

    /// Adds a group, and hands it what came for it before.
    pub(crate) fn add_group(&mut self, group: GroupState, finished: &mut Finished) {
        let id = group.id;
        let members = &group.connections.meeting.members;
        let lost = (0..).zip(members).find_map(|(rank, member)| {
            let detail = self.known_dead.get(&member.address.id)?;
            Some((rank, detail.clone()))
        });
        self.groups.insert(id, group);
        if let Some((rank, detail)) = lost {
            self.lose(id, rank, &detail, finished);
        }
        self.hand_over_early(id, finished);
    }

    /// Takes note of groups whose control neighbours are waited for and have made them, or never
    /// will.
    fn note_joined(&self, finished: &mut Finished) {
        for group in self.groups.values().filter(|group| !group.joined.is_over()) {
            if let Some(result) = group.neighbours_have_joined() {
                finished.push((group.joined.clone(), result));
            }
        }
    }
}
