//! What arrives besides data, and what goes wrong.
//!
//! A death is seen as the end of a link. It floods over all links, so that ranks that have no link to the dead one learn of it
//! as well. A timeout, a desync and an abort flood to the members of the group in the same way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_transport::{EndpointId, Link, LinkError};

use crate::Error;
use crate::call::Fingerprint;
use crate::engine::Finished;
use crate::execute::Trouble;
use crate::group_state::{GroupState, Remote};
use crate::message::Message;
use crate::state::{Letter, State};

/// A rank that waits longer than this asks whether the others made the same call.
const QUERY_AFTER: Duration = Duration::from_secs(1);

impl State {
    /// Acts on a message.
    pub(crate) fn handle(&mut self, letter: Letter, finished: &mut Finished) {
        let Some(id) = letter.message.group() else {
            if let Message::Dead { endpoint, detail } = letter.message {
                self.dead(EndpointId(endpoint), &detail, finished);
            }
            return;
        };
        let Some(group) = self.groups.get_mut(&id) else {
            return self.keep(letter);
        };
        let Some(rank) = group.rank_of(letter.from) else {
            return;
        };
        let result = match letter.message {
            Message::Grant {
                channel, scratch, ..
            } => {
                let remote = Remote { channel, scratch };
                self.grant(id, rank, remote, letter.from)
            }
            Message::Detach { .. } => {
                self.detached(id, rank);
                Ok(())
            }
            Message::Symmetric {
                id: piece, bytes, ..
            } => {
                group.symmetric_arrived(rank, piece, bytes, letter.descriptors);
                Ok(())
            }
            Message::Broken { origin, error, .. } => {
                let error = error.told_by(origin);
                group.fail_and_tell(&error, finished);
                Ok(())
            }
            Message::Query {
                sequence,
                fingerprint,
                ..
            } => {
                group.answer(rank, sequence, fingerprint);
                Ok(())
            }
            Message::Different {
                sequence,
                fingerprint,
                ..
            } => {
                group.differs(rank, sequence, fingerprint, finished);
                Ok(())
            }
            message => self.point_to_point(id, rank, letter.from, message, finished),
        };
        if let Err(error) = result {
            self.trouble(id, u64::MAX, Trouble::Link(rank, error), finished);
        }
    }

    fn grant(
        &mut self,
        id: u64,
        rank: u32,
        remote: Remote,
        from: EndpointId,
    ) -> Result<(), LinkError> {
        self.answer_grant(id, rank, from)?;
        match self.groups.get_mut(&id) {
            Some(group) => group.granted(rank, remote),
            None => Ok(()),
        }
    }

    /// A peer that grants wants a channel: makes sure that there is one in return.
    fn answer_grant(&mut self, id: u64, rank: u32, from: EndpointId) -> Result<(), LinkError> {
        let link = self.link_to(from);
        let (Some(group), Some(link)) = (self.groups.get_mut(&id), link) else {
            return Ok(());
        };
        let opened = group.open_channel(&self.endpoint, rank, &link);
        opened.map_err(|error| LinkError::Gone(error.to_string()))
    }

    /// The link to an endpoint, if there is one. Where there are two, any: both lead there.
    pub(crate) fn link_to(&self, endpoint: EndpointId) -> Option<Arc<dyn Link>> {
        let mut links = self.links.values().map(|watched| &watched.link);
        links.find(|link| link.peer() == endpoint).cloned()
    }

