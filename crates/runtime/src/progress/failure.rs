//! Failures: lost ranks, broken links, failed operations and timeouts, and the groups that they
//! end.
//!
//! # Terms
//!
//! - A *link* connects this process to a peer process. All groups of the two processes share it.
//! - An operation *fails*; a group *breaks*, and then all its incomplete operations fail.
//! - A group's collective operations are numbered in the order in which its ranks call them. A
//!   failure `sequence` is the first operation that fails, or `NO_OPERATION`.
//! - A rank has *departed* from a group when nothing more arrives from it: it has left in order,
//!   its link has ended, or it is lost. It has *detached* when it also accesses no memory of this
//!   rank any more.
//! - `finished` collects operations that have ended, with their results. The engine wakes their
//!   waiters after it has released its lock.
//!
//! # Sources of failure
//!
//! - The peer closes the link in order (`LinkError::Left`): `on_goodbye`. If a message or a
//!   one-sided operation still needs the rank, its group breaks; collective operations fail when
//!   they send to it or wait for it.
//! - A peer leaves one group (`on_detach`), with the same effect in that group.
//! - The link breaks, and the process may still run: `on_broken_link`. The groups over this link
//!   break. A later group connects again.
//! - The peer's process has ended, as this host's kernel reports: `on_process_end`. All groups with
//!   that process break, also those that are made later.
//! - An operation cannot continue, as a send or the system fails: `on_operation_failure`. It fails
//!   together with all later operations.
//! - A deadline passes, ranks made different calls (desync), or no descriptor is left for peers
//!   that connect: `housekeep`, with the checks in `stalls.rs`. The group breaks.
//! - A member reports that the group is broken: `GroupState::break_as_reported` in `breaking.rs`.
//!
//! # Rules
//!
//! 1. Messages first, failure second: what a lost rank, or one that reports a broken group, sent
//!    before is read before the failure is handled (`drain_links`). It may complete operations, or
//!    name the original cause.
//! 2. A broken group stays broken. Each rank reports how many operations it had called, and the
//!    lowest number decides which still complete; see [Note: Failures are ordered] in
//!    `breaking.rs`.
//! 3. Every rank that learns of a failure sends it on to the members that it has links to, so that
//!    it also reaches ranks without a link to the lost one. Messages of ranks that are no members
//!    are ignored, but for reports of a parent group (`control_messages.rs`).
//! 4. Memory that a lost rank may still write stays reserved until its process has ended or has
//!    detached, or, where memory is not mapped, its link has ended; see [Note: Quarantine] in
//!    `crates/channel/src/connections.rs`.

use std::sync::Arc;
use std::time::Instant;

use weft_call::{Finished, RAISE_ULIMIT_HINT};
use weft_transport::{EndpointId, Inbox, Link, LinkError};

use super::group_state::GroupState;
use super::state::{ProgressState, WatchedLink};
use crate::Error;
use crate::execution::GroupFailure;

impl ProgressState {
    /// Handles the end of a link, however it ended.
    pub(crate) fn on_link_end(
        &mut self,
        key: u64,
        link: &Arc<dyn Link>,
        error: LinkError,
        finished: &mut Finished,
    ) {
        self.unwatch(key);
        // A send can fail before what the peer sent earlier has been read.
        let receive = |inbox: &mut dyn Inbox| link.receive(inbox);
        let _ = self.receive_from(link.peer(), receive, finished);
        // The ended link itself is not watched any more.
        let same =
            |other: &Arc<dyn Link>| other.peer() == link.peer() && other.kind() == link.kind();
        match error {
            // Both processes connected at the same moment: the other link remains.
            LinkError::Left if self.links.values().any(|watched| same(&watched.link)) => {}
            LinkError::Left => self.on_goodbye(link),
            error => self.on_broken_link(link, &error, finished),
        }
    }

    /// The peer closed the link in order, after it had sent everything. Operations that need more
    /// from it fail later, in `break_groups_awaiting_departed_ranks` or when they send.
    fn on_goodbye(&mut self, link: &Arc<dyn Link>) {
        for (id, rank) in self.memberships(link.peer()) {
            self.mark_departed(id, rank);
        }
        self.early.on_goodbye(link.peer());
        self.questions.forget(link.peer());
        self.endpoint.forget(link);
        self.watch_for_end(link);
    }

    /// The link ended without a goodbye: breaks the groups over it, or all groups with the peer if
    /// its process has ended.
    fn on_broken_link(&mut self, link: &Arc<dyn Link>, error: &LinkError, finished: &mut Finished) {
        self.endpoint.forget(link);
        let detail = describe_end(link.as_ref(), error);
        self.break_early_groups(link.peer(), &detail);
        self.questions.forget(link.peer());
        if link.peer_has_ended() {
            return self.on_process_end(link.peer(), &detail, finished);
        }
        for (id, rank) in self.memberships(link.peer()) {
            let over_it = |group: &GroupState| group.connections.uses_link(rank, link);
            if self.groups.get(&id).is_some_and(over_it) {
                self.lose_rank(id, rank, &detail, finished);
            }
        }
        self.watch_for_end(link);
    }

    /// A peer's process has ended for certain: breaks all groups with it, and remembers it for
    /// groups that are made later.
    pub(super) fn on_process_end(
        &mut self,
        peer: EndpointId,
        detail: &str,
        finished: &mut Finished,
    ) {
        debug_assert_ne!(peer, self.endpoint.id(), "no link leads to the own process");
        self.ended_processes.insert(peer, detail.into());
        self.break_early_groups(peer, detail);
        for (id, rank) in self.memberships(peer) {
            self.lose_rank(id, rank, detail, finished);
        }
        self.notify_shrinking_groups(peer, finished);
    }

