//! Parsers of bytes from peers or strangers, for fuzzing. Each accepts any bytes, and panics where
//! a guarantee is violated.

use crate::address::ShmAddress;
pub use crate::handshake::fuzzing::hello;

/// An address from the store.
pub fn address(bytes: &[u8]) {
    if let Ok(address) = ShmAddress::from_bytes(bytes) {
        assert_eq!(address.to_bytes(), bytes);
    }
}
