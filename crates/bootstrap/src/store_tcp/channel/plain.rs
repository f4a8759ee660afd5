//! The record layer of stores that let everybody in: both ends begin with the same constant, and
//! what follows is sent as it is.

use super::record_layer::{PROTOCOL, RecordLayer};
use crate::store_tcp::protocol::{Nonsense, StoreFailure};

const OPENING_BYTES: usize = 48;

/// What each end says first, the server once it has heard the client's.
fn opening() -> [u8; OPENING_BYTES] {
    let mut opening = [0; OPENING_BYTES];
    opening[..PROTOCOL.len()].copy_from_slice(PROTOCOL.as_bytes());
    opening
}

pub(super) struct PlainRecords {
    is_server: bool,
    /// Of the other end's opening.
    heard: Vec<u8>,
}

impl PlainRecords {
    /// The client's end, and its opening.
    pub(super) fn of_client(wire: &mut Vec<u8>) -> Self {
        wire.extend_from_slice(&opening());
        Self {
            is_server: false,
            heard: Vec::new(),
        }
    }

    pub(super) fn of_server() -> Self {
        Self {
            is_server: true,
            heard: Vec::new(),
        }
    }
}

impl RecordLayer for PlainRecords {
    fn open(
        &mut self,
        came: &[u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), StoreFailure> {
        if self.is_open() {
            plain.extend_from_slice(came);
            return Ok(());
        }
        self.heard.extend_from_slice(came);
        if self.heard.len() < OPENING_BYTES {
            return Ok(());
        }
        // Neither end goes on before the other has answered.
        if self.heard != opening() {
            return Err(Nonsense.into());
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
        self.heard.len() >= OPENING_BYTES
    }

    fn is_proven(&self) -> bool {
        self.is_open()
    }

    fn held(&self) -> usize {
        0
    }
}
