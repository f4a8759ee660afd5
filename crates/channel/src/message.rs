//! The control messages that endpoints exchange over their links.

use serde::{Deserialize, Serialize};
use weft_agreement::ShrinkMessage;
use weft_call::Error;
use weft_call::Fingerprint;

use super::one_sided::OneSidedWord;
use super::status::RankStatus;

/// An upper bound of the messages for point-to-point messages and one-sided operations: a number
/// for the kind, and five others.
pub const ENVELOPE_BYTES: usize = 64;

/// A group that was split off: the call of one rank.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SplitCall {
    /// The new group's identity.
    pub child: u64,
    /// The name of the new group.
    pub name: String,
    /// The number of earlier calls with this name.
    pub number: usize,
    /// Its ranks.
    pub ranks: Vec<u32>,
    /// See `Policy::digest`.
    pub policy: u64,
}

impl SplitCall {
    /// Whether another rank has made the same group by its corresponding call.
    pub fn agrees_with(&self, other: &SplitCall) -> bool {
        self.ranks == other.ranks && self.policy == other.policy
    }
}

/// The rank at the end of a chain of ranks that wait for each other, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitCause {
    /// The rank that the others wait for.
    pub rank: u32,
    /// "which has not made this call".
    pub reason: String,
    /// Whether that rank has said so itself, not one that waits for it.
    pub is_own: bool,
    /// How many ranks have passed it on.
    pub passed: u32,
}

impl WaitCause {
    /// As a rank sends it that has received it.
    pub fn passed_on(&self) -> Self {
        WaitCause {
            passed: self.passed + 1,
            ..self.clone()
        }
    }

    /// Whether both say the same, by however many ranks.
    pub fn is_same(&self, other: &WaitCause) -> bool {
        (self.rank, &self.reason, self.is_own) == (other.rank, &other.reason, other.is_own)
    }
}

/// The location of a part in the sender's pool that the receiver may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GrantedPart {
    /// Its number.
    pub part: u8,
    /// The offset of the memory that the receiver may write.
    pub channel: u64,
    /// The offset of the sender's scratch memory, which it may read.
    pub scratch: u64,
}

