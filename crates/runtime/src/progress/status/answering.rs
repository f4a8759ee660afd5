//! Participation of this rank in inquiries: see [Note: Inquiries].

use std::sync::mpsc::Sender;
use std::time::Instant;

use weft_channel::{ControlMessage, RankStatus, control_neighbours};
use weft_transport::{EndpointId, random};

use super::super::state::ProgressState;
use super::inquiries::{INQUIRIES_MAX, Origin};
use crate::Error;

impl ProgressState {
    /// Begins an inquiry in a group: the statuses of its ranks, this one's first, go to `asker`. If
    /// `is_watchdog`, this rank prints the verdict, and the others need not.
    ///
    /// # Errors
    ///
    /// The system gives no random number, or there are too many inquiries.
    pub(super) fn begin_inquiry(
        &mut self,
        group: u64,
        asker: Sender<RankStatus>,
        is_watchdog: bool,
    ) -> Result<(), Error> {
        let number = random().map_err(|error| Error::refused_here("begin an inquiry", &error))?;
        let number = u64::from_ne_bytes(number);
        if !self.inquiries.add(number, Origin::Here(asker)) {
            return Err(Error::Config(format!(
                "{INQUIRIES_MAX} inquiries are under way already"
            )));
        }
        self.take_part(group, (number, is_watchdog), None);
        Ok(())
    }

    /// Acts on an inquiry or on a status that a peer has sent.
    pub(crate) fn on_status_message(&mut self, from: EndpointId, message: ControlMessage) {
        let group = message.group();
        let members = self.groups.get(&group).map(|group| &group.connections);
        if members.and_then(|group| group.rank_of(from)).is_none() {
            return; // Only members of the group are answered.
        }
        match message {
            ControlMessage::Inquire {
                inquiry,
                is_watchdog,
                ..
            } => {
                let is_new = self.inquiries.add(inquiry, Origin::Peer(from));
                if is_new {
                    self.take_part(group, (inquiry, is_watchdog), Some(from));
                }
            }
            ControlMessage::Status {
                inquiry, status, ..
            } => self.deliver(group, inquiry, status),
            _ => {}
        }
    }

    /// Sends this rank's status, and passes the inquiry on.
    fn take_part(
        &mut self,
        group: u64,
        (inquiry, is_watchdog): (u64, bool),
        from: Option<EndpointId>,
    ) {
        match is_watchdog {
            true => self.watchdog.note(Instant::now()),
            false => self.wait_time.begin_counting(),
        }
        let Some(state) = self.groups.get(&group) else {
            return;
        };
        let connections = &state.connections;
        let question = ControlMessage::Inquire {
            group,
            inquiry,
            is_watchdog,
        };
        let question = question.encode();
        for rank in control_neighbours(connections.rank, connections.size()) {
            let link = connections.links[rank as usize].as_ref();
            if let Some(link) = link.filter(|link| Some(link.peer()) != from) {
                // A link that fails is noticed when it is read.
                let _ = link.message(&question);
            }
        }
        let status = Box::new(self.status(state));
        self.deliver(group, inquiry, status);
    }

    /// Passes a status on towards the rank that has begun the inquiry.
    fn deliver(&self, group: u64, inquiry: u64, status: Box<RankStatus>) {
        match self.inquiries.origin(inquiry) {
            None => {}
            // The asker may have stopped waiting.
            Some(Origin::Here(asker)) => _ = asker.send(*status),
            Some(Origin::Peer(peer)) => {
                let message = ControlMessage::Status {
                    group,
                    inquiry,
                    status,
                };
                if let Some(link) = self.any_link_to(*peer) {
                    let _ = link.message(&message.encode());
                }
            }
        }
    }
}
