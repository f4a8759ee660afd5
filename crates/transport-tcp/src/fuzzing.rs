//! Readers of what peers, or strangers, send, for fuzzing. Each takes any bytes, and panics where a
//! promise does not hold.
#![forbid(unsafe_code)]

use crate::address::TcpAddress;
use crate::frame::{Frame, HEADER_BYTES};

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
