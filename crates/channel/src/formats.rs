//! The formats that two builds must have in common to understand each other, as hashes.

use std::time::Duration;

use weft_agreement::{Ranks, ShrinkMessage, ShrinkStep, Survivors};
use weft_bootstrap::Formats;
use weft_call::Error;
use weft_call::{Fingerprint, mix};

use super::layout::{CLAIMS, ChannelLayout, FRAGMENT_BYTES, INLINE_HEADER, INLINE_SLOTS};
use super::layout::{SMALL_RECEIVE, SMALL_SCRATCH, SlotSize};
use super::message::{ControlMessage, GrantedPart, SplitCall, WaitCause};
use super::one_sided::{CellOp, CellUpdate, OneSidedWord};
use super::parts::ChannelPart;

/// The formats of this build.
pub fn formats() -> Formats {
    Formats {
        messages: hash(samples().iter().flat_map(ControlMessage::encode)),
        memory: hash(layouts().bytes()),
    }
}

fn hash(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.map(u64::from).fold(1, mix)
}

/// The layouts of groups of several sizes, with and without links that have delay.
fn layouts() -> String {
    let sizes = (2..20).chain([64, 1000]);
    let layouts = sizes.flat_map(|size| {
        [0, 1, 50].map(|millis| {
            let layout = ChannelLayout::new(size, Duration::from_millis(millis));
            let bytes = |part| (layout.channel_bytes(part), layout.scratch_bytes(part));
            let parts: Vec<(u64, u64)> = ChannelPart::all().map(bytes).collect();
            format!("{layout:?} {parts:?}")
        })
    });
    let constants = [
        u64::from(CLAIMS),
        FRAGMENT_BYTES,
        INLINE_HEADER as u64,
        INLINE_SLOTS,
        SlotSize::Small.stride(),
        SlotSize::Large.stride(),
        SMALL_RECEIVE,
        SMALL_SCRATCH,
    ];
    format!("{:?} {constants:?}", layouts.collect::<Vec<_>>())
}

/// One message of each kind.
fn samples() -> Vec<ControlMessage> {
    let (group, id, bytes, tag, sequence) = (1, 2, 3, 4, 5);
    let fingerprint = Fingerprint::behind_flag(|word| word);
    let error = Error::cancelled();
    let split = SplitCall {
        child: 6,
        name: "name".into(),
        number: 7,
        ranks: vec![8],
        policy: 9,
    };
    let mut samples = vec![
        ControlMessage::Grant {
            group,
            parts: vec![GrantedPart {
                part: 8,
                channel: 9,
                scratch: 10,
            }],
        },
        ControlMessage::Detach { group, asks: true },
        ControlMessage::Alive { group, asks: true },
        ControlMessage::Broken {
            group,
            error: error.clone(),
            origin: Some(6),
            limit: 20,
        },
        ControlMessage::Query {
            group,
            sequence,
            fingerprint,
        },
        ControlMessage::Different {
            group,
            sequence,
            fingerprint,
        },
        ControlMessage::History {
            group,
            recent: vec![(sequence, fingerprint)],
        },
        ControlMessage::Waits {
            group,
            sequence,
            cause: WaitCause {
                rank: 6,
                reason: "reason".into(),
                is_own: true,
                passed: 7,
            },
        },
        ControlMessage::Split { group, split },
        ControlMessage::Eager { group, tag },
        ControlMessage::Offer {
            group,
            tag,
            id,
            bytes,
        },
        ControlMessage::Ready {
            group,
            id,
            taken: 24,
        },
        ControlMessage::Refused {
            group,
            id,
            expected: 12,
        },
        ControlMessage::Unfit {
            group,
            tag,
            sent: 13,
            expected: 12,
        },
        ControlMessage::Released { group, id },
        ControlMessage::Symmetric {
            group,
            id,
            bytes,
            signals: 22,
            region: Some(14),
        },
        ControlMessage::SymmetricFailed {
            group,
            id,
            bytes,
            signals: 22,
            error,
        },
    ];
    samples.extend(shrink_samples(group));
    samples.extend(one_sided_samples(group));
    samples
}

/// One message of each kind.
fn shrink_samples(group: u64) -> impl Iterator<Item = ControlMessage> {
    let (ballot, members) = (15, Ranks::from([16]));
    let survivors = Survivors {
        members: members.clone(),
        unanimous: true,
    };
    let steps = [
        ShrinkStep::Join,
        ShrinkStep::Acknowledge,
        ShrinkStep::Gone,
        ShrinkStep::Prepare { ballot },
        ShrinkStep::Promise {
            ballot,
            vote: true,
            accepted: Some((ballot, survivors.clone())),
        },
        ShrinkStep::Accept {
            ballot,
            survivors: survivors.clone(),
        },
        ShrinkStep::Accepted { ballot },
        ShrinkStep::Superseded { ballot },
        ShrinkStep::Decided { survivors },
    ];
    steps.into_iter().map(move |step| ControlMessage::Shrink {
        group,
        word: ShrinkMessage {
            ended: members.clone(),
            step,
        },
    })
}

/// One message of each kind, with each change of a cell.
fn one_sided_samples(group: u64) -> impl Iterator<Item = ControlMessage> {
    let (piece, offset, bytes, id, value) = (17, 18, 19, 20, 21);
    let ops = [
        CellOp::Set(value),
        CellOp::Add(value),
        CellOp::CompareSwap {
            expected: 22,
            new: 23,
        },
    ];
    let updates = ops.map(|op| OneSidedWord::Put {
        piece,
        offset,
        update: Some(CellUpdate { offset, op }),
    });
    let update = CellUpdate { offset, op: ops[0] };
    let others = [
        OneSidedWord::Get {
            piece,
            offset,
            bytes,
            id,
        },
        OneSidedWord::Atomic { piece, update, id },
        OneSidedWord::Flush { id },
        OneSidedWord::Data { id },
        OneSidedWord::Before { id, value },
        OneSidedWord::Flushed { id },
        OneSidedWord::Freed { id },
    ];
    let words = updates.into_iter().chain(others);
    words.map(move |word| ControlMessage::OneSided { group, word })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_stable_and_depend_on_layouts() {
        assert_eq!(formats(), formats());
        assert_ne!(formats().messages, formats().memory);
        assert!(layouts().contains("slots"), "{}", layouts());
    }
}
