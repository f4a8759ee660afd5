//! Tests of redirected payloads, split anywhere, against an oracle.

use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

use proptest::prelude::*;
use weft_transport::{IovecMut, Redirection, RegionKey, Regions, Segment, Signal};

use crate::frame::{Frame, HEADER_BYTES};
use crate::incoming::TcpIncoming;
use crate::traffic_tests::MemoryWire;

const POOL: u64 = 64 << 10;
/// The range that the peer may write to.
const GRANTED: Range<u64> = 4096..POOL;
/// No sent byte has this value.
const UNTOUCHED: u8 = 255;
/// The range of the puts in the plain tests.
const PLACE: Range<u64> = 8192..9192;
/// The part of them that has arrived when something happens.
const FIRST: Range<u64> = PLACE.start..PLACE.start + 400;
const REST: Range<u64> = FIRST.end..PLACE.end;

/// Memory to which payloads are redirected.
struct Target {
    name: Redirection,
    place: Range<u64>,
    memory: Vec<u8>,
}

impl Target {
    fn new(number: u64, place: Range<u64>) -> Self {
        let bytes = (place.end - place.start) as usize;
        Target {
            name: Redirection(number),
            place,
            memory: vec![UNTOUCHED; bytes],
        }
    }

    fn redirect(&mut self, incoming: &mut TcpIncoming) {
        // SAFETY: the tests keep the memory until its redirection is taken back or the receiver is
        // gone, and read it only afterwards.
        let into = unsafe { IovecMut::new(self.memory.as_mut_ptr(), self.memory.len()) };
        incoming.redirect(self.name, (RegionKey::POOL, self.place.start), into);
    }
}

fn receiver() -> (Arc<Segment>, TcpIncoming) {
    let pool = Arc::new(Segment::create("redirect-test", POOL).unwrap());
    let mut incoming = TcpIncoming::new(Regions::new(pool.clone()), 0);
    incoming.grant(RegionKey::POOL, GRANTED);
    (pool, incoming)
}

fn contents(pool: &Segment) -> Vec<u8> {
    let words = (0..POOL / 8).map(|word| pool.word(word * 8));
    let values = words.map(|word| word.load(std::sync::atomic::Ordering::Acquire));
    values.flat_map(u64::to_ne_bytes).collect()
}

fn part(bytes: &[u8], range: &Range<u64>) -> Vec<u8> {
    bytes[range.start as usize..range.end as usize].to_vec()
}

/// A put whose bytes differ from their neighbours, without a signal.
fn put(wire: &mut MemoryWire, range: &Range<u64>, seed: u8) -> Vec<u8> {
    let frame = Frame::Put {
        region: 0,
        range: range.clone(),
        signal: None,
    };
    let bytes = (0..range.end - range.start).map(|at| (at % 251) as u8 ^ (seed % 4));
    let bytes: Vec<u8> = bytes.collect();
    wire.bytes.extend(frame.encode());
    wire.bytes.extend(&bytes);
    bytes
}

/// The header and the first 400 bytes of a put to [`PLACE`] have arrived: of 1000, all for
/// `target`.
fn in_mid_payload(target: &mut Target) -> (Arc<Segment>, TcpIncoming, MemoryWire, Vec<u8>) {
    let (pool, mut incoming) = receiver();
    target.redirect(&mut incoming);
    let mut wire = MemoryWire::new(vec![HEADER_BYTES, 400, 300, 300]);
    let sent = put(&mut wire, &PLACE, 1);
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    (pool, incoming, wire, sent)
}

#[test]
fn bytes_after_take_back_are_in_the_region() {
    let mut target = Target::new(1, PLACE);
    let (pool, mut incoming, mut wire, sent) = in_mid_payload(&mut target);
    let redirected = incoming.take_back(target.name);
    assert_eq!(redirected, from_ref(&FIRST));
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    assert_eq!(target.memory[..400], sent[..400]);
    assert_eq!(target.memory[400..], [UNTOUCHED; 600]);
    let landed = part(&contents(&pool), &PLACE);
    assert_eq!(
        (&landed[..400], &landed[400..]),
        (&[0; 400][..], &sent[400..])
    );
}

#[test]
fn bytes_before_a_redirection_stay_in_place() {
    let (pool, mut incoming) = receiver();
    let mut wire = MemoryWire::new(vec![HEADER_BYTES, 400, 300, 300]);
    let sent = put(&mut wire, &PLACE, 2);
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    let mut target = Target::new(1, PLACE);
    target.redirect(&mut incoming);
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    let redirected = incoming.take_back(target.name);
    assert_eq!(redirected, from_ref(&REST));
    assert_eq!(target.memory[..400], [UNTOUCHED; 400]);
    assert_eq!(target.memory[400..], sent[400..]);
    assert_eq!(part(&contents(&pool), &PLACE)[..400], sent[..400]);
}

#[test]
fn range_revoked_mid_payload_is_not_written() {
    let mut target = Target::new(1, PLACE);
    let (pool, mut incoming, mut wire, _) = in_mid_payload(&mut target);
    incoming.revoke(RegionKey::POOL, PLACE);
    for _ in 0..2 {
        incoming.step(&mut wire).unwrap();
    }
    // Neither is a later put.
    wire.portions = Box::new(std::iter::repeat(777));
    put(&mut wire, &PLACE, 3);
    while !wire.bytes.is_empty() {
        incoming.step(&mut wire).unwrap();
    }
    let redirected = incoming.take_back(target.name);
    assert_eq!(redirected, from_ref(&FIRST));
    assert_eq!(target.memory[400..], [UNTOUCHED; 600]);
    assert_eq!(part(&contents(&pool), &PLACE), [0; 1000]);
}

