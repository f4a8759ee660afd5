//! Handling of control messages, and of failures: lost links, timeouts, desyncs and aborts.
//!
//! The end of a link breaks the groups over it. If the peer's process has ended, as is proven, all
//! groups with it break, now and later; a connection that has only broken is forgotten, and made
//! anew for a later group. All members of a broken group are told over its links, each passes it
//! on, and nobody else is believed. See also [Note: Quarantine].

use std::sync::Arc;
use std::time::Instant;

use weft_call::Finished;
use weft_call::RAISE_LIMIT;
use weft_channel::{ControlMessage, ENVELOPE_BYTES, GrantedPart, Part, PartSet};
use weft_memory::PieceSize;
use weft_transport::{EndpointId, Inbox, Link, LinkError, RegionKey};

use super::group_state::GroupState;
use super::received::ReceivedMessage;
use super::state::{ProgressState, WatchedLink};
use crate::Error;
use crate::execution::GroupFailure;

impl ProgressState {
    /// Acts on a message.
    pub(crate) fn handle(&mut self, received: ReceivedMessage<'_>, finished: &mut Finished) {
        let id = received.message.group();
        if let ControlMessage::Shrink { word, .. } = &received.message {
            return self.hear_shrink(id, received.from, word, finished);
        }
        let Some(group) = self.groups.get(&id) else {
            return self.keep(received, finished);
        };
        let Some(rank) = group.connections.rank_of(received.from) else {
            return self.hear_stranger(id, received, finished);
        };
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let result = match received.message {
            ControlMessage::Grant { parts, .. } => self.grant(id, rank, &parts),
            ControlMessage::Detach { asks, .. } => {
                if asks && group.closed {
                    let answer = ControlMessage::Detach {
                        group: id,
                        asks: false,
                    };
                    self.tell(received.from, &answer);
                }
                self.detached(id, rank);
                Ok(())
            }
            ControlMessage::Symmetric {
                id: piece,
                bytes,
                signals,
                region,
                ..
            } => {
                let size = PieceSize { bytes, signals };
                let (ranks, link) = (group.size(), &group.connections.links[rank as usize]);
                let region = region.map(RegionKey);
                let part = link
                    .as_ref()
                    .zip(region)
                    .and_then(|(link, region)| link.memory(region));
                let part = (region, part);
                (group.executor.symmetric)
                    .arrived(rank, ranks, piece, size, part)
                    .map_err(|error| GroupFailure::Link(rank, error))
            }
            ControlMessage::SymmetricFailed {
                id: piece,
                bytes,
                signals,
                error,
                ..
            } => {
                let size = PieceSize { bytes, signals };
                let ranks = group.size();
                (group.executor.symmetric)
                    .failed(ranks, piece, size, error)
                    .map_err(|error| GroupFailure::Link(rank, error))
            }
            ControlMessage::Released { id: piece, .. } => {
                group.executor.symmetric.released(rank, piece);
                Ok(())
            }
            ControlMessage::Broken {
                error,
                origin,
                limit,
                ..
            } => {
                self.drain_links(id, |_| true, finished);
                if let Some(group) = self.groups.get_mut(&id) {
                    group.told_broken(error, origin, limit, finished);
                }
                Ok(())
            }
            ControlMessage::Query {
                sequence,
                fingerprint,
                ..
            } => {
                group.answer(rank, sequence, fingerprint);
                Ok(())
            }
            ControlMessage::Different {
                sequence,
                fingerprint,
                ..
            } => {
                group.differs(sequence, rank, None, fingerprint, finished);
                Ok(())
            }
            ControlMessage::History { recent, .. } => {
                group.compare(rank, &recent, finished);
                Ok(())
            }
            ControlMessage::Split { split, .. } => {
                self.hear_split(id, rank, &split, finished);
                Ok(())
            }
            ControlMessage::OneSided { word, .. } => {
                group.hear_one_sided(rank, word, &received.payload, finished)
            }
            message => self.point_to_point(id, rank, message, &received.payload, finished),
        };
        match result {
            // That is told when the link is read, behind what the peer has said before.
            Ok(()) | Err(GroupFailure::Link(_, LinkError::Left | LinkError::Gone(_))) => {}
            Err(failure) => self.fail(id, u64::MAX, failure, finished),
        }
    }

