//! Handling of the control messages that members of a group send to each other.

use weft_call::Finished;
use weft_channel::{ChannelPart, ControlMessage, ENVELOPE_BYTES, GrantedPart, PartSet};
use weft_memory::PieceSize;
use weft_transport::{LinkError, RegionKey};

use super::breaking::NO_OPERATION;
use super::received::ReceivedMessage;
use super::state::ProgressState;
use crate::execution::GroupFailure;

impl ProgressState {
    /// Handles a control message of any kind.
    pub(crate) fn on_message(&mut self, received: ReceivedMessage<'_>, finished: &mut Finished) {
        let id = received.message.group();
        self.questions.note_answer(received.from);
        if let ControlMessage::Shrink { word, .. } = &received.message {
            return self.on_shrink_message(id, received.from, word, finished);
        }
        if let ControlMessage::Alive { asks, .. } = &received.message {
            return self.on_alive(id, received.from, *asks);
        }
        if let ControlMessage::Inquire { .. } | ControlMessage::Status { .. } = &received.message {
            return self.on_status_message(received.from, received.message);
        }
        let Some(group) = self.groups.get(&id) else {
            return self.keep_early(received, finished);
        };
        let Some(rank) = group.connections.rank_of(received.from) else {
            return self.on_nonmember_message(id, received, finished);
        };
        let Some(group) = self.groups.get_mut(&id) else {
            return;
        };
        let result = match received.message {
            ControlMessage::Grant { parts, .. } => self.on_grant(id, rank, &parts),
            ControlMessage::Detach { asks, .. } => {
                if asks && group.closed {
                    let answer = ControlMessage::Detach {
                        group: id,
                        asks: false,
                    };
                    self.send_to(received.from, &answer);
                }
                self.on_detach(id, rank);
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
                    group.break_as_reported(error, origin, limit, finished);
                }
                Ok(())
            }
            ControlMessage::Query {
                sequence,
                fingerprint,
                ..
            } => {
                group.on_query(rank, sequence, fingerprint, &self.questions);
                Ok(())
            }
            ControlMessage::Different {
                sequence,
                fingerprint,
                ..
            } => {
                group.on_desync_report(sequence, rank, None, fingerprint, finished);
                Ok(())
            }
            ControlMessage::History { recent, .. } => {
                group.on_history(rank, &recent, finished);
                Ok(())
            }
            ControlMessage::Waits {
                sequence, cause, ..
            } => {
                group.on_wait_cause(rank, sequence, cause, &self.questions);
                Ok(())
            }
            ControlMessage::Split { split, .. } => {
                self.on_split_message(id, rank, &split, finished);
                Ok(())
            }
            ControlMessage::OneSided { word, .. } => {
                group.on_one_sided_message(rank, word, &received.payload, finished)
            }
            message => self.on_point_to_point(id, rank, message, &received.payload, finished),
        };
        match result {
            // The end of the link is handled when the link is read, after the peer's earlier
            // messages.
            Ok(()) | Err(GroupFailure::Link(_, LinkError::Left | LinkError::Gone(_))) => {}
            Err(failure) => self.on_operation_failure(id, NO_OPERATION, failure, finished),
        }
    }

    fn on_grant(&mut self, id: u64, rank: u32, parts: &[GrantedPart]) -> Result<(), GroupFailure> {
        self.grant_in_return(id, rank, parts)?;
        match self.groups.get_mut(&id) {
            // Without a channel, the link has ended since: an operation that needs it will fail.
            Some(group) if group.connections.channels[rank as usize].is_some() => group
                .granted(rank, parts)
                .map_err(|error| GroupFailure::Link(rank, error)),
            _ => Ok(()),
        }
    }

    /// Opens a channel to a peer that granted parts of its memory, and grants it the same parts
    /// here. A group that is closed or broken allocates nothing more.
    fn grant_in_return(
        &mut self,
        id: u64,
        rank: u32,
        parts: &[GrantedPart],
    ) -> Result<(), GroupFailure> {
        let Some(group) = self.groups.get(&id) else {
            return Ok(());
        };
        let peer = group.connections.endpoint_of(rank);
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
        let parts = parts
            .iter()
            .filter_map(|part| ChannelPart::numbered(part.part));
        let parts = parts.fold(PartSet::NONE, |set, part| set | part);
        (group.connections)
            .grant(self.endpoint.pool(), [rank], parts)
            .map_err(GroupFailure::Other)
    }

    fn on_point_to_point(
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
            self.grant_in_return(id, rank, &[])?;
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

    /// Handles a message of a process that is not in the group. Only one kind counts: a member of
    /// the parent group reports that it split this group off with another list of ranks.
    fn on_nonmember_message(
        &mut self,
        id: u64,
        received: ReceivedMessage<'_>,
        finished: &mut Finished,
    ) {
        let mut groups = self.groups.values();
        let made_by_sender = groups.any(|group| {
            group.splits.has_split_off(id) && group.connections.rank_of(received.from).is_some()
        });
        if let (
            true,
            ControlMessage::Broken {
                error,
                origin,
                limit,
                ..
            },
        ) = (made_by_sender, received.message)
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.break_as_reported(error, origin, limit, finished);
        }
    }
}
