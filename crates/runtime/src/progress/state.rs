//! The engine's state behind its lock, and one pass over it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use weft_bootstrap::Endpoint;
use weft_call::Finished;
use weft_channel::{ChannelPart, PartSet};
use weft_transport::{EndpointId, FlushState, Link, LinkError, PolledMessages, Presence};

use super::breaking::NO_OPERATION;
use super::early_messages::EarlyMessages;
use super::group_state::GroupState;
use super::poller::Poller;
use super::questions::Questions;
use super::shrink_state::Shrinking;
use super::status::{Inquiries, WaitTime, Watchdog};
use crate::execution::{Budget, GroupFailure, Operation};
use crate::point_to_point::Route;

/// Interval of checks for deadlines and stalls.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// Interval of link polls without a notification.
const LINK_POLL: Duration = Duration::from_millis(1);
/// Bytes that one pass may move, so that threads that wait for the lock get it soon.
const PASS_BYTES: u64 = 2 << 20;
/// The number of closed groups that are remembered.
const CLOSED: usize = 1024;

/// A method of `Link` that sends queued data.
type Flush = fn(&(dyn Link + 'static)) -> Result<FlushState, LinkError>;

/// A link as the engine watches it.
pub(crate) struct WatchedLink {
    pub(crate) link: Arc<dyn Link>,
    /// The same, if its polled messages wait in memory.
    pub(super) polled: Option<Arc<dyn PolledMessages>>,
    /// See [`weft_transport::Capabilities::manual_progress`].
    pub(crate) manual: bool,
    /// Queued data waits for room in the link.
    pub(super) writing: bool,
}

/// Links that became ready on other threads, and wait to be added to the state.
#[derive(Default)]
pub(crate) struct ReadyLinks {
    /// Whether `links` has any, readable without the lock.
    waiting: AtomicBool,
    links: Mutex<Vec<Arc<dyn Link>>>,
}

impl ReadyLinks {
    pub(crate) fn add(&self, link: Arc<dyn Link>) {
        self.lock().push(link);
        self.waiting.store(true, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn Link>>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the progress engine.
pub(crate) struct ProgressState {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) groups: BTreeMap<u64, GroupState>,
    pub(crate) links: BTreeMap<u64, WatchedLink>,
    /// Links that are ready, and not watched yet.
    pub(crate) ready_links: Arc<ReadyLinks>,
    next_key: u64,
    pub(crate) poller: Poller,
    pub(super) early: EarlyMessages,
    pub(super) shrinks: HashMap<u64, Shrinking>,
    pub(super) questions: Questions,
    /// Endpoints whose processes have ended for certain, with the evidence.
    pub(crate) ended_processes: HashMap<EndpointId, String>,
    /// Ended links to peers that map this endpoint's memory and whose processes may still run.
    pub(crate) unproven_ends: Vec<Arc<dyn Link>>,
    /// Groups that were closed here recently.
    pub(crate) closed: VecDeque<u64>,
    pub(crate) inquiries: Inquiries,
    pub(crate) wait_time: Arc<WaitTime>,
    pub(super) watchdog: Watchdog,
    budget: Budget,
    now: Instant,
    polled: Instant,
    housekept: Instant,
    /// A notification ended a sleep, and is not handled yet.
    pub(crate) notified: bool,
    /// Whether any link progresses only by calls, so that sleeping must watch descriptors.
    pub(crate) manual_progress: bool,
}

impl ProgressState {
    pub(crate) fn new(endpoint: Arc<Endpoint>, poller: Poller) -> Self {
        let now = Instant::now();
        ProgressState {
            endpoint,
            groups: BTreeMap::new(),
            links: BTreeMap::new(),
            ready_links: Arc::default(),
            next_key: 0,
            poller,
            early: EarlyMessages::default(),
            shrinks: HashMap::new(),
            questions: Questions::default(),
            ended_processes: HashMap::new(),
            unproven_ends: Vec::new(),
            closed: VecDeque::new(),
            inquiries: Inquiries::default(),
            wait_time: Arc::default(),
            watchdog: Watchdog::default(),
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

    /// The number of unfinished operations, messages and sends.
    pub(crate) fn pending(&self) -> usize {
        let groups: usize = self.groups.values().map(GroupState::pending).sum();
        groups
            + self
                .links
                .values()
                .filter(|watched| watched.writing)
                .count()
    }

    /// Whether queued data waits for room in a link.
    pub(crate) fn unsent(&self) -> bool {
        self.links.values().any(|watched| watched.writing)
    }

    /// Starts watching links that have become ready since the last call.
    pub(crate) fn watch_ready_links(&mut self) {
        if self.ready_links.waiting.load(Ordering::Acquire) {
            // Cleared before the list is taken, so that the next pass sees links added meanwhile.
            self.ready_links.waiting.store(false, Ordering::Relaxed);
            let links = std::mem::take(&mut *self.ready_links.lock());
            links.into_iter().for_each(|link| self.watch(link));
        }
    }

    fn watch(&mut self, link: Arc<dyn Link>) {
        self.next_key += 1;
        if let Some(descriptor) = link.descriptor() {
            self.poller.add(descriptor, self.next_key);
        }
        // Data that arrived earlier may have notified before the link was watched.
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

    /// One pass: receives messages and advances every operation as far as possible. True if
    /// anything moved.
    pub(crate) fn pass(&mut self, finished: &mut Finished) -> bool {
        let mut progressed = false;
        let now = Instant::now();
        self.now = now;
        self.watch_ready_links();
        let notified =
            self.endpoint.doorbell().take_notification() || std::mem::take(&mut self.notified);
        self.resume(finished);
        if notified || self.manual_progress || now - self.polled > LINK_POLL {
            self.polled = now;
            progressed |= self.receive(notified, finished);
        }
        if self.awaits_polled_messages() {
            progressed |= self.receive_polled_messages(finished);
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

    /// The sequence numbers and groups of operations at the front of their lanes that `such`
    /// selects, by descending priority.
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

    /// The presence of an awaited peer: of several, the one most likely to continue soon.
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

    /// Executes a step for a rank that is behind, while nothing else can progress here. True if
    /// there was one.
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
                    self.on_operation_failure(id, sequence, failure, finished);
                    return true;
                }
            }
        }
        false
    }

    /// Advances every operation as far as possible, by descending priority.
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
        self.break_groups_awaiting_departed_ranks(finished);
        self.note_joined(finished);
        progressed
    }

    /// Advances one-sided operations as far as possible.
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
            self.on_operation_failure(id, NO_OPERATION, failure, finished);
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
                self.on_operation_failure(id, sequence, failure, finished);
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
            PartSet::from(ChannelPart::FIRST) | ChannelPart::FRAGMENTS,
        );
        if let Err(error) = group.connections.grant(pool, [rank], parts) {
            self.on_operation_failure(id, NO_OPERATION, GroupFailure::Other(error), finished);
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
                self.on_operation_failure(
                    id,
                    NO_OPERATION,
                    GroupFailure::Link(rank, error),
                    finished,
                );
                true
            }
        }
    }

    /// Sends queued data, and watches links for writability that could not take all of it.
    pub(crate) fn flush(&mut self, finished: &mut Finished) {
        self.flush_links(false, <dyn Link>::flush, finished);
    }

    /// Sends data that had no room before. The driver calls this first in a pass, which then looks
    /// at the operations that it completed.
    pub(crate) fn resume(&mut self, finished: &mut Finished) {
        self.flush_links(true, <dyn Link>::flush, finished);
    }

    /// Also sends signals that may be delayed, once there is nothing else to do.
    pub(crate) fn flush_late(&mut self, finished: &mut Finished) {
        self.flush_links(false, <dyn Link>::flush_late, finished);
    }

    fn flush_links(&mut self, writing: bool, flush: Flush, finished: &mut Finished) {
        let mut ended = Vec::new();
        // The other links send queued data by themselves.
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
            self.on_link_end(key, &link, error, finished);
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

    /// Remembers that a group is closed here, for as long as the state of its shrinking.
    pub(crate) fn note_closed(&mut self, id: u64) {
        self.closed.push_back(id);
        if self.closed.len() > CLOSED
            && let Some(oldest) = self.closed.pop_front()
        {
            self.shrinks.remove(&oldest);
        }
    }

    /// Adds a group, and delivers the messages that arrived for it before.
    pub(crate) fn add_group(&mut self, group: GroupState, finished: &mut Finished) {
        let id = group.id;
        let members = &group.connections.meeting.members;
        let lost = (0..).zip(members).find_map(|(rank, member)| {
            let detail = self.ended_processes.get(&member.address.id)?;
            Some((rank, detail.clone()))
        });
        self.groups.insert(id, group);
        if let Some((rank, detail)) = lost {
            self.lose_rank(id, rank, &detail, finished);
        }
        self.deliver_early(id, finished);
    }

    /// Ends the creation of groups whose control neighbours have all joined, or one of which never
    /// will.
    fn note_joined(&self, finished: &mut Finished) {
        for group in self.groups.values().filter(|group| !group.joined.is_over()) {
            if let Some(result) = group.neighbours_have_joined() {
                finished.push((group.joined.clone(), result));
            }
        }
    }

    /// The groups that a peer is a member of, with its rank in each.
    pub(super) fn memberships(&self, peer: EndpointId) -> Vec<(u64, u32)> {
        let ranks = self
            .groups
            .iter()
            .map(|(id, group)| (*id, group.connections.rank_of(peer)));
        ranks.filter_map(|(id, rank)| Some((id, rank?))).collect()
    }

    /// Any link to a peer, over any transport.
    pub(crate) fn any_link_to(&self, endpoint: EndpointId) -> Option<Arc<dyn Link>> {
        let mut links = self.links.values().map(|watched| &watched.link);
        links.find(|link| link.peer() == endpoint).cloned()
    }
}
