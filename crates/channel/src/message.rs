//! The control messages that endpoints exchange over their links.

use serde::{Deserialize, Serialize};
use weft_agreement::ShrinkMessage;
use weft_call::Error;
use weft_call::Fingerprint;

use super::one_sided::OneSidedWord;

/// More than the messages take that have to do with point-to-point messages and one-sided
/// operations: numbers for what it is, and five others.
pub const ENVELOPE_BYTES: usize = 64;

/// A group that was split off: the call of one rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SplitCall {
    /// The new group's identity.
    pub child: u64,
    /// The name of the new group.
    pub name: String,
    /// How many calls with this name came before it.
    pub number: usize,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// See `Policy::digest`.
    pub policy: u64,
}

impl SplitCall {
    /// Whether another rank has made the same group by the call in this one's place.
    pub fn agrees_with(&self, other: &SplitCall) -> bool {
        self.ranks == other.ranks && self.policy == other.policy
    }
}

/// Where a part lies in the sender's pool that the receiver may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantedPart {
    /// Its number.
    pub part: u8,
    /// Where the receiver may write.
    pub channel: u64,
    /// Where it may read the sender's scratch memory.
    pub scratch: u64,
}

/// A control message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ControlMessage {
    /// The sender has made the group, and lets the receiver use these parts of its pool. See
    /// [Note: Parts] in `parts.rs`.
    Grant {
        /// The group's identity.
        group: u64,
        /// What is granted.
        parts: Vec<GrantedPart>,
    },
    /// The sender has left the group and does not touch the receiver's pool on its behalf any more.
    /// `asks`: it waits to be told the same, which may have been lost with a link.
    Detach {
        /// The group's identity.
        group: u64,
        /// Whether an answer is expected.
        asks: bool,
    },
    /// A group is broken. Passed on by every member that did not know. `origin`: who saw why,
    /// where a member did. `limit`: operations from this one on fail. See
    /// [Note: Failures are ordered].
    Broken {
        /// The group's identity.
        group: u64,
        /// Why.
        error: Error,
        /// The rank that saw it, if known.
        origin: Option<u32>,
        /// Operations from this one on fail.
        limit: u64,
    },
    /// The sender has waited for the receiver for long in this operation. Did the receiver call the
    /// same?
    Query {
        /// The group's identity.
        group: u64,
        /// The number of the operation.
        sequence: u64,
        /// The sender's call.
        fingerprint: Fingerprint,
    },
    /// No: it called this.
    Different {
        /// The group's identity.
        group: u64,
        /// The number of the operation.
        sequence: u64,
        /// The sender's call.
        fingerprint: Fingerprint,
    },
    /// What the sender has called last, as the receiver has called something else before.
    History {
        /// The group's identity.
        group: u64,
        /// The sender's last calls, with their numbers.
        recent: Vec<(u64, Fingerprint)>,
    },
    /// The sender has split a group off.
    Split {
        /// The group's identity.
        group: u64,
        /// The call.
        split: SplitCall,
    },
    /// The envelope of a short point-to-point message, whose bytes follow.
    Eager {
        /// The group's identity.
        group: u64,
        /// The tag.
        tag: u64,
    },
    /// A long one is ready to be sent.
    Offer {
        /// The group's identity.
        group: u64,
        /// The tag.
        tag: u64,
        /// Its number at the sender.
        id: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// The receiver of an offer has memory for it. `taken`: what it has received so far of short
    /// messages, envelopes included, in bytes.
    Ready {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// How many of them are taken.
        taken: u64,
    },
    /// The receiver of an offer expects another length.
    Refused {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// How many bytes were expected.
        expected: u64,
    },
    /// The receiver of a short message, which has come to its end at the sender, expects another
    /// length.
    Unfit {
        /// The group's identity.
        group: u64,
        /// The tag.
        tag: u64,
        /// How many bytes were sent.
        sent: u64,
        /// How many bytes were expected.
        expected: u64,
    },
    /// The sender has let go of a piece of symmetric memory.
    Released {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
    },
    /// A piece of symmetric memory, and the region that is the sender's part of it, if it has one.
    Symmetric {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// How many bytes.
        bytes: u64,
        /// How many signals it has.
        signals: u32,
        /// The region that it lies in, if it is exposed.
        region: Option<u64>,
    },
    /// The sender could not make a piece of symmetric memory. Nobody else's call for it ends well.
    SymmetricFailed {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// How many bytes.
        bytes: u64,
        /// How many signals it has.
        signals: u32,
        /// Why.
        error: Error,
    },
    /// What the sender says in the agreement on who of the group is left.
    Shrink {
        /// The group's identity.
        group: u64,
        /// What is said.
        word: ShrinkMessage,
    },
    /// What the sender does with symmetric memory of the receiver's, or says in answer.
    OneSided {
        /// The group's identity.
        group: u64,
        /// What is said.
        word: OneSidedWord,
    },
}

impl ControlMessage {
    /// The message as it travels.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("messages hold nothing that postcard cannot encode")
    }

    /// As [`ControlMessage::encode`], of a message that has to do with a point-to-point message or
    /// a one-sided operation.
    pub fn envelope<'a>(&self, buffer: &'a mut [u8; ENVELOPE_BYTES]) -> &'a [u8] {
        postcard::to_slice(self, buffer).expect("the longest of them fits")
    }

    /// A message, and the bytes that follow it.
    pub fn decode(bytes: &[u8]) -> Option<(ControlMessage, &[u8])> {
        let (message, payload) = postcard::take_from_bytes(bytes).ok()?;
        let carries = match &message {
            ControlMessage::Eager { .. } => true,
            ControlMessage::OneSided { word, .. } => word.carries(),
            _ => false,
        };
        (carries || payload.is_empty()).then_some((message, payload))
    }

    /// The group that the message is about.
    pub fn group(&self) -> u64 {
        match self {
            ControlMessage::Grant { group, .. }
            | ControlMessage::Detach { group, .. }
            | ControlMessage::Broken { group, .. }
            | ControlMessage::Query { group, .. }
            | ControlMessage::Different { group, .. }
            | ControlMessage::History { group, .. }
            | ControlMessage::Split { group, .. }
            | ControlMessage::Eager { group, .. }
            | ControlMessage::Offer { group, .. }
            | ControlMessage::Ready { group, .. }
            | ControlMessage::Refused { group, .. }
            | ControlMessage::Unfit { group, .. }
            | ControlMessage::Released { group, .. }
            | ControlMessage::Symmetric { group, .. }
            | ControlMessage::SymmetricFailed { group, .. }
            | ControlMessage::Shrink { group, .. }
            | ControlMessage::OneSided { group, .. } => *group,
        }
    }
}
