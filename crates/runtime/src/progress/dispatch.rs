//! Dispatch of received messages from links to their groups.

use std::borrow::Cow;
use std::sync::Arc;

use weft_call::Finished;
use weft_channel::ControlMessage;
use weft_transport::{EndpointId, Inbox, Link, LinkError};

use super::received::ReceivedMessage;
use super::state::{ProgressState, WatchedLink};

impl ProgressState {
    /// Takes in what has arrived on links.
    pub(crate) fn receive(&mut self, notified: bool, finished: &mut Finished) -> bool {
        let mut keys = self.poller.ready();
        if notified {
            let knocking = self.links.iter().filter(|(_, w)| !w.manual);
            keys.extend(knocking.map(|(key, _)| *key));
            keys.sort_unstable();
            keys.dedup();
        }
        self.take_from(&keys, finished)
    }

    /// Takes in the polled messages that lie in memory, which nobody tells of. True if there was
    /// any.
    pub(crate) fn take_polled_message(&mut self, finished: &mut Finished) -> bool {
        let has_polled_message = |(key, watched): (&u64, &WatchedLink)| {
            watched
                .polled
                .as_ref()?
                .has_polled_message()
                .then_some(*key)
        };
        let keys: Vec<u64> = self.links.iter().filter_map(has_polled_message).collect();
        self.take_polled_from(&keys, finished)
    }

    /// Whether any message is awaited, or what answers one.
    pub(crate) fn awaits_polled_messages(&self) -> bool {
        let mut groups = self.groups.values();
        groups.any(|group| group.matching.pending() > 0)
    }

    /// Takes in what has arrived on these links. True if anything has, or a link has ended.
    pub(super) fn take_from(&mut self, keys: &[u64], finished: &mut Finished) -> bool {
        let mut progressed = false;
        for key in keys {
            let Some(watched) = self.links.get(key) else {
                continue;
            };
            let link = watched.link.clone();
            let receive = |inbox: &mut dyn Inbox| link.receive(inbox);
            let (delivered, result) = self.take_in(link.peer(), receive, finished);
            progressed |= delivered || result.is_err();
            if let Err(error) = result {
                self.link_ended(*key, &link, error, finished);
            }
        }
        progressed
    }

    /// The same for the polled messages of these links.
    pub(super) fn take_polled_from(&mut self, keys: &[u64], finished: &mut Finished) -> bool {
        let mut progressed = false;
        for key in keys {
            let Some(polled) = self.links.get(key).and_then(|w| w.polled.clone()) else {
                continue;
            };
            let take = |inbox: &mut dyn Inbox| polled.take_polled_message(inbox);
            let (delivered, result) = self.take_in(polled.peer(), take, finished);
            progressed |= delivered || result.is_err();
            if let Err(error) = result {
                let link: Arc<dyn Link> = polled;
                self.link_ended(*key, &link, error, finished);
            }
        }
        progressed
    }

    /// Takes in what has arrived on one link, from this peer. Tells whether there were messages,
    /// and whether the link is good.
    pub(super) fn take_in(
        &mut self,
        from: EndpointId,
        receive: impl FnOnce(&mut dyn Inbox) -> Result<(), LinkError>,
        finished: &mut Finished,
    ) -> (bool, Result<(), LinkError>) {
        let mut delivery = Delivery {
            from,
            state: self,
            finished,
            delivered: false,
            nonsense: false,
        };
        let mut result = receive(&mut delivery);
        if delivery.nonsense {
            result = Err(LinkError::Protocol(
                "a control message that makes no sense".into(),
            ));
        }
        (delivery.delivered, result)
    }
}

/// Acts on the messages of one link.
struct Delivery<'a> {
    from: EndpointId,
    state: &'a mut ProgressState,
    finished: &'a mut Finished,
    delivered: bool,
    nonsense: bool,
}

impl Inbox for Delivery<'_> {
    fn message(&mut self, bytes: &[u8]) {
        let Some((message, payload)) = ControlMessage::decode(bytes) else {
            self.nonsense = true;
            return;
        };
        self.delivered = true;
        let received = ReceivedMessage {
            from: self.from,
            message,
            payload: Cow::Borrowed(payload),
        };
        self.state.handle(received, self.finished);
    }
}
