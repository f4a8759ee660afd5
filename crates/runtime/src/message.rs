//! The control messages that endpoints exchange over their links.

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::call::Fingerprint;

/// Longer reasons for an abort are cut, so that they fit into a message.
const REASON_CHARACTERS: usize = 4096;

/// A control message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The sender lets the receiver write into its pool at `channel`, and read its scratch memory at `scratch`.
    Grant {
        group: u64,
        channel: u64,
        scratch: u64,
    },
    /// The sender has left the group and does not touch the receiver's pool on its behalf any more.
    Detach { group: u64 },
    /// An endpoint's process is gone. Passed on by everybody who did not know.
    Dead { endpoint: u128, detail: String },
    /// A group is broken. Passed on by every member that did not know.
    Broken {
        group: u64,
        origin: u32,
        error: Failure,
    },
    /// The sender has waited for the receiver for long in this operation. Did the receiver call the same?
    Query {
        group: u64,
        sequence: u64,
        fingerprint: Fingerprint,
    },
    /// No: it called this.
    Different {
        group: u64,
        sequence: u64,
        fingerprint: Fingerprint,
    },
    /// A short point-to-point message.
    Eager {
        group: u64,
        tag: u64,
        bytes: Vec<u8>,
    },
    /// A long one is ready to be sent.
    Offer {
        group: u64,
        tag: u64,
        id: u64,
        bytes: u64,
    },
    /// The receiver of an offer has memory for it.
    Ready { group: u64, id: u64 },
    /// The receiver of an offer expects another length.
    Refused { group: u64, id: u64, expected: u64 },
    /// The sender has let go of a piece of symmetric memory.
    Released { group: u64, id: u64 },
    /// A piece of symmetric memory of the sender; its descriptor comes with it where the link can pass it.
    Symmetric { group: u64, id: u64, bytes: u64 },
}

/// An error on its way to another rank.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    PeerLost {
        rank: Option<u32>,
        host: String,
        detail: String,
    },
    Timeout {
        operation: String,
        waiting_for: String,
        after_ms: u64,
    },
    Desync {
        mine: String,
        rank: u32,
        theirs: String,
    },
    Aborted {
        reason: String,
    },
    Other {
        text: String,
    },
}

impl Failure {
    pub(crate) fn new(error: &Error) -> Self {
        match error.clone() {
            Error::PeerLost { rank, host, detail } => Failure::PeerLost { rank, host, detail },
            Error::Timeout {
                operation,
                waiting_for,
                after,
            } => Failure::Timeout {
                operation,
                waiting_for,
                after_ms: after.as_millis() as u64,
            },
            Error::Desync { mine, rank, theirs } => Failure::Desync { mine, rank, theirs },
            Error::Aborted { reason } => Failure::Aborted {
                reason: reason.chars().take(REASON_CHARACTERS).collect(),
            },
            other => Failure::Other {
                text: other.to_string(),
            },
        }
    }

    /// The error as a rank sees it that was told of it by `origin`.
    pub(crate) fn told_by(self, origin: u32) -> Error {
        match self {
            Failure::PeerLost { rank, host, detail } => Error::PeerLost { rank, host, detail },
            Failure::Timeout {
                operation,
                waiting_for,
                after_ms,
            } => Error::Timeout {
                operation: format!("rank {origin}: {operation}"),
                waiting_for,
                after: std::time::Duration::from_millis(after_ms),
            },
            Failure::Desync { mine, rank, theirs } => Error::Desync {
                mine: format!("(seen by rank {origin}) {mine}"),
                rank,
                theirs,
            },
            Failure::Aborted { reason } => Error::Aborted {
                reason: format!("by rank {origin}: {reason}"),
            },
            Failure::Other { text } => Error::Aborted {
                reason: format!("rank {origin} failed: {text}"),
            },
        }
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("messages hold nothing that postcard cannot encode")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Message> {
        postcard::from_bytes(bytes).ok()
    }

    /// The group that the message is about, if any.
    pub(crate) fn group(&self) -> Option<u64> {
        match self {
            Message::Dead { .. } => None,
            Message::Grant { group, .. }
            | Message::Detach { group }
            | Message::Broken { group, .. }
            | Message::Query { group, .. }
            | Message::Different { group, .. }
            | Message::Eager { group, .. }
            | Message::Offer { group, .. }
            | Message::Ready { group, .. }
            | Message::Refused { group, .. }
            | Message::Released { group, .. }
            | Message::Symmetric { group, .. } => Some(*group),
        }
    }
}
