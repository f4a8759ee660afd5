//! Readers of what peers, or strangers, send, for fuzzing. Each takes any bytes, and panics where a
//! promise does not hold.

use crate::address::ShmAddress;
pub use crate::handshake::fuzzing::hello;

/// An address from the store.
pub fn address(bytes: &[u8]) {
    if let Ok(address) = ShmAddress::from_bytes(bytes) {
        assert_eq!(address.to_bytes(), bytes);
    }
}