    fn point_to_point(
        &mut self,
        id: u64,
        rank: u32,
        from: EndpointId,
        message: Message,
        finished: &mut Finished,
    ) -> Result<(), LinkError> {
        self.answer_grant(id, rank, from)?;
        let Some(group) = self.groups.get_mut(&id) else {
            return Ok(());
        };
        let answer = match message {
            Message::Eager { tag, bytes, .. } => {
                group.mailbox.whole(rank, tag, bytes, finished);
                None
            }
            Message::Offer {
                tag,
                id: offer,
                bytes,
                ..
            } => group
                .mailbox
                .offered((id, rank), tag, (offer, bytes), finished),
            Message::Ready { id: offer, .. } => {
                group.mailbox.ready(rank, offer);
                None
            }
            Message::Refused {
                id: offer,
                expected,
                ..
            } => {
                group.mailbox.refused(rank, offer, expected, finished);
                None
            }
            _ => None,
        };
        match (answer, &group.links[rank as usize]) {
            (Some(answer), Some(link)) => link.message(&answer.encode(), &[]),
            _ => Ok(()),
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
        let peer = link.peer();
        match error {
            LinkError::Left => self.left(peer),
            error => self.dead(peer, &error.to_string(), finished),
        }
    }

    /// A peer has said goodbye. What it has sent is there; what waits for more from it will fail.
    fn left(&mut self, peer: EndpointId) {
        for group in self.groups.values_mut() {
            if let Some(rank) = group.rank_of(peer) {
                group.left[rank as usize] = true;
            }
        }
        self.endpoint.forget(peer);
    }

    /// Ends groups whose messages wait for a peer that has left, once all that it has sent is taken in.
    pub(crate) fn fail_bereft(&mut self, finished: &mut Finished) {
        for group in self
            .groups
            .values_mut()
            .filter(|group| group.mailbox.pending() > 0)
        {
            let bereft = |rank: &u32| group.left[*rank as usize] && group.mailbox.needs(*rank);
            if let Some(rank) = (0..group.size()).find(bereft) {
                let error = Error::from_link(LinkError::Left, Some(rank), group.host_name(rank));
                group.fail_and_tell(&error, finished);
            }
        }
    }

    /// A process is gone: breaks its groups, and tells everybody.
    fn dead(&mut self, peer: EndpointId, detail: &str, finished: &mut Finished) {
        if peer == self.endpoint.id() || !self.known_dead.insert(peer) {
            return;
        }
        for group in self.groups.values_mut() {
            if let Some(rank) = group.rank_of(peer)
                && !group.left[rank as usize]
            {
                let host = group.host_name(rank).to_string();
                let error = Error::PeerLost {
                    rank: Some(rank),
                    host,
                    detail: detail.into(),
                };
                group.fail(&error, finished);
            }
        }
        let news = Message::Dead {
            endpoint: peer.0,
            detail: detail.into(),
        }
        .encode();
        for watched in self.links.values() {
            // A link that fails is noticed when it is read.
            let _ = watched.link.message(&news, &[]);
        }
        self.endpoint.forget(peer);
    }

    /// Ends a group over what an operation has met.
    pub(crate) fn trouble(
        &mut self,
        id: u64,
        sequence: u64,
        trouble: Trouble,
        finished: &mut Finished,
    ) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let error = match trouble {
            Trouble::Desync(rank, theirs) => group.desync(sequence, rank, theirs),
            Trouble::Other(error) => error,
            Trouble::Link(rank, LinkError::Left) => {
                Error::from_link(LinkError::Left, Some(rank), group.host_name(rank))
            }
            Trouble::Link(rank, error) => {
                let peer = group.meeting.members[rank as usize].address.id;
                return self.dead(peer, &error.to_string(), finished);
            }
        };
        group.fail_and_tell(&error, finished);
    }

    /// Looks at deadlines and at operations that make no progress.
    pub(crate) fn housekeep(&mut self, now: Instant, finished: &mut Finished) {
        for group in self.groups.values_mut() {
            if let Some(error) = group.overdue(now) {
                group.fail_and_tell(&error, finished);
            }
            group.ask_about_stalls(now);
        }
    }

    /// A peer has left a group: nobody touches its channel here any more.
    fn detached(&mut self, id: u64, rank: u32) {
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        group.left[rank as usize] = true;
        if group.closed {
            group.release_channel(rank, self.endpoint.pool());
            if group.channels.iter().all(Option::is_none) {
                self.remove_group(id);
            }
        }
    }

