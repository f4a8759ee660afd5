//! The control messages of a link: offers of queue pairs, and changes of keys for granted memory.

use std::ops::Range;

use weft_transport::RegionKey;

use crate::frame::word;
use crate::ring::{HEADER_BYTES, RING_BYTES};
use crate::verbs::{PeerMemory, QueuePairAddress};

/// One end's side of a rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RailOffer {
    pub(crate) pair: QueuePairAddress,
    /// The ring for the other end's frames.
    pub(crate) ring: PeerMemory,
}

/// A message over the control connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkControl {
    /// The first message of each end: its rails.
    Offer(Vec<RailOffer>),
    /// The second message of the dialling end: it is ready to receive.
    Ready,
    /// In place of an offer: the reason that there is none.
    Refused(String),
    /// The memory of a granted range, by rail.
    Keys {
        region: RegionKey,
        range: Range<u64>,
        memory: Vec<PeerMemory>,
    },
    /// These keys are void.
    Void {
        region: RegionKey,
        range: Range<u64>,
    },
    /// A question: may the sender access this range? It can only be answered after earlier grants.
    Ask {
        region: RegionKey,
        range: Range<u64>,
    },
    /// The answer to the oldest question: the range was accessible once, and all currently valid
    /// keys were sent. An access that was never permitted ends the link instead.
    Answer,
}

const OFFER: u64 = 1;
const READY: u64 = 2;
const REFUSED: u64 = 3;
const KEYS: u64 = 4;
const VOID: u64 = 5;
const ASK: u64 = 6;
const ANSWER: u64 = 7;

impl LinkControl {
    /// Whether it changes keys: messages wait for such changes.
    pub(crate) fn changes_keys(&self) -> bool {
        matches!(self, LinkControl::Keys { .. } | LinkControl::Void { .. })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let mut words = |words: &[u64]| {
            for word in words {
                out.extend(word.to_le_bytes());
            }
        };
        match self {
            LinkControl::Offer(rails) => {
                words(&[OFFER]);
                for RailOffer { pair, ring } in rails {
                    let [high, low] = halves(pair.gid);
                    let numbers = (u64::from(pair.number) << 32) | u64::from(pair.psn);
                    let port = u64::from(pair.lid) << 16
                        | u64::from(pair.reads) << 8
                        | u64::from(pair.mtu);
                    words(&[numbers, port, high, low]);
                    words(&[ring.address, u64::from(ring.key)]);
                }
            }
            LinkControl::Ready => words(&[READY]),
            LinkControl::Refused(why) => {
                words(&[REFUSED]);
                out.extend(why.as_bytes());
            }
            LinkControl::Keys {
                region,
                range,
                memory,
            } => {
                words(&[KEYS, region.0, range.start, range.end]);
                for memory in memory {
                    words(&[memory.address, u64::from(memory.key)]);
                }
            }
            LinkControl::Void { region, range } => words(&[VOID, region.0, range.start, range.end]),
            LinkControl::Ask { region, range } => words(&[ASK, region.0, range.start, range.end]),
            LinkControl::Answer => words(&[ANSWER]),
        }
        out
    }

    /// None if it is malformed. No memory in it exceeds the address space.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<LinkControl> {
        let kind = word(&mut bytes)?;
        if kind == REFUSED {
            return Some(LinkControl::Refused(
                String::from_utf8_lossy(bytes).into_owned(),
            ));
        }
        let mut words = Vec::with_capacity(bytes.len() / 8);
        while !bytes.is_empty() {
            words.push(word(&mut bytes)?);
        }
        match (kind, words.as_slice()) {
            (OFFER, words) => {
                let (rails, rest) = words.as_chunks::<6>();
                let rails = rails.iter().map(offered).collect::<Option<_>>()?;
                rest.is_empty().then_some(LinkControl::Offer(rails))
            }
            (READY, []) => Some(LinkControl::Ready),
            (KEYS, [region, start, end, keys @ ..]) => {
                let (keys, rest) = keys.as_chunks::<2>();
                let len = end.checked_sub(*start)?;
                let keys = keys
                    .iter()
                    .map(|[address, key]| memory(*address, *key, len));
                let message = LinkControl::Keys {
                    region: RegionKey(*region),
                    range: *start..*end,
                    memory: keys.collect::<Option<_>>()?,
                };
                rest.is_empty().then_some(message)
            }
            (VOID, [region, start, end]) if start <= end => Some(LinkControl::Void {
                region: RegionKey(*region),
                range: *start..*end,
            }),
            (ASK, [region, start, end]) if start <= end => Some(LinkControl::Ask {
                region: RegionKey(*region),
                range: *start..*end,
            }),
            (ANSWER, []) => Some(LinkControl::Answer),
            _ => None,
        }
    }
}