#[test]
fn unsent_bytes_of_a_dead_peer_are_missing() {
    let mut target = Target::new(1, PLACE);
    let (_, mut incoming, _, sent) = in_mid_payload(&mut target);
    incoming.step(&mut std::io::empty()).unwrap_err();
    let redirected = incoming.take_back(target.name);
    assert!(redirected.iter().all(|part| part.end <= FIRST.end));
    assert_eq!(target.memory[..400], sent[..400]);
    assert_eq!(target.memory[400..], [UNTOUCHED; 600]);
}

#[test]
fn redirection_does_not_extend_the_grant() {
    let (_, mut incoming) = receiver();
    let mut target = Target::new(1, 0..GRANTED.start);
    target.redirect(&mut incoming);
    let mut wire = MemoryWire::new(vec![1 << 20]);
    put(&mut wire, &(GRANTED.start - 8..GRANTED.start + 8), 1);
    incoming.step(&mut wire).unwrap_err();
    incoming.take_back(target.name);
    assert_eq!(target.memory, [UNTOUCHED; 4096]);
}

#[test]
fn signals_are_stored_in_the_pool() {
    let (pool, mut incoming) = receiver();
    let mut target = Target::new(1, GRANTED);
    target.redirect(&mut incoming);
    let mut wire = MemoryWire::new(vec![1 << 20]);
    let signal = Signal {
        offset: PLACE.start,
        value: 7,
    };
    wire.bytes.extend(Frame::Signal(signal).encode());
    incoming.step(&mut wire).unwrap();
    assert_eq!(incoming.take_back(target.name), []);
    assert_eq!(contents(&pool)[PLACE.start as usize], 7);
}

#[derive(Clone, Debug)]
enum RedirectAction {
    Put {
        range: Range<u64>,
        seed: u8,
    },
    Redirect {
        place: Range<u64>,
    },
    /// The one with this number, modulo their count.
    TakeBack(usize),
    Receive(usize),
}

fn ranges() -> impl Strategy<Value = Range<u64>> {
    let bytes = prop_oneof![1..100_u64, 1..20_000_u64];
    (GRANTED, bytes).prop_map(|(start, bytes)| start..(start + bytes).min(GRANTED.end))
}

fn actions() -> impl Strategy<Value = Vec<RedirectAction>> {
    let action = prop_oneof![
        3 => (ranges(), any::<u8>()).prop_map(|(range, seed)| RedirectAction::Put { range, seed }),
        3 => ranges().prop_map(|place| RedirectAction::Redirect { place }),
        2 => any::<usize>().prop_map(RedirectAction::TakeBack),
        4 => (0..6_usize).prop_map(RedirectAction::Receive),
    ];
    prop::collection::vec(action, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A caller that copies the redirected bytes to their place, when a redirection is taken back,
    /// has the bytes that would have been received there without it.
    #[test]
    fn region_and_redirections_hold_all_bytes(
        actions in actions(),
        portions in prop::collection::vec(prop_oneof![1..100_usize, 1..30_000_usize], 1..20),
    ) {
        let (pool, mut incoming) = receiver();
        let mut wire = MemoryWire::new(portions);
        let mut expected = vec![0; POOL as usize];
        let (mut targets, mut names) = (Vec::<Target>::new(), 0);
        let take_back = |target: Target, incoming: &mut TcpIncoming| {
            let redirected = incoming.take_back(target.name);
            for (at, byte) in target.place.clone().zip(&target.memory) {
                match redirected.iter().any(|part| part.contains(&at)) {
                    true => poke(&pool, at, *byte),
                    false => assert_eq!(*byte, UNTOUCHED, "{at}"),
                }
            }
        };
        for action in actions {
            match action {
                RedirectAction::Put { range, seed } => {
                    let bytes = put(&mut wire, &range, seed);
                    expected[range.start as usize..range.end as usize].copy_from_slice(&bytes);
                }
                RedirectAction::Redirect { place } => {
                    let overlaps = |target: &Target| {
                        target.place.start < place.end && place.start < target.place.end
                    };
                    if !targets.iter().any(overlaps) {
                        names += 1;
                        targets.push(Target::new(names, place));
                        targets.last_mut().unwrap().redirect(&mut incoming);
                    }
                }
                RedirectAction::TakeBack(number) if !targets.is_empty() => {
                    take_back(targets.swap_remove(number % targets.len()), &mut incoming);
                }
                RedirectAction::TakeBack(_) => {}
                RedirectAction::Receive(times) => {
                    for _ in 0..times {
                        incoming.step(&mut wire).unwrap();
                    }
                }
            }
        }
        while !wire.bytes.is_empty() {
            incoming.step(&mut wire).unwrap();
        }
        targets.into_iter().for_each(|target| take_back(target, &mut incoming));
        let contents = contents(&pool);
        let differs = contents.iter().zip(&expected).position(|(byte, expected)| byte != expected);
        prop_assert_eq!(differs, None);
    }
}

fn poke(pool: &Segment, at: u64, byte: u8) {
    let place = pool.at(&(at..at + 1)).unwrap();
    // SAFETY: within the pool, which nothing else touches now.
    unsafe { place.as_ptr().write(byte) };
}
