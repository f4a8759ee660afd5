//! Reading of links, and dispatch of their messages.

use std::borrow::Cow;
use std::sync::Arc;

use weft_call::Finished;
use weft_channel::ControlMessage;
use weft_transport::{EndpointId, Inbox, Link, LinkError};

use super::received::ReceivedMessage;
use super::state::{ProgressState, WatchedLink};

impl ProgressState {
    /// Reads the links that are ready and, after a notification, those without descriptors and
    /// those whose descriptors have changed.
    pub(crate) fn receive(&mut self, notified: bool, finished: &mut Finished) -> bool {
        let mut keys = self.poller.ready();
        if notified {
            let notifying = self.links.iter().filter(|(_, w)| !w.manual);
            keys.extend(notifying.map(|(key, _)| *key));
            keys.extend(self.watch_changed_links());
            keys.sort_unstable();
            keys.dedup();
        }
        self.receive_from_all(&keys, finished)
    }

    /// Watches the descriptors anew that stand for other connections now. Returns their links.
    fn watch_changed_links(&self) -> Vec<u64> {
        let manual = self.links.iter().filter(|(_, watched)| watched.manual);
        let changed = manual.filter(|(_, watched)| watched.link.take_change());
        let watched = changed.map(|(key, watched)| {
            if let Some(descriptor) = watched.link.descriptor() {
                self.poller.add(descriptor, *key);
                self.poller.change(descriptor, *key, watched.writing);
            }
            *key
        });
        watched.collect()
    }

    /// Reads polled messages: those in shared memory, which arrive without a notification. True if
    /// there was any.
    pub(crate) fn receive_polled_messages(&mut self, finished: &mut Finished) -> bool {
        let has_polled_message = |(key, watched): (&u64, &WatchedLink)| {
            watched
                .polled
                .as_ref()?
                .has_polled_message()
                .then_some(*key)
        };
        let keys: Vec<u64> = self.links.iter().filter_map(has_polled_message).collect();
        self.receive_polled_from_all(&keys, finished)
    }

    /// Whether any operation waits for a message or for the answer to one.
    pub(crate) fn awaits_polled_messages(&self) -> bool {
        let mut groups = self.groups.values();
        groups.any(|group| group.matching.pending() > 0)
    }

    /// Reads these links. True if a message arrived or a link ended.
    pub(super) fn receive_from_all(&mut self, keys: &[u64], finished: &mut Finished) -> bool {
        let mut progressed = false;
        for key in keys {
            let Some(watched) = self.links.get(key) else {
                continue;
            };
            let link = watched.link.clone();
            let receive = |inbox: &mut dyn Inbox| link.receive(inbox);
            let (delivered, result) = self.receive_from(link.peer(), receive, finished);
            progressed |= delivered || result.is_err();
            if let Err(error) = result {
                self.on_link_end(*key, &link, error, finished);
            }
        }
        progressed
    }

    /// Reads the polled messages of these links. True if a message arrived or a link ended.
    pub(super) fn receive_polled_from_all(
        &mut self,
        keys: &[u64],
        finished: &mut Finished,
    ) -> bool {
        let mut progressed = false;
        for key in keys {
            let Some(polled) = self.links.get(key).and_then(|w| w.polled.clone()) else {
                continue;
            };
            let receive = |inbox: &mut dyn Inbox| polled.take_polled_message(inbox);
            let (delivered, result) = self.receive_from(polled.peer(), receive, finished);
            progressed |= delivered || result.is_err();
            if let Err(error) = result {
                let link: Arc<dyn Link> = polled;
                self.on_link_end(*key, &link, error, finished);
            }
        }
        progressed
    }

    /// Reads one link to this peer. Returns whether there were messages, and the state of the
    /// link.
    pub(super) fn receive_from(
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
            malformed: false,
        };
        let mut result = receive(&mut delivery);
        if delivery.malformed {
            result = Err(LinkError::Protocol("malformed control message".into()));
        }
        (delivery.delivered, result)
    }
}

/// Receiver of one link's messages.
struct Delivery<'a> {
    from: EndpointId,
    state: &'a mut ProgressState,
    finished: &'a mut Finished,
    delivered: bool,
    malformed: bool,
}

impl Inbox for Delivery<'_> {
    fn message(&mut self, bytes: &[u8]) {
        let Some((message, payload)) = ControlMessage::decode(bytes) else {
            self.malformed = true;
            return;
        };
        self.delivered = true;
        let received = ReceivedMessage {
            from: self.from,
            message,
            payload: Cow::Borrowed(payload),
        };
        self.state.on_message(received, self.finished);
    }
}