    fn grant(&mut self, id: u64, rank: u32, parts: &[GrantedPart]) -> Result<(), GroupFailure> {
        self.answer_grant(id, rank, parts)?;
        match self.groups.get_mut(&id) {
            // Without a channel, the link has ended since: who needs it is told when it asks for
            // it.
            Some(group) if group.connections.channels[rank as usize].is_some() => group
                .granted(rank, parts)
                .map_err(|error| GroupFailure::Link(rank, error)),
            _ => Ok(()),
        }
    }

    /// A peer that grants wants a channel, and these parts of it: makes sure that there are such in
    /// return. A group that is over takes no memory any more.
    fn answer_grant(
        &mut self,
        id: u64,
        rank: u32,
        parts: &[GrantedPart],
    ) -> Result<(), GroupFailure> {
        let Some(group) = self.groups.get(&id) else {
            return Ok(());
        };
        let peer = group.connections.meeting.members[rank as usize].address.id;
        let kind = group.connections.meeting.kind(group.connections.rank, rank);
        let mut links = self.links.values().map(|watched| &watched.link);
        let link = links
            .find(|link| link.peer() == peer && link.kind() == kind)
            .cloned();
        let (Some(group), Some(link)) = (self.groups.get_mut(&id), link) else {
            return Ok(());
        };
        let opened = group.connections.open_channel(rank, &link);
        opened.map_err(GroupFailure::Other)?;
        if group.closed || group.broken.is_some() {
            return Ok(());
        }
        let parts = parts.iter().filter_map(|part| Part::numbered(part.part));
        let parts = parts.fold(PartSet::NONE, |set, part| set | part);
        (group.connections)
            .grant(self.endpoint.pool(), [rank], parts)
            .map_err(GroupFailure::Other)
    }

    /// A link to an endpoint, of whatever kind.
    pub(crate) fn any_link_to(&self, endpoint: EndpointId) -> Option<Arc<dyn Link>> {
        let mut links = self.links.values().map(|watched| &watched.link);
        links.find(|link| link.peer() == endpoint).cloned()
    }

    fn point_to_point(
        &mut self,
        id: u64,
        rank: u32,
        message: ControlMessage,
        payload: &[u8],
        finished: &mut Finished,
    ) -> Result<(), GroupFailure> {
        let linked = |state: &ProgressState| {
            state
                .groups
                .get(&id)
                .is_some_and(|g| g.connections.is_linked(rank))
        };
        if !linked(self) {
            self.answer_grant(id, rank, &[])?;
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return Ok(());
        };
        let answer = match message {
            ControlMessage::Eager { tag, .. } => {
                group.matching.whole((id, rank), tag, payload, finished)
            }
            ControlMessage::Offer {
                tag,
                id: offer,
                bytes,
                ..
            } => group
                .matching
                .offered((id, rank), tag, (offer, bytes), finished),
            ControlMessage::Ready {
                id: offer, taken, ..
            } => group.matching.ready((id, rank), offer, taken),
            ControlMessage::Refused {
                id: offer,
                expected,
                ..
            } => group
                .matching
                .refused((id, rank), offer, expected, finished),
            ControlMessage::Unfit { sent, expected, .. } => {
                group.matching.unfit(rank, sent, expected);
                None
            }
            _ => None,
        };
        (group.matching.check(rank)).map_err(|error| GroupFailure::Link(rank, error))?;
        match (answer, &group.connections.links[rank as usize]) {
            (Some(answer), Some(link)) => {
                let sent = link.polled_message(&[answer.envelope(&mut [0; ENVELOPE_BYTES])]);
                sent.map_err(|error| GroupFailure::Link(rank, error))
            }
            _ => Ok(()),
        }
    }

