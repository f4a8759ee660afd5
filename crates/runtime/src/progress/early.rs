//! Handling of early messages: those for groups that this rank has not made yet.

use weft_call::Finished;
use weft_channel::ControlMessage;
use weft_transport::EndpointId;

use super::early_messages::Overrun;
use super::received::ReceivedMessage;
use super::state::ProgressState;
use crate::Error;

impl ProgressState {
    /// Keeps a message for a group that is not made yet. If the group is closed here, or cannot be
    /// made any more, answers senders that grant it memory or ask for an answer.
    pub(super) fn keep_early(&mut self, received: ReceivedMessage<'_>, finished: &mut Finished) {
        let group = received.message.group();
        let expects_answer = matches!(
            received.message,
            ControlMessage::Grant { .. } | ControlMessage::Detach { asks: true, .. }
        );
        let failure = self.early.failure(group).cloned();
        let answer = match failure {
            Some(error) => Some(ControlMessage::Broken {
                group,
                error,
                origin: None,
                limit: 0,
            }),
            None if self.closed.contains(&group) => {
                Some(ControlMessage::Detach { group, asks: false })
            }
            None => None,
        };
        match answer {
            Some(answer) if expects_answer => self.send_to(received.from, &answer),
            Some(_) => {}
            None => {
                if let Some(overrun) = self.early.keep(group, received.into_owned()) {
                    let error = self.explain(&overrun);
                    self.cancel_group(overrun.group, &error, finished);
                }
            }
        }
    }

    /// Ends a group that cannot be made or continued here, and notifies the ranks that have sent
    /// messages for it.
    pub(crate) fn cancel_group(&mut self, id: u64, error: &Error, finished: &mut Finished) {
        let senders = self.early.fail(id, error.clone());
        for sender in senders {
            self.send_to(
                sender,
                &ControlMessage::Broken {
                    group: id,
                    error: error.clone(),
                    origin: None,
                    limit: 0,
                },
            );
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.break_as_reported(error.clone(), None, 0, finished);
        }
    }

    /// Delivers the messages that arrived for a group before it was made.
    pub(super) fn deliver_early(&mut self, id: u64, finished: &mut Finished) {
        if let (Some(error), Some(group)) = (self.early.failure(id), self.groups.get_mut(&id)) {
            group.break_as_reported(error.clone(), None, 0, finished);
        }
        for received in self.early.take(id).messages {
            self.on_message(received, finished);
        }
    }

    /// Handles the loss of a peer: groups that it has sent messages for cannot be made any more,
    /// since further messages may be lost.
    pub(super) fn break_early_groups(&mut self, peer: EndpointId, detail: &str) {
        for group in self.early.groups_of(peer) {
            let (host, _) = self.place_of(peer);
            let lost = Error::PeerLost {
                rank: None,
                host,
                detail: detail.into(),
            };
            let error = self.early.reported_error(group, peer).unwrap_or(lost);
            self.early.fail(group, error);
        }
    }

    /// Sends a message to an endpoint, if there is a link.
    pub(super) fn send_to(&self, endpoint: EndpointId, message: &ControlMessage) {
        if let Some(link) = self.any_link_to(endpoint) {
            // A broken link is detected when it is read.
            let _ = link.message(&message.encode());
        }
    }

    fn explain(&self, overrun: &Overrun) -> Error {
        let mine = self.endpoint.address();
        let sender = overrun.by.map(|peer| self.place_of(peer));
        let sender = match sender {
            Some((host, Some(pid))) => format!("process {pid} on {host}"),
            Some((host, None)) => format!("a process on {host}"),
            None => "other ranks together".into(),
        };
        Error::Aborted {
            reason: format!(
                "{sender} sent more than {} KiB of messages for groups that process {} on {} had not made yet. \
                 Send large messages only after all ranks have made the group and passed a barrier",
                overrun.bound >> 10,
                mine.pid,
                mine.host_name
            ),
        }
    }

    /// The host and process of an endpoint, as far as a group knows them.
    fn place_of(&self, endpoint: EndpointId) -> (String, Option<u32>) {
        let members = (self.groups.values()).flat_map(|group| &group.connections.meeting.members);
        let mut addresses = members.map(|member| &member.address);
        match addresses.find(|address| address.id == endpoint) {
            Some(address) => (address.host_name.clone(), Some(address.pid)),
            None => ("another host".into(), None),
        }
    }
}