/// A rail, from the words of an offer.
fn offered([numbers, port, high, low, address, key]: &[u64; 6]) -> Option<RailOffer> {
    let port: u32 = (*port).try_into().ok()?;
    Some(RailOffer {
        pair: QueuePairAddress {
            number: (numbers >> 32) as u32,
            psn: *numbers as u32,
            lid: (port >> 16) as u16,
            mtu: port as u8,
            reads: (port >> 8) as u8,
            gid: joined([*high, *low]),
        },
        ring: memory(*address, *key, HEADER_BYTES + RING_BYTES)?,
    })
}

/// Memory of `len` bytes, unless it would exceed the address space.
fn memory(address: u64, key: u64, len: u64) -> Option<PeerMemory> {
    address.checked_add(len)?;
    let key = key.try_into().ok()?;
    Some(PeerMemory { address, key })
}

fn halves(gid: [u8; 16]) -> [u64; 2] {
    let gid = u128::from_be_bytes(gid);
    [(gid >> 64) as u64, gid as u64]
}

fn joined([high, low]: [u64; 2]) -> [u8; 16] {
    ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_decoded_as_encoded() {
        let memory = |key| PeerMemory {
            address: 1 << 60,
            key,
        };
        let rail = RailOffer {
            pair: QueuePairAddress {
                number: 0x00ab_cdef,
                psn: 0x00ff_ffff,
                lid: 65535,
                mtu: 5,
                reads: 16,
                gid: std::array::from_fn(|index| index as u8 + 200),
            },
            ring: memory(u32::MAX),
        };
        let (region, range) = (RegionKey(3), 64..4096);
        let all = [
            LinkControl::Offer(vec![rail; 2]),
            LinkControl::Ready,
            LinkControl::Keys {
                region,
                range: range.clone(),
                memory: vec![memory(1), memory(2)],
            },
            LinkControl::Void {
                region,
                range: range.clone(),
            },
            LinkControl::Ask { region, range },
            LinkControl::Answer,
        ];
        for message in all {
            let bytes = message.encode();
            assert_eq!(LinkControl::decode(&bytes).as_ref(), Some(&message));
            assert_eq!(
                LinkControl::decode(&bytes[..bytes.len() - 1]),
                None,
                "{message:?}"
            );
        }
        let refused = LinkControl::Refused("no device".into());
        assert_eq!(LinkControl::decode(&refused.encode()), Some(refused));
    }

    #[test]
    fn invalid_ranges_and_addresses_are_malformed() {
        let keys = |range, address| LinkControl::Keys {
            region: RegionKey(3),
            range,
            memory: vec![PeerMemory { address, key: 1 }],
        };
        let known = |message: &LinkControl| LinkControl::decode(&message.encode()).is_some();
        assert!(known(&keys(64..128, u64::MAX - 64)));
        assert!(!known(&keys(64..128, u64::MAX - 63)));
        let (start, end) = (128, 64);
        assert!(!known(&keys(start..end, 0)));
        let (region, range) = (RegionKey(3), start..end);
        let void = LinkControl::Void {
            region,
            range: range.clone(),
        };
        assert!(!known(&void) && !known(&LinkControl::Ask { region, range }));
    }
}
