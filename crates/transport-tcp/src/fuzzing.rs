//! Readers of what peers, or strangers, send, for fuzzing. Each takes any bytes, and panics where a
//! promise does not hold.
#![forbid(unsafe_code)]

use weft_transport::EndpointId;

use crate::address::TcpAddress;
use crate::frame::{Frame, HEADER_BYTES};
use crate::handshake::{HELLO_BYTES, Hello, KeyPair};

/// The header of a frame: every one has one form, and no range is beyond all memory.
pub fn frame(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return;
    };
    if let Ok(frame) = Frame::decode(header) {
        assert_eq!(&frame.encode(), header);
    }
}

/// An address from the store.
pub fn address(bytes: &[u8]) {
    if let Ok(address) = TcpAddress::decode(bytes) {
        assert_eq!(address.encode(), bytes);
        assert!(address.networks() <= usize::from(u8::MAX) + 1);
    }
}

/// A caller's hello: nobody can make one for a key that nobody knows.
pub fn hello(bytes: &[u8]) {
    let mut hello = [0; HELLO_BYTES];
    let len = bytes.len().min(HELLO_BYTES);
    hello[..len].copy_from_slice(&bytes[..len]);
    let keys = KeyPair::generate().expect("random numbers");
    assert!(Hello::read(&hello, &keys, EndpointId(1)).is_none());
}
