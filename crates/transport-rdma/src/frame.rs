//! What lies in a ring: signals, few bytes with their place, and messages.

use weft_transport::{RegionKey, Signal};

/// One entry of a ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Frame<'a> {
    /// Bytes for a region, perhaps none, and a signal behind them.
    Inject {
        region: RegionKey,
        offset: u64,
        bytes: &'a [u8],
        signal: Option<Signal>,
    },
    /// Nothing: there is something for others to wait for.
    Mark,
    /// A message, which is given out once so many news of keys have come, and so many frames by
    /// each further rail.
    Message {
        news: u64,
        behind: Vec<u64>,
        bytes: &'a [u8],
    },
}

const INJECT: u8 = 1;
const MARK: u8 = 2;
const MESSAGE: u8 = 3;

impl<'a> Frame<'a> {
    pub(crate) fn signal(signal: Signal) -> Frame<'static> {
        Frame::Inject {
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
            Frame::Inject {
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
            Frame::Mark => out.push(MARK),
            Frame::Message {
                news,
                behind,
                bytes,
            } => {
                out.extend([MESSAGE, behind.len() as u8]);
                word(&mut out, *news);
                behind.iter().for_each(|count| word(&mut out, *count));
                out.extend(*bytes);
            }
        }
        out
    }

    /// None if it makes no sense.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (&kind, rest) = bytes.split_first()?;
        if kind == MARK {
            return rest.is_empty().then_some(Frame::Mark);
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
                    // A place is told for bytes only.
                    if rest.is_empty() {
                        return None;
                    }
                }
                Some(Frame::Inject {
                    region: RegionKey(region),
                    offset,
                    bytes: rest,
                    signal,
                })
            }
            (MESSAGE, rails) => Some(Frame::Message {
                news: word(&mut rest)?,
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
    fn frames_come_as_they_went() {
        let signal = Some(Signal {
            offset: 8,
            value: u64::MAX,
        });
        let inject = |bytes, signal| Frame::Inject {
            region: RegionKey(if bytes == b"" { 0 } else { 7 }),
            offset: if bytes == b"" { 0 } else { 9 },
            bytes,
            signal,
        };
        let message = |behind: &[u64], bytes| Frame::Message {
            news: 3,
            behind: behind.to_vec(),
            bytes,
        };
        let frames = [
            inject(b"", signal),
            inject(b"few bytes", signal),
            inject(b"few bytes", None),
            Frame::Mark,
            message(&[], b""),
            message(&[1, 1 << 40], b"some bytes"),
        ];
        for frame in frames {
            let bytes = frame.encode();
            assert_eq!(Frame::decode(&bytes).as_ref(), Some(&frame));
        }
    }

    #[test]
    fn what_is_cut_short_makes_no_sense() {
        let signal = Frame::signal(Signal {
            offset: 8,
            value: 1,
        });
        let bytes = signal.encode();
        assert_eq!(Frame::decode(&[]), None);
        assert_eq!(Frame::decode(&bytes[..9]), None);
        assert_eq!(Frame::decode(&[INJECT, 2]), None);
        assert_eq!(Frame::decode(&[&[INJECT, 0][..], &[0; 16]].concat()), None);
        assert_eq!(Frame::decode(&[MESSAGE, 1, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(Frame::decode(&[77, 0]), None);
    }
}
