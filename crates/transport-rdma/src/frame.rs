//! Entries of a ring: signals, few bytes with their destination, and messages.

use weft_transport::{RegionKey, Signal};

/// One entry of a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RingFrame<'a> {
    /// Bytes for a region, perhaps none, and a signal behind them.
    Inject {
        region: RegionKey,
        offset: u64,
        bytes: &'a [u8],
        signal: Option<Signal>,
    },
    /// An empty frame, which only counts: messages can wait for it.
    Mark,
    /// A message, which is delivered once `key_changes` changes of keys have arrived, and on each
    /// further rail the number of frames in `behind`.
    Message {
        key_changes: u64,
        behind: Vec<u64>,
        bytes: &'a [u8],
    },
}

const INJECT: u8 = 1;
const MARK: u8 = 2;
const MESSAGE: u8 = 3;

impl<'a> RingFrame<'a> {
    pub(crate) fn signal(signal: Signal) -> RingFrame<'static> {
        RingFrame::Inject {
            region: RegionKey::POOL,
            offset: 0,
            bytes: &[],
            signal: Some(signal),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let word = |out: &mut Vec<u8>, value: u64| out.extend(value.to_le_bytes());
        match self {
            RingFrame::Inject {
                region,
                offset,
                bytes,
                signal,
            } => {
                out.extend([INJECT, u8::from(signal.is_some())]);
                if let Some(signal) = signal {
                    word(&mut out, signal.offset);
                    word(&mut out, signal.value);
                }
                if !bytes.is_empty() {
                    word(&mut out, region.0);
                    word(&mut out, *offset);
                    out.extend(*bytes);
                }
            }
            RingFrame::Mark => out.push(MARK),
            RingFrame::Message {
                key_changes,
                behind,
                bytes,
            } => {
                out.extend([MESSAGE, behind.len() as u8]);
                word(&mut out, *key_changes);
                behind.iter().for_each(|count| word(&mut out, *count));
                out.extend(*bytes);
            }
        }
        out
    }

    /// None if it is malformed.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<RingFrame<'a>> {
        let (&kind, rest) = bytes.split_first()?;
        if kind == MARK {
            return rest.is_empty().then_some(RingFrame::Mark);
        }
        let (&count, mut rest) = rest.split_first()?;
        match (kind, count) {
            (INJECT, 0 | 1) => {
                let mut signal = None;
                if count == 1 {
                    let (offset, value) = (word(&mut rest)?, word(&mut rest)?);
                    signal = Some(Signal { offset, value });
                }
                let (mut region, mut offset) = (0, 0);
                if !rest.is_empty() {
                    (region, offset) = (word(&mut rest)?, word(&mut rest)?);
                    // A place is encoded only with bytes.
                    if rest.is_empty() {
                        return None;
                    }
                }
                Some(RingFrame::Inject {
                    region: RegionKey(region),
                    offset,
                    bytes: rest,
                    signal,
                })
            }
            (MESSAGE, rails) => Some(RingFrame::Message {
                key_changes: word(&mut rest)?,
                behind: (0..rails).map(|_| word(&mut rest)).collect::<Option<_>>()?,
                bytes: rest,
            }),
            _ => None,
        }
    }
}

/// Takes a word off the front.
pub(crate) fn word(bytes: &mut &[u8]) -> Option<u64> {
    let (word, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_decoded_as_encoded() {
        let signal = Some(Signal {
            offset: 8,
            value: u64::MAX,
        });
        let inject = |bytes, signal| RingFrame::Inject {
            region: RegionKey(if bytes == b"" { 0 } else { 7 }),
            offset: if bytes == b"" { 0 } else { 9 },
            bytes,
            signal,
        };
        let message = |behind: &[u64], bytes| RingFrame::Message {
            key_changes: 3,
            behind: behind.to_vec(),
            bytes,
        };
        let frames = [
            inject(b"", signal),
            inject(b"few bytes", signal),
            inject(b"few bytes", None),
            RingFrame::Mark,
            message(&[], b""),
            message(&[1, 1 << 40], b"some bytes"),
        ];
        for frame in frames {
            let bytes = frame.encode();
            assert_eq!(RingFrame::decode(&bytes).as_ref(), Some(&frame));
        }
    }

    #[test]
    fn truncated_frames_are_malformed() {
        let signal = RingFrame::signal(Signal {
            offset: 8,
            value: 1,
        });
        let bytes = signal.encode();
        assert_eq!(RingFrame::decode(&[]), None);
        assert_eq!(RingFrame::decode(&bytes[..9]), None);
        assert_eq!(RingFrame::decode(&[INJECT, 2]), None);
        assert_eq!(
            RingFrame::decode(&[&[INJECT, 0][..], &[0; 16]].concat()),
            None
        );
        assert_eq!(
            RingFrame::decode(&[MESSAGE, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
            None
        );
        assert_eq!(RingFrame::decode(&[77, 0]), None);
    }
}
