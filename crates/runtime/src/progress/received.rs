//! Received messages, with their senders.

use std::borrow::Cow;

use weft_transport::EndpointId;

use weft_channel::ControlMessage;

/// A message, and the bytes that follow it.
pub(crate) struct ReceivedMessage<'a> {
    pub(crate) from: EndpointId,
    pub(crate) message: ControlMessage,
    pub(crate) payload: Cow<'a, [u8]>,
}

impl ReceivedMessage<'_> {
    pub(super) fn into_owned(self) -> ReceivedMessage<'static> {
        ReceivedMessage {
            payload: Cow::Owned(self.payload.into_owned()),
            ..self
        }
    }
}
