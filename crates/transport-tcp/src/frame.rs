//! Frames on a connection: a fixed header, followed by a payload for some kinds.
//!
//! All numbers are little-endian. A header has exactly one form: fields that a kind does not use
//! hold fixed values, and other values are rejected.
//!
//! | bytes  | field                                   | put | signal | message  | goodbye  | fence    |
//! |--------|-----------------------------------------|-----|--------|----------|----------|----------|
//! | 0..4   | kind                                    | 1   | 2      | 3        | 4        | 5        |
//! | 4..8   | region of the receiver's; connection    | yes | 0      | 0        | 0        | yes      |
//! | 8..16  | offset in it                            | yes | 0      | 0        | 0        | yes      |
//! | 16..24 | bytes of payload                        | yes | 0      | yes      | 0        | 0        |
//! | 24..32 | signal's offset, all ones for no signal | yes | yes    | all ones | all ones | all ones |
//! | 32..40 | signal's value, 0 for no signal         | yes | yes    | 0        | 0        | 0        |
//!
//! A confirmation, of kind 6, is like a fence without a connection.
#![forbid(unsafe_code)]

use std::ops::Range;

use weft_transport::{MESSAGE_BYTES_MAX, RegionKey, Signal};

/// Bytes of every header.
pub(crate) const HEADER_BYTES: usize = 40;

const NO_SIGNAL: u64 = u64::MAX;

/// A parsed header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    /// The payload is for this range of a region of the receiver; then the signal is stored.
    Put {
        region: u32,
        range: Range<u64>,
        signal: Option<Signal>,
    },
    /// A signal alone.
    Signal(Signal),
    /// The payload is a control message of this many bytes.
    Message { bytes: usize },
    /// The last frame: the sender closes in an orderly way.
    Goodbye,
    /// The next message is delivered when this many bytes have arrived on another connection of the
    /// link.
    Fence { connection: u32, position: u64 },
    /// The sender's program has taken this many bytes that arrived on this connection.
    Confirmation { position: u64 },
}

impl Frame {
    /// A fence without effect.
    pub(crate) const NOTHING: Frame = Frame::Fence {
        connection: 0,
        position: 0,
    };

    /// A put into a region for which [`is_named`] holds.
    pub(crate) fn put(region: RegionKey, range: Range<u64>, signal: Option<Signal>) -> Frame {
        Frame::Put {
            region: region.0 as u32,
            range,
            signal,
        }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let (kind, offset, bytes, signal) = match self {
            Frame::Put {
                region,
                range,
                signal,
            } => {
                let kind = 1 | u64::from(*region) << 32;
                (kind, range.start, range.end - range.start, *signal)
            }
            Frame::Signal(signal) => (2, 0, 0, Some(*signal)),
            Frame::Message { bytes } => (3, 0, *bytes as u64, None),
            Frame::Goodbye => (4, 0, 0, None),
            Frame::Fence {
                connection,
                position,
            } => (5 | u64::from(*connection) << 32, *position, 0, None),
            Frame::Confirmation { position } => (6, *position, 0, None),
        };
        let (signal, value) = signal.map_or((NO_SIGNAL, 0), |s| (s.offset, s.value));
        let mut header = [0; HEADER_BYTES];
        for (at, word) in [kind, offset, bytes, signal, value].iter().enumerate() {
            header[at * 8..at * 8 + 8].copy_from_slice(&u64::to_le_bytes(*word));
        }
        header
    }

    pub(crate) fn decode(header: &[u8; HEADER_BYTES]) -> Result<Self, &'static str> {
        let word = |at: usize| {
            let bytes = header[at * 8..at * 8 + 8].try_into();
            u64::from_le_bytes(bytes.expect("a range of 8 bytes"))
        };
        let [kind, offset, bytes, signal, value] = [0, 1, 2, 3, 4].map(word);
        let signal = match (signal, value) {
            (NO_SIGNAL, 0) => None,
            (NO_SIGNAL, _) => return Err("a value without a signal"),
            (offset, value) => Some(Signal { offset, value }),
        };
        let (kind, region) = (kind as u32, (kind >> 32) as u32);
        match (kind, offset, bytes, signal) {
            (1, _, 0, _) => Err("a put without bytes"),
            (1, start, bytes, signal) => {
                let end = start
                    .checked_add(bytes)
                    .ok_or("a put beyond the address space")?;
                Ok(Frame::Put {
                    region,
                    range: start..end,
                    signal,
                })
            }
            (5, position, 0, None) => Ok(Frame::Fence {
                connection: region,
                position,
            }),
            _ if region != 0 => Err("a region without a put"),
            (2, 0, 0, Some(signal)) => Ok(Frame::Signal(signal)),
            (3, 0, bytes, None) if bytes <= MESSAGE_BYTES_MAX as u64 => Ok(Frame::Message {
                bytes: bytes as usize,
            }),
            (4, 0, 0, None) => Ok(Frame::Goodbye),
            (6, position, 0, None) => Ok(Frame::Confirmation { position }),
            _ => Err("a malformed frame"),
        }
    }
}

/// Whether a frame can name a region: keys are counted from 0.
pub(crate) fn is_named(region: RegionKey) -> bool {
    u32::try_from(region.0).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let signal =
            || (0..u64::MAX, any::<u64>()).prop_map(|(offset, value)| Signal { offset, value });
        prop_oneof![
            (
                any::<u32>(),
                any::<u32>(),
                1..u32::MAX,
                prop::option::of(signal())
            )
                .prop_map(|(region, start, bytes, signal)| Frame::Put {
                    region,
                    range: u64::from(start)..u64::from(start) + u64::from(bytes),
                    signal,
                }),
            signal().prop_map(Frame::Signal),
            (0..=MESSAGE_BYTES_MAX).prop_map(|bytes| Frame::Message { bytes }),
            Just(Frame::Goodbye),
            any::<(u32, u64)>().prop_map(|(connection, position)| Frame::Fence {
                connection,
                position
            }),
            any::<u64>().prop_map(|position| Frame::Confirmation { position }),
        ]
    }

    /// Headers with few errors, so that every field's check is reached.
    fn headers() -> impl Strategy<Value = [u8; HEADER_BYTES]> {
        let word = || {
            prop_oneof![
                Just(0),
                Just(u64::MAX),
                0..5_u64,
                Just(1 | 7 << 32),
                any::<u64>()
            ]
        };
        [word(), word(), word(), word(), word()].prop_map(|words| {
            let mut header = [0; HEADER_BYTES];
            for (at, word) in words.iter().enumerate() {
                header[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
            }
            header
        })
    }

    proptest! {
        #[test]
        fn every_frame_survives_the_wire(frame in frames()) {
            prop_assert_eq!(Frame::decode(&frame.encode()), Ok(frame));
        }

        #[test]
        fn every_header_has_one_form(header in headers()) {
            if let Ok(frame) = Frame::decode(&header) {
                prop_assert_eq!(frame.encode(), header);
            }
        }
    }
}
