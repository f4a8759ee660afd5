//! Silence: which peers' processes do not answer.
//!
//! A process that is stopped keeps its connections, as its kernel answers for it, and so does one
//! whose program computes. But only the latter's progress thread answers questions. So when a group
//! shrinks, a rank that has not called yet is waited for, unless it is silent.

use std::time::{Duration, Instant};

use weft_channel::ControlMessage;
use weft_transport::EndpointId;

use super::group_state::GroupState;
use super::state::ProgressState;
use super::wait_causes::query_interval;

impl GroupState {
    /// The peers to ask, each with the least interval between questions: those that operations
    /// wait for, and all peers where half of the time that an operation has is over.
    fn peers_to_ask(&self, now: Instant) -> Vec<(EndpointId, Duration)> {
        let members = &self.connections.meeting.members;
        let mut peers = Vec::new();
        for operation in &self.executor.operations {
            let (waited, allowed) = (now - operation.last_step, operation.due.allowed);
            let interval = query_interval(operation);
            if let (true, Some(blocked)) = (waited >= interval, operation.blocked()) {
                peers.push((self.connections.endpoint_of(blocked.rank()), interval));
            }
            if waited >= allowed / 2 {
                peers.extend(members.iter().map(|one| (one.address.id, allowed / 2)));
            }
        }
        peers
    }
}

impl ProgressState {
    /// Asks the peers of stalled operations whether their processes run.
    pub(super) fn ask_awaited_peers(&mut self, now: Instant) {
        let groups = self.groups.iter().filter(|(_, group)| !group.closed);
        let asked: Vec<_> = groups
            .flat_map(|(id, group)| group.peers_to_ask(now).into_iter().map(|peer| (*id, peer)))
            .collect();
        for (id, (peer, interval)) in asked {
            self.ask(id, peer, interval, now);
        }
    }

    /// Asks a peer whether its process runs.
    pub(super) fn ask(&mut self, group: u64, peer: EndpointId, interval: Duration, now: Instant) {
        if self.any_link_to(peer).is_some() && self.questions.note(peer, interval, now) {
            self.send_to(peer, &ControlMessage::Alive { group, asks: true });
        }
    }

    /// Handles a question or an answer.
    pub(super) fn on_alive(&mut self, group: u64, from: EndpointId, asks: bool) {
        if asks {
            self.send_to(from, &ControlMessage::Alive { group, asks: false });
        }
    }
}
