//! Authentication of the two ends of a store connection, and the encoding of their messages.
//!
//! The client sends first. Each end's bytes are made by a *record layer*: one without
//! authentication ([`plain`]), one for a secret ([`noise`]), one for certificates ([`tls`]). Each
//! begins with a handshake, in which replies follow from the received bytes. Afterwards messages
//! are sent both ways, each with its length.
//!
//! Nothing here reads or writes a socket.

mod noise;
mod plain;
mod record_layer;
mod tls;

use std::io;

use noise::NoiseRecords;
use plain::PlainRecords;
pub(super) use record_layer::CHUNK_BYTES_MAX;
use record_layer::RecordLayer;
use tls::TlsRecords;

use weft_call::Error;

use super::StoreAccess;
use super::protocol::{Malformed, SET_BYTES_MAX, StoreFailure};

/// Converts messages to bytes on the wire, and back.
pub(super) struct StoreChannel {
    records: Box<dyn RecordLayer>,
    /// Decrypted bytes that are not taken yet.
    plain: Vec<u8>,
}

impl StoreChannel {
    fn new(records: impl RecordLayer + 'static) -> Self {
        Self {
            records: Box::new(records),
            plain: Vec::new(),
        }
    }

    /// The end of a client that calls the server at this `host:port`. Appends its first bytes to
    /// `wire`.
    pub(super) fn of_client(
        access: &StoreAccess,
        address: &str,
        wire: &mut Vec<u8>,
    ) -> Result<Self, Error> {
        Ok(match access {
            StoreAccess::Secret(secret) => Self::new(NoiseRecords::of_client(secret, wire)),
            StoreAccess::Tls(credentials) => {
                Self::new(TlsRecords::of_client(credentials, address, wire)?)
            }
            StoreAccess::ThisHost | StoreAccess::Anybody => {
                Self::new(PlainRecords::of_client(wire))
            }
        })
    }

    /// The end of a server.
    pub(super) fn of_server(access: &StoreAccess) -> io::Result<Self> {
        Ok(match access {
            StoreAccess::Secret(secret) => Self::new(NoiseRecords::of_server(secret)),
            StoreAccess::Tls(credentials) => Self::new(TlsRecords::of_server(credentials)?),
            StoreAccess::ThisHost | StoreAccess::Anybody => Self::new(PlainRecords::of_server()),
        })
    }

    /// Whether this end may send messages.
    pub(super) fn is_open(&self) -> bool {
        self.records.is_open()
    }

    /// Whether the other end has proven that it may take part.
    pub(super) fn is_proven(&self) -> bool {
        self.records.is_proven()
    }

    /// Bytes that are kept until a message is complete.
    pub(super) fn held(&self) -> usize {
        self.records.held() + self.plain.len()
    }

    /// Appends a part of a message, at most [`CHUNK_BYTES_MAX`], in its form on the wire.
    pub(super) fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        self.records.seal(plain, wire);
    }

    /// Processes bytes from the wire. Appends bytes that must be sent immediately to `wire`: after
    /// an error, an alert.
    pub(super) fn feed(&mut self, received: &[u8], wire: &mut Vec<u8>) -> Result<(), StoreFailure> {
        self.records.open(received, &mut self.plain, wire)
    }

    /// Whether a message is complete, or longer than any allowed one.
    pub(super) fn has_body(&self) -> bool {
        match self.plain.split_first_chunk::<4>() {
            Some((length, rest)) => {
                let length = u32::from_le_bytes(*length) as usize;
                rest.len() >= length || length > SET_BYTES_MAX
            }
            None => false,
        }
    }

    /// The next message's body, once all of it has arrived; an error if it is longer than allowed.
    pub(super) fn next_body(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Malformed> {
        let Some((length, rest)) = self.plain.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > bytes_max {
            return Err(Malformed);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let after = self.plain.split_off(4 + length);
        let mut message = std::mem::replace(&mut self.plain, after);
        message.drain(..4);
        Ok(Some(message))
    }
}
