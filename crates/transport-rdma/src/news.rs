//! What the two ends of a link tell each other over its connection for control: how to reach each
//! other's queue pairs, and which keys there are for what was granted.

use std::ops::Range;

use weft_transport::RegionKey;

use crate::frame::word;
use crate::ring::{HEADER_BYTES, RING_BYTES};
use crate::verbs::{PeerMemory, QueuePairAddress};

/// One end's side of a rail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RailOffer {
    pub(crate) pair: QueuePairAddress,
    /// Where the other end writes its frames.
    pub(crate) ring: PeerMemory,
}

/// A message over the connection for control.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum News {
    /// The first from each end: its rails.
    Offer(Vec<RailOffer>),
    /// The second of the end that dialled: it takes in what comes.
    Ready,
    /// In place of an offer: why there is none.
    Refused(String),
    /// The memory behind a range that was granted, by rail.
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
    /// A question: may the sender reach this range? Only behind what was granted before can there
    /// be an answer.
    Ask {
        region: RegionKey,
        range: Range<u64>,
    },
    /// The answer to the oldest question: it could once, and has been told all keys that are good
    /// now. Who never could is told nothing more.
    Answer,
}

const OFFER: u64 = 1;
const READY: u64 = 2;
const REFUSED: u64 = 3;
const KEYS: u64 = 4;
const VOID: u64 = 5;
const ASK: u64 = 6;
const ANSWER: u64 = 7;

impl News {
    /// Whether it changes what the receiver may reach: what messages wait for.
    pub(crate) fn is_of_keys(&self) -> bool {
        matches!(self, News::Keys { .. } | News::Void { .. })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let mut words = |words: &[u64]| {
            for word in words {
                out.extend(word.to_le_bytes());
            }
        };
        match self {
            News::Offer(rails) => {
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
            News::Ready => words(&[READY]),
            News::Refused(why) => {
                words(&[REFUSED]);
                out.extend(why.as_bytes());
            }
            News::Keys {
                region,
                range,
                memory,
            } => {
                words(&[KEYS, region.0, range.start, range.end]);
                for memory in memory {
                    words(&[memory.address, u64::from(memory.key)]);
                }
            }
            News::Void { region, range } => words(&[VOID, region.0, range.start, range.end]),
            News::Ask { region, range } => words(&[ASK, region.0, range.start, range.end]),
            News::Answer => words(&[ANSWER]),
        }
        out
    }

    /// None if it makes no sense. No memory in it goes beyond the last address.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<News> {
        let kind = word(&mut bytes)?;
        if kind == REFUSED {
            return Some(News::Refused(String::from_utf8_lossy(bytes).into_owned()));
        }
        let mut words = Vec::with_capacity(bytes.len() / 8);
        while !bytes.is_empty() {
            words.push(word(&mut bytes)?);
        }
        match (kind, words.as_slice()) {
            (OFFER, words) => {
                let (rails, rest) = words.as_chunks::<6>();
                let rails = rails.iter().map(offered).collect::<Option<_>>()?;
                rest.is_empty().then_some(News::Offer(rails))
            }
            (READY, []) => Some(News::Ready),
            (KEYS, [region, start, end, keys @ ..]) => {
                let (keys, rest) = keys.as_chunks::<2>();
                let len = end.checked_sub(*start)?;
                let keys = keys
                    .iter()
                    .map(|[address, key]| memory(*address, *key, len));
                let news = News::Keys {
                    region: RegionKey(*region),
                    range: *start..*end,
                    memory: keys.collect::<Option<_>>()?,
                };
                rest.is_empty().then_some(news)
            }
            (VOID, [region, start, end]) if start <= end => Some(News::Void {
                region: RegionKey(*region),
                range: *start..*end,
            }),
            (ASK, [region, start, end]) if start <= end => Some(News::Ask {
                region: RegionKey(*region),
                range: *start..*end,
            }),
            (ANSWER, []) => Some(News::Answer),
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

/// Memory of so many bytes, unless it would go beyond the last address.
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
    fn news_come_as_they_went_and_not_cut_short() {
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
            News::Offer(vec![rail; 2]),
            News::Ready,
            News::Keys {
                region,
                range: range.clone(),
                memory: vec![memory(1), memory(2)],
            },
            News::Void {
                region,
                range: range.clone(),
            },
            News::Ask { region, range },
            News::Answer,
        ];
        for news in all {
            let bytes = news.encode();
            assert_eq!(News::decode(&bytes).as_ref(), Some(&news));
            assert_eq!(News::decode(&bytes[..bytes.len() - 1]), None, "{news:?}");
        }
        let refused = News::Refused("no device".into());
        assert_eq!(News::decode(&refused.encode()), Some(refused));
    }

    #[test]
    fn ranges_run_forwards_and_memory_ends_before_the_last_address() {
        let keys = |range, address| News::Keys {
            region: RegionKey(3),
            range,
            memory: vec![PeerMemory { address, key: 1 }],
        };
        let known = |news: &News| News::decode(&news.encode()).is_some();
        assert!(known(&keys(64..128, u64::MAX - 64)));
        assert!(!known(&keys(64..128, u64::MAX - 63)));
        let (start, end) = (128, 64);
        assert!(!known(&keys(start..end, 0)));
        let (region, range) = (RegionKey(3), start..end);
        let void = News::Void {
            region,
            range: range.clone(),
        };
        assert!(!known(&void) && !known(&News::Ask { region, range }));
    }
}
