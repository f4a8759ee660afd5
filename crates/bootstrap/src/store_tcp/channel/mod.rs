//! How the two ends of a store connection make sure of each other, and how they talk afterwards.
//!
//! The client speaks first. What an end sends is made by a *record layer*: one that has nothing to
//! prove ([`plain`]), one for a secret ([`noise`]), one for certificates ([`tls`]). Each begins
//! with a handshake, in which what is to be answered follows from what came. Afterwards messages go
//! both ways, each with its length.
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
use super::protocol::{Nonsense, SET_BYTES_MAX, StoreFailure};

/// Turns a conversation into bytes on the wire, and back.
pub(super) struct Channel {
    records: Box<dyn RecordLayer>,
    /// Of the conversation, and not taken yet.
    plain: Vec<u8>,
}

impl Channel {
    fn new(records: impl RecordLayer + 'static) -> Self {
        Self {
            records: Box::new(records),
            plain: Vec::new(),
        }
    }

    /// The end of a client that calls the server at this `host:port`. It appends what is to be sent
    /// first to `wire`.
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

    /// Whether this end may speak.
    pub(super) fn is_open(&self) -> bool {
        self.records.is_open()
    }

    /// Whether the other end has shown that it may take part.
    pub(super) fn is_proven(&self) -> bool {
        self.records.is_proven()
    }

    /// Bytes that are kept until a message is complete.
    pub(super) fn held(&self) -> usize {
        self.records.held() + self.plain.len()
    }

    /// Appends a part of the conversation, at most [`CHUNK_BYTES_MAX`], as it goes over the wire.
    pub(super) fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) {
        self.records.seal(plain, wire);
    }

    /// Takes what came over the wire. Appends what is to be sent at once to `wire`: after an error,
    /// the last words.
    pub(super) fn feed(&mut self, came: &[u8], wire: &mut Vec<u8>) -> Result<(), StoreFailure> {
        self.records.open(came, &mut self.plain, wire)
    }

    /// Whether a message is complete, or too long for what can come.
    pub(super) fn has_body(&self) -> bool {
        match self.plain.split_first_chunk::<4>() {
            Some((length, rest)) => {
                let length = u32::from_le_bytes(*length) as usize;
                rest.len() >= length || length > SET_BYTES_MAX
            }
            None => false,
        }
    }

    /// The next message's body, once all of it has come; an error if it is longer than allowed.
    pub(super) fn next_body(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, Nonsense> {
        let Some((length, rest)) = self.plain.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > bytes_max {
            return Err(Nonsense);
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
