//! The record layer of stores that admit every process: both ends begin with the same constant, and
//! later bytes are sent as they are.

use super::record_layer::{PROTOCOL, RecordLayer};
use crate::store_tcp::protocol::{Malformed, StoreFailure};

const OPENING_BYTES: usize = 48;

/// The first bytes of each end; the server sends them after the client's.
fn opening() -> [u8; OPENING_BYTES] {
    let mut opening = [0; OPENING_BYTES];
    opening[..PROTOCOL.len()].copy_from_slice(PROTOCOL.as_bytes());
    opening
}

pub(super) struct PlainRecords {
    is_server: bool,
    /// The other end's opening, as received so far.
    received: Vec<u8>,
}

impl PlainRecords {
    /// The client's end, and its opening.
    pub(super) fn of_client(wire: &mut Vec<u8>) -> Self {
        wire.extend_from_slice(&opening());
        Self {
            is_server: false,
            received: Vec::new(),
        }
    }

    pub(super) fn of_server() -> Self {
        Self {
            is_server: true,
            received: Vec::new(),
        }
    }
}

impl RecordLayer for PlainRecords {
    fn open(
        &mut self,
        received: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), StoreFailure> {
        if self.is_open() {
            plain.extend_from_slice(received);
            return Ok(());
        }
        self.received.extend_from_slice(received);
        if self.received.len() < OPENING_BYTES {
            return Ok(());
        }
        // Neither end may send more before the other has answered.
        if self.received != opening() {
            return Err(Malformed.into());
        }
        if self.is_server {
            wire.extend_from_slice(&opening());
        }
        Ok(())
    }

    fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        wire.extend_from_slice(plain);
    }

    fn is_open(&self) -> bool {
        self.received.len() >= OPENING_BYTES
    }

    fn is_proven(&self) -> bool {
        self.is_open()
    }

    fn held(&self) -> usize {
        0
    }
}