    /// Forgets a closed group whose peers have all detached or gone.
    pub(crate) fn remove_group(&mut self, id: u64) {
        if let Some(mut group) = self.groups.remove(&id) {
            for rank in 0..group.size() {
                group.release_channel(rank, self.endpoint.pool());
            }
            self.endpoint.pool().free(group.scratch);
        }
    }
}

impl GroupState {
    /// Gives a peer's channel back to the pool.
    pub(crate) fn release_channel(&mut self, rank: u32, pool: &crate::pool::Pool) {
        if let Some(channel) = self.channels[rank as usize].take() {
            if let Some(link) = &self.links[rank as usize] {
                link.revoke(channel.local.range());
            }
            pool.free(channel.local);
        }
    }

    /// The error of the operation or message that has missed its deadline, if any.
    fn overdue(&self, now: Instant) -> Option<Error> {
        if let Some((operation, rank)) = self.mailbox.overdue(now) {
            let whom = rank.map_or("any rank".into(), |rank| self.describe(rank));
            return Some(Error::Timeout {
                operation,
                waiting_for: whom,
                after: self.timeout,
            });
        }
        let operation = self
            .operations
            .iter()
            .find(|operation| operation.deadline <= now)?;
        let blocked = self
            .operations
            .iter()
            .find_map(|operation| operation.blocked());
        let waiting_for = match blocked {
            Some(blocked) => format!("{}: {blocked}", self.describe(blocked.rank())),
            None => "operations before it".into(),
        };
        Some(Error::Timeout {
            operation: format!(
                "operation {} of group {}, {}",
                operation.sequence, self.name, operation.fingerprint
            ),
            waiting_for,
            after: operation.deadline - operation.issued,
        })
    }

    /// Asks those who keep operations waiting whether they made the same call.
    fn ask_about_stalls(&mut self, now: Instant) {
        for operation in &mut self.operations {
            let Some(blocked) = operation.blocked().copied() else {
                continue;
            };
            if now - operation.last_step < QUERY_AFTER || now - operation.last_query < QUERY_AFTER {
                continue;
            }
            operation.last_query = now;
            let query = Message::Query {
                group: self.id,
                sequence: operation.sequence,
                fingerprint: operation.fingerprint,
            };
            if let Some(link) = &self.links[blocked.rank() as usize] {
                // A link that fails is noticed when it is read.
                let _ = link.message(&query.encode(), &[]);
            }
        }
    }

    /// Answers a query, if this rank called something else.
    fn answer(&self, rank: u32, sequence: u64, theirs: Fingerprint) {
        let Some(mine) = self.recall(sequence).filter(|mine| !mine.agrees(theirs)) else {
            return;
        };
        if let Some(link) = &self.links[rank as usize] {
            let answer = Message::Different {
                group: self.id,
                sequence,
                fingerprint: mine,
            };
            // A link that fails is noticed when it is read.
            let _ = link.message(&answer.encode(), &[]);
        }
    }

    fn differs(&mut self, rank: u32, sequence: u64, theirs: Fingerprint, finished: &mut Finished) {
        let error = self.desync(sequence, rank, theirs);
        self.fail_and_tell(&error, finished);
    }

    fn desync(&self, sequence: u64, rank: u32, theirs: Fingerprint) -> Error {
        let mine = self.recall(sequence);
        let same = mine.is_some_and(|mine| mine.agrees(theirs));
        let called = |fingerprint: Option<Fingerprint>| match fingerprint {
            Some(fingerprint) if same => format!("called {fingerprint}, after other operations"),
            Some(fingerprint) => format!("called {fingerprint}"),
            None => "called something else".into(),
        };
        let mine = format!(
            "{} as operation {sequence} of group {}",
            called(mine),
            self.name
        );
        Error::Desync {
            mine,
            rank,
            theirs: called(Some(theirs)),
        }
    }
}
