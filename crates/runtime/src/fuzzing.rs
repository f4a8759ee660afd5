//! Readers of untrusted data from peers and strangers, for fuzzing. Each accepts any bytes, and
//! panics if an invariant does not hold.

use weft_channel::ControlMessage;

use crate::EndpointAddress;
pub use crate::group::fuzzing::messages_of_a_peer;
pub use weft_bootstrap::fuzzing::{rank_hello, roster, store_reply, store_request, store_tls};

/// A message over a link. A message that can be decoded must survive encoding and decoding.
pub fn control_message(bytes: &[u8]) {
    if let Some((message, payload)) = ControlMessage::decode(bytes) {
        let again = [&message.encode(), payload].concat();
        assert_eq!(ControlMessage::decode(&again), Some((message, payload)));
    }
}

/// An endpoint's address from the store.
pub fn address(bytes: &[u8]) {
    if let Ok(address) = EndpointAddress::from_bytes(bytes) {
        let again = EndpointAddress::from_bytes(&address.to_bytes());
        assert_eq!(again.ok(), Some(address));
    }
}