    /// Who is not in a group may only break it as one that has listed other ranks for it, where a
    /// group of both has split it off.
    fn hear_stranger(&mut self, id: u64, received: ReceivedMessage<'_>, finished: &mut Finished) {
        let mut groups = self.groups.values();
        let knows = groups.any(|group| {
            group.splits.has_made(id) && group.connections.rank_of(received.from).is_some()
        });
        if let (
            true,
            ControlMessage::Broken {
                error,
                origin,
                limit,
                ..
            },
        ) = (knows, received.message)
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.told_broken(error, origin, limit, finished);
        }
    }

    /// A link is of no more use.
    pub(crate) fn link_ended(
        &mut self,
        key: u64,
        link: &Arc<dyn Link>,
        error: LinkError,
        finished: &mut Finished,
    ) {
        self.unwatch(key);
        // Where sending failed, what the peer had to say before may still be unread.
        let receive = |inbox: &mut dyn Inbox| link.receive(inbox);
        let _ = self.take_in(link.peer(), receive, finished);
        let same =
            |other: &Arc<dyn Link>| other.peer() == link.peer() && other.kind() == link.kind();
        match error {
            // One of two links that were made at the same moment.
            LinkError::Left if self.links.values().any(|watched| same(&watched.link)) => {}
            LinkError::Left => self.left(link),
            error => self.lost(link, &error, finished),
        }
    }

    /// A peer has said goodbye. What it has sent is there; what waits for more from it will fail.
    fn left(&mut self, link: &Arc<dyn Link>) {
        for (id, rank) in self.memberships(link.peer()) {
            self.departed(id, rank);
        }
        self.early.left(link.peer());
        self.endpoint.forget(link);
        self.watch_for_end(link);
    }

    /// A link has ended without a goodbye.
    fn lost(&mut self, link: &Arc<dyn Link>, error: &LinkError, finished: &mut Finished) {
        self.endpoint.forget(link);
        let detail = end_of(link.as_ref(), error);
        self.forget_early(link.peer(), &detail);
        if link.peer_has_ended() {
            return self.dead(link.peer(), &detail, finished);
        }
        for (id, rank) in self.memberships(link.peer()) {
            let over_it = |group: &GroupState| group.connections.is_over(rank, link);
            if self.groups.get(&id).is_some_and(over_it) {
                self.lose(id, rank, &detail, finished);
            }
        }
        self.watch_for_end(link);
    }

    /// The groups of an endpoint, and its ranks there.
    pub(super) fn memberships(&self, peer: EndpointId) -> Vec<(u64, u32)> {
        let ranks = self
            .groups
            .iter()
            .map(|(id, group)| (*id, group.connections.rank_of(peer)));
        ranks.filter_map(|(id, rank)| Some((id, rank?))).collect()
    }

    /// A peer has left a group, and does not touch what it was granted any more.
    fn detached(&mut self, id: u64, rank: u32) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.connections.detached[rank as usize] = true;
        }
        self.departed(id, rank);
    }

    /// Nothing more comes from a peer.
    fn departed(&mut self, id: u64, rank: u32) {
        if let Some(group) = self.groups.get_mut(&id) {
            group.connections.left[rank as usize] = true;
        }
        self.release(id);
    }

    /// Ends groups whose messages or one-sided operations wait for a peer that has left, once all
    /// that it has sent is taken in.
    pub(crate) fn fail_where_ranks_are_missing(&mut self, finished: &mut Finished) {
        for group in self
            .groups
            .values_mut()
            .filter(|group| group.matching.pending() + group.one_sided.pending() > 0)
        {
            if let Some(rank) = group.missed() {
                let error = Error::from_link(
                    LinkError::Left,
                    Some(rank),
                    group.connections.host_name(rank),
                );
                group.fail_and_tell(&error, finished);
            }
        }
    }

    /// A process has ended, as is proven: breaks its groups.
    pub(super) fn dead(&mut self, peer: EndpointId, detail: &str, finished: &mut Finished) {
        if peer == self.endpoint.id() {
            return;
        }
        self.known_dead.insert(peer, detail.into());
        self.forget_early(peer, detail);
        for (id, rank) in self.memberships(peer) {
            self.lose(id, rank, detail, finished);
        }
        self.tell_shrinking_groups(peer, finished);
    }

    /// Breaks a group whose rank is lost, unless it had left before, and tells the members.
    pub(crate) fn lose(&mut self, id: u64, rank: u32, detail: &str, finished: &mut Finished) {
        self.drain_links(id, |_| true, finished);
        let group = self.groups.get_mut(&id);
        if let Some(group) = group.filter(|group| !group.connections.left[rank as usize]) {
            let host = group.connections.host_name(rank).to_string();
            let error = Error::PeerLost {
                rank: Some(rank),
                host,
                detail: detail.into(),
            };
            group.fail_and_tell(&error, finished);
        }
        self.departed(id, rank);
    }

    /// Ends a group over what an operation has met.
    pub(crate) fn fail(
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
            self.lost_in(id, *rank, error, finished);
        }
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        if group.broken.is_some() {
            return group.lower_limit(sequence, finished);
        }
        let error = match failure {
            GroupFailure::Desync { rank, mine, theirs } => {
                return group.differs(sequence, rank, Some(mine), theirs, finished);
            }
            GroupFailure::Other(error) => error,
            // The rank had left before.
            GroupFailure::Link(_, LinkError::Gone(_) | LinkError::Protocol(_)) => return,
            GroupFailure::Link(rank, error) => {
                Error::from_link(error, Some(rank), group.connections.host_name(rank))
            }
        };
        group.fail_from(sequence, &error, finished);
    }

    /// The link to a rank of a group is of no more use.
    fn lost_in(&mut self, id: u64, rank: u32, error: &LinkError, finished: &mut Finished) {
        let group = self.groups.get(&id);
        let link = group.and_then(|group| group.connections.links[rank as usize].clone());
        if let Some(link) = link {
            self.lost(&link, error, finished);
        }
    }

    /// Takes in what ranks of a group have sent before something ends: its cause, perhaps, or what
    /// was complete before.
    fn drain_links(&mut self, id: u64, from: impl Fn(u32) -> bool, finished: &mut Finished) {
        let Some(group) = self.groups.get(&id) else {
            return;
        };
        let is_from = |watched: &WatchedLink| {
            let mut ranks = (0..group.size()).filter(|rank| from(*rank));
            ranks.any(|rank| group.connections.is_over(rank, &watched.link))
        };
        let such = (self.links.iter()).filter(|(_, watched)| is_from(watched));
        let keys: Vec<u64> = such.map(|(key, _)| *key).collect();
        self.take_from(&keys, finished);
        self.take_polled_from(&keys, finished);
    }

    /// Ends groups with members that there are no links to: whoever of them calls waits in vain,
    /// and would name this process instead of its limit.
    fn fail_where_ranks_call_in_vain(&mut self, finished: &mut Finished) {
        let error = Error::Config(format!(
            "other ranks cannot connect to this process: it has no descriptor left. {RAISE_LIMIT}"
        ));
        for group in self.groups.values_mut() {
            if group.broken.is_none() && !group.closed && group.connections.may_be_called() {
                group.fail_and_tell(&error, finished);
            }
        }
    }

    /// Looks at deadlines and at operations that make no progress.
    pub(crate) fn housekeep(&mut self, now: Instant, finished: &mut Finished) {
        self.look_for_ends(finished);
        if self.endpoint.take_shortage() {
            self.fail_where_ranks_call_in_vain(finished);
        }
        for group in self.groups.values_mut() {
            if let Some(error) = group.verdict(now) {
                group.fail_and_tell(&error, finished);
            }
            group.give_up_quiet_operations(now, finished);
            group.ask_about_stalls(now);
        }
    }
}

/// How a link ended, and what that says about the process behind it.
fn end_of(link: &dyn Link, error: &LinkError) -> String {
    let what = match error {
        LinkError::Gone(why) => why.clone(),
        error => error.to_string(),
    };
    match link.peer_has_ended() {
        true => what,
        false => format!("{what}; its process may have ended, or still run"),
    }
}