/// A control message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum ControlMessage {
    /// The sender has made the group, and grants the receiver these parts of its pool. See [Note:
    /// Parts] in `parts.rs`.
    Grant {
        /// The group's identity.
        group: u64,
        /// The granted parts.
        parts: Vec<GrantedPart>,
    },
    /// The sender has left the group and does not access the receiver's pool on its behalf any
    /// more. `asks`: it waits for the same message from the receiver, which may have been lost with
    /// a link.
    Detach {
        /// The group's identity.
        group: u64,
        /// Whether an answer is expected.
        asks: bool,
    },
    /// A group is broken. Forwarded by every member that did not know. `origin`: the member that
    /// detected the reason, if one did. `limit`: operations from this one on fail. See [Note:
    /// Failures are ordered].
    Broken {
        /// The group's identity.
        group: u64,
        /// The reason.
        error: Error,
        /// The rank that detected it, if known.
        origin: Option<u32>,
        /// Operations from this one on fail.
        limit: u64,
    },
    /// The sender has waited for the receiver for long in this operation. Did the receiver make the
    /// same call?
    Query {
        /// The group's identity.
        group: u64,
        /// The number of the operation.
        sequence: u64,
        /// The sender's call.
        fingerprint: Fingerprint,
    },
    /// No: this was its call.
    Different {
        /// The group's identity.
        group: u64,
        /// The number of the operation.
        sequence: u64,
        /// The sender's call.
        fingerprint: Fingerprint,
    },
    /// The sender's last calls, as the receiver's calls differ from some point on.
    History {
        /// The group's identity.
        group: u64,
        /// The sender's last calls, with their numbers.
        recent: Vec<(u64, Fingerprint)>,
    },
    /// The answer to a query of a rank that made the same call, and its later corrections: why the
    /// sender has not completed its part.
    Waits {
        /// The group's identity.
        group: u64,
        /// The number of the operation.
        sequence: u64,
        /// The reason.
        cause: WaitCause,
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
        /// Its length in bytes.
        bytes: u64,
    },
    /// The receiver of an offer has memory for it. `taken`: the bytes of short messages that it has
    /// received so far, envelopes included.
    Ready {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// The bytes of short messages that are received.
        taken: u64,
    },
    /// The receiver of an offer expects another length.
    Refused {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// The number of bytes expected.
        expected: u64,
    },
    /// The receiver of a short message, which is complete at the sender, expects another length.
    Unfit {
        /// The group's identity.
        group: u64,
        /// The tag.
        tag: u64,
        /// The number of bytes sent.
        sent: u64,
        /// The number of bytes expected.
        expected: u64,
    },
    /// The sender has released a piece of symmetric memory.
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
        /// Its length in bytes.
        bytes: u64,
        /// The number of its signals.
        signals: u32,
        /// The region that holds it, if it is exposed.
        region: Option<u64>,
    },
    /// The sender could not make a piece of symmetric memory. The other ranks' calls for it fail.
    SymmetricFailed {
        /// The group's identity.
        group: u64,
        /// Its number at the sender.
        id: u64,
        /// Its length in bytes.
        bytes: u64,
        /// The number of its signals.
        signals: u32,
        /// The reason.
        error: Error,
    },
    /// A message in the agreement on the remaining members of the group.
    Shrink {
        /// The group's identity.
        group: u64,
        /// The message.
        word: ShrinkMessage,
    },
    /// A question whether the receiver's process runs, or the answer. See `silence.rs` in
    /// `runtime/src/progress`.
    Alive {
        /// The group's identity.
        group: u64,
        /// Whether it is the question.
        asks: bool,
    },
    /// Somebody watches the job: asks for the status of the receiver and of those that it asks in
    /// turn. See [Note: Inquiries] in `runtime/src/status`.
    Inquire {
        /// The group's identity.
        group: u64,
        /// The inquiry, by a number that is random.
        inquiry: u64,
        /// Whether a rank began it by itself, which waits for long, and prints the verdict.
        is_watchdog: bool,
    },
    /// A rank's status, on its way to the rank that has begun the inquiry.
    Status {
        /// The group's identity.
        group: u64,
        /// The inquiry.
        inquiry: u64,
        /// The status.
        status: Box<RankStatus>,
    },
    /// A one-sided operation on symmetric memory of the receiver, or its answer.
    OneSided {
        /// The group's identity.
        group: u64,
        /// The operation or answer.
        word: OneSidedWord,
    },
}

impl ControlMessage {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("messages hold nothing that postcard cannot encode")
    }

    /// Like [`ControlMessage::encode`], for a message about a point-to-point message or a one-sided
    /// operation.
    pub fn envelope<'a>(&self, buffer: &'a mut [u8; ENVELOPE_BYTES]) -> &'a [u8] {
        postcard::to_slice(self, buffer).expect("the longest of them fits")
    }

    /// Parses a message, and returns the bytes that follow it.
    pub fn decode(bytes: &[u8]) -> Option<(ControlMessage, &[u8])> {
        let (message, payload) = postcard::take_from_bytes(bytes).ok()?;
        let carries = match &message {
            ControlMessage::Eager { .. } => true,
            ControlMessage::OneSided { word, .. } => word.carries(),
            _ => false,
        };
        (carries || payload.is_empty()).then_some((message, payload))
    }

    /// The group of the message.
    pub fn group(&self) -> u64 {
        match self {
            ControlMessage::Grant { group, .. }
            | ControlMessage::Detach { group, .. }
            | ControlMessage::Broken { group, .. }
            | ControlMessage::Query { group, .. }
            | ControlMessage::Different { group, .. }
            | ControlMessage::History { group, .. }
            | ControlMessage::Waits { group, .. }
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
            | ControlMessage::Alive { group, .. }
            | ControlMessage::Inquire { group, .. }
            | ControlMessage::Status { group, .. }
            | ControlMessage::OneSided { group, .. } => *group,
        }
    }
}
