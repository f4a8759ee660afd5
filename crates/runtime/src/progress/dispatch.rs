//! What arrives on links, and how it reaches whom it is for.

use std::borrow::Cow;
use std::sync::Arc;

use weft_transport::{EndpointId, Inbox, Link, LinkError};

use super::state::{State, Watched};
use crate::call::Finished;
use crate::channel::Message;

/// Messages kept for groups that this rank has not made yet.
const ORPHANS: usize = 4096;

/// A way to take in what has arrived on a link.
type Receive = fn(&(dyn Link + 'static), &mut dyn Inbox) -> Result<(), LinkError>;

/// A message, and the bytes that follow it.
pub(crate) struct Letter<'a> {
    pub(crate) from: EndpointId,
    pub(crate) message: Message,
    pub(crate) payload: Cow<'a, [u8]>,
}

impl Letter<'_> {
    fn into_owned(self) -> Letter<'static> {
        Letter {
            payload: Cow::Owned(self.payload.into_owned()),
            ..self
        }
    }
}

impl State {
    /// Takes in what has arrived on links.
    pub(crate) fn receive(&mut self, knocked: bool, finished: &mut Finished) -> bool {
        let mut keys = self.poller.ready();
        if knocked {
            let knocking = self.links.iter().filter(|(_, w)| !w.manual);
            keys.extend(knocking.map(|(key, _)| *key));
            keys.sort_unstable();
            keys.dedup();
        }
        self.take_from(&keys, <dyn Link>::receive, finished)
    }

    /// Takes in the mail that lies in memory, which nobody tells of. True if there was any.
    pub(crate) fn take_mail(&mut self, finished: &mut Finished) -> bool {
        let has_mail = |(key, watched): (&u64, &Watched)| watched.link.has_mail().then_some(*key);
        let keys: Vec<u64> = self.links.iter().filter_map(has_mail).collect();
        self.take_from(&keys, <dyn Link>::take_mail, finished)
    }

    /// Whether any message is awaited, or what answers one.
    pub(crate) fn awaits_mail(&self) -> bool {
        let mut groups = self.groups.values();
        groups.any(|group| group.mailbox.pending() > 0)
    }

    /// Takes in what has arrived on these links. True if anything has, or a link has ended.
    fn take_from(&mut self, keys: &[u64], receive: Receive, finished: &mut Finished) -> bool {
        let mut progressed = false;
        for key in keys {
            let Some(watched) = self.links.get(key) else {
                continue;
            };
            let link = watched.link.clone();
            let (delivered, result) = self.take_in(&link, receive, finished);
            progressed |= delivered || result.is_err();
            if let Err(error) = result {
                self.link_ended(*key, &link, error, finished);
            }
        }
        progressed
    }

    /// Takes in what has arrived on one link. Tells whether there were messages, and whether the link is good.
    pub(crate) fn take_in(
        &mut self,
        link: &Arc<dyn Link>,
        receive: Receive,
        finished: &mut Finished,
    ) -> (bool, Result<(), LinkError>) {
        let mut delivery = Delivery {
            from: link.peer(),
            state: self,
            finished,
            delivered: false,
            nonsense: false,
        };
        let mut result = receive(link.as_ref(), &mut delivery);
        if delivery.nonsense {
            result = Err(LinkError::Protocol(
                "a control message that makes no sense".into(),
            ));
        }
        (delivery.delivered, result)
    }

    /// Keeps a message for a group that is not made yet. Beyond a bound they are dropped: then the group will time out. Who grants
    /// memory to a group that is closed here is told so.
    pub(crate) fn keep(&mut self, letter: Letter<'_>) {
        if letter
            .message
            .group()
            .is_some_and(|id| self.closed.contains(&id))
        {
            if let (Message::Grant { group, .. }, Some(link)) =
                (&letter.message, self.any_link_to(letter.from))
            {
                // A link that fails is noticed when it is read.
                let _ = link.message(&Message::Detach { group: *group }.encode());
            }
            return;
        }
        if self.orphans.len() < ORPHANS {
            self.orphans.push(letter.into_owned());
        }
    }
}

/// Acts on the messages of one link.
struct Delivery<'a> {
    from: EndpointId,
    state: &'a mut State,
    finished: &'a mut Finished,
    delivered: bool,
    nonsense: bool,
}

impl Inbox for Delivery<'_> {
    fn message(&mut self, bytes: &[u8]) {
        let Some((message, payload)) = Message::decode(bytes) else {
            self.nonsense = true;
            return;
        };
        self.delivered = true;
        let letter = Letter {
            from: self.from,
            message,
            payload: Cow::Borrowed(payload),
        };
        self.state.handle(letter, self.finished);
    }
}