    /// Breaks a group with `PeerLost` for one of its ranks, unless the rank had left it in order.
    pub(crate) fn lose_rank(&mut self, id: u64, rank: u32, detail: &str, finished: &mut Finished) {
        self.drain_links(id, |_| true, finished);
        let group = self.groups.get_mut(&id);
        if let Some(group) = group.filter(|group| !group.connections.departed[rank as usize]) {
            let host = group.connections.host_name(rank).to_string();
            let error = Error::PeerLost {
                rank: Some(rank),
                host,
                detail: detail.into(),
            };
            group.break_group(&error, finished);
        }
        self.mark_departed(id, rank);
    }

    /// Breaks a group because its operation `sequence` failed here.
    pub(crate) fn on_operation_failure(
        &mut self,
        id: u64,
        sequence: u64,
        failure: GroupFailure,
        finished: &mut Finished,
    ) {
        if let GroupFailure::Link(rank, LinkError::Left | LinkError::Gone(_)) = &failure {
            self.drain_links(id, |peer| peer == *rank, finished);
        }
        if let GroupFailure::Link(rank, error @ (LinkError::Gone(_) | LinkError::Protocol(_))) =
            &failure
        {
            self.on_broken_link_of_rank(id, *rank, error, finished);
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        if group.broken.is_some() {
            return group.end_from(sequence, finished);
        }
        let error = match failure {
            GroupFailure::Desync { rank, mine, theirs } => {
                return group.on_desync_report(sequence, rank, Some(mine), theirs, finished);
            }
            GroupFailure::Other(error) => error,
            // `on_broken_link_of_rank` did not break the group, since the rank had left it before.
            GroupFailure::Link(_, LinkError::Gone(_) | LinkError::Protocol(_)) => return,
            GroupFailure::Link(rank, error) => {
                Error::from_link(error, Some(rank), group.connections.host_name(rank))
            }
        };
        group.break_group_from(sequence, &error, finished);
    }

    /// An operation found the link to a rank broken.
    fn on_broken_link_of_rank(
        &mut self,
        id: u64,
        rank: u32,
        error: &LinkError,
        finished: &mut Finished,
    ) {
        let group = self.groups.get(&id);
        let link = group.and_then(|group| group.connections.links[rank as usize].clone());
        if let Some(link) = link {
            self.on_broken_link(&link, error, finished);
        }
    }

    /// A peer has left a group, and no longer accesses memory that it was granted for it.
    pub(super) fn on_detach(&mut self, id: u64, rank: u32) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.connections.detached[rank as usize] = true;
        }
        self.mark_departed(id, rank);
    }

    /// Records that a rank sends nothing more in a group.
    fn mark_departed(&mut self, id: u64, rank: u32) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.connections.departed[rank as usize] = true;
        }
        self.free_quarantined(id);
    }

    /// Breaks groups whose messages or one-sided operations wait for a rank that has left. Call it
    /// after all received messages have been handled.
    pub(crate) fn break_groups_awaiting_departed_ranks(&mut self, finished: &mut Finished) {
        for group in self
            .groups
            .values_mut()
            .filter(|group| group.matching.pending() + group.one_sided.pending() > 0)
        {
            if let Some(rank) = group.awaited_departed_rank() {
                let error = Error::from_link(
                    LinkError::Left,
                    Some(rank),
                    group.connections.host_name(rank),
                );
                group.break_group(&error, finished);
            }
        }
    }

    /// Breaks groups in which some ranks are not connected to this process, which has no descriptor
    /// left to accept them. Otherwise they would time out and blame this process without its cause.
    fn break_groups_awaiting_connections(&mut self, finished: &mut Finished) {
        let error = Error::Config(format!(
            "other ranks cannot connect to this process: it has no descriptor left. {RAISE_ULIMIT_HINT}"
        ));
        for group in self.groups.values_mut() {
            if group.broken.is_none() && !group.closed && group.connections.awaits_connections() {
                group.break_group(&error, finished);
            }
        }
    }

    /// Periodic checks: ended processes, exhausted descriptors, deadlines, and operations that make
    /// no progress.
    pub(crate) fn housekeep(&mut self, now: Instant, finished: &mut Finished) {
        self.detect_process_ends(finished);
        if self.endpoint.take_descriptor_shortage() {
            self.break_groups_awaiting_connections(finished);
        }
        for group in self.groups.values_mut() {
            if let Some(error) = group.stall_error(now, &self.questions) {
                group.break_group(&error, finished);
            }
            group.give_up_stuck_operations(now, finished);
            group.query_stalled_peers(now);
        }
        self.ask_awaited_peers(now);
        self.report_long_waits(now);
    }

    /// Reads all pending messages of the links to those ranks of a group that `from` selects.
    pub(super) fn drain_links(
        &mut self,
        id: u64,
        from: impl Fn(u32) -> bool,
        finished: &mut Finished,
    ) {
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        let is_from = |watched: &WatchedLink| {
            let mut ranks = (0..group.size()).filter(|rank| from(*rank));
            ranks.any(|rank| group.connections.uses_link(rank, &watched.link))
        };
        let selected = (self.links.iter()).filter(|(_, watched)| is_from(watched));
        let keys: Vec<u64> = selected.map(|(key, _)| *key).collect();
        self.receive_from_all(&keys, finished);
        self.receive_polled_from_all(&keys, finished);
    }
}

/// Describes how a link ended, and whether the process behind it has ended.
fn describe_end(link: &dyn Link, error: &LinkError) -> String {
    let detail = match error {
        LinkError::Gone(why) => why.clone(),
        error => error.to_string(),
    };
    match link.peer_has_ended() {
        true => detail,
        false => format!("{detail}; its process may have ended, or may still run"),
    }
}
