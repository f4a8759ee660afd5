//! Handling of messages for groups that this rank has not made yet. See `early_messages.rs`.

use weft_call::Finished;
use weft_channel::ControlMessage;
use weft_transport::EndpointId;

use super::early_messages::Overrun;
use super::received::ReceivedMessage;
use super::state::ProgressState;
use crate::Error;

impl ProgressState {
    /// Keeps a message for a group that is not made yet. Who grants memory to a group that is
    /// closed here, or cannot be made any more, or asks whether it is, is told so.
    pub(super) fn keep(&mut self, received: ReceivedMessage<'_>, finished: &mut Finished) {
        let group = received.message.group();
        let asks = matches!(
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
            Some(answer) if asks => self.tell(received.from, &answer),
            Some(_) => {}
            None => {
                if let Some(overrun) = self.early.keep(group, received.into_owned()) {
                    let error = self.explain(&overrun);
                    self.call_off(overrun.group, &error, finished);
                }
            }
        }
    }

    /// A group cannot be made here any more, or not go on: tells who has sent something for it.
    pub(crate) fn call_off(&mut self, id: u64, error: &Error, finished: &mut Finished) {
        let senders = self.early.fail(id, error.clone());
        for sender in senders {
            self.tell(
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
            group.told_broken(error.clone(), None, 0, finished);
        }
    }

    /// Hands a group that has just been made what came for it before.
    pub(super) fn hand_over_early(&mut self, id: u64, finished: &mut Finished) {
        if let (Some(error), Some(group)) = (self.early.failure(id), self.groups.get_mut(&id)) {
            group.told_broken(error.clone(), None, 0, finished);
        }
        for received in self.early.take(id).messages {
            self.handle(received, finished);
        }
    }

    /// A link is gone, and what was under way on it: groups that the peer has sent something for
    /// cannot be made any more.
    pub(super) fn forget_early(&mut self, peer: EndpointId, detail: &str) {
        for group in self.early.groups_of(peer) {
            let (host, _) = self.place_of(peer);
            let lost = Error::PeerLost {
                rank: None,
                host,
                detail: detail.into(),
            };
            let error = self.early.told(group, peer).unwrap_or(lost);
            self.early.fail(group, error);
        }
    }

    /// Sends a message to an endpoint, if there is a link.
    pub(super) fn tell(&self, endpoint: EndpointId, message: &ControlMessage) {
        if let Some(link) = self.any_link_to(endpoint) {
            // A link that fails is noticed when it is read.
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
                "{sender} sent more than {} KiB of messages for groups that process {} on {} had not made yet: \
                 let all ranks make a group, and pass a barrier, before so much is sent",
                overrun.bound >> 10,
                mine.pid,
                mine.host_name
            ),
        }
    }

    /// The host of an endpoint and its process, as far as a group tells.
    fn place_of(&self, endpoint: EndpointId) -> (String, Option<u32>) {
        let members = (self.groups.values()).flat_map(|group| &group.connections.meeting.members);
        let mut addresses = members.map(|member| &member.address);
        match addresses.find(|address| address.id == endpoint) {
            Some(address) => (address.host_name.clone(), Some(address.pid)),
            None => ("another host".into(), None),
        }
    }
}
