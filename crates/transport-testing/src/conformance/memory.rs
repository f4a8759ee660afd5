//! Puts and signals.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{LinkPair, Subject, TestMemory};
use weft_transport::{INJECT_BYTES_MAX, LinkError, POOL_HEADER, RegionKey, Signal, Submission};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;

fn signal(offset: u64, value: u64) -> Option<Signal> {
    Some(Signal { offset, value })
}

/// Bytes that differ from place to place and from seed to seed.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len);
    for _ in 0..len {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        bytes.push((state >> 56) as u8);
    }
    bytes
}

/// A put fills exactly its range.
pub fn a_put_fills_exactly_its_range(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let bytes = pattern(1, 1000);
    pair.put(DATA + 3, &[&bytes], None);
    pair.put(FLAG, &[], signal(FLAG, 1));
    pair.until_signalled(FLAG, 1);
    assert_eq!(pair.b.bytes(DATA + 3..DATA + 1003), bytes);
    assert_eq!(pair.b.bytes(DATA..DATA + 3), [0; 3]);
    assert_eq!(pair.b.bytes(DATA + 1003..DATA + 1100), [0; 97]);
    assert_eq!(
        pair.a.bytes(DATA..DATA + 1100),
        [0; 1100],
        "the sender's own pool was written"
    );
}

/// A reader that sees the signal sees the bytes.
pub fn a_put_arrives_before_its_signal(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for round in 1..=200 {
        let bytes = pattern(round, 1 + 37 * round as usize);
        pair.put(DATA, &[&bytes], signal(FLAG, round));
        pair.until_signalled(FLAG, round);
        assert_eq!(pair.b.bytes(DATA..DATA + bytes.len() as u64), bytes);
    }
}

/// A later signal is never seen without the earlier ones.
pub fn signals_take_effect_in_order(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let second = FLAG + 128;
    for value in 1..=500 {
        pair.a
            .link
            .signal(Signal {
                offset: FLAG,
                value,
            })
            .unwrap();
        pair.a
            .link
            .signal(Signal {
                offset: second,
                value,
            })
            .unwrap();
    }
    pair.until("the last signal", |pair| {
        let later = pair.b.word(second);
        let earlier = pair.b.word(FLAG);
        assert!(
            earlier >= later,
            "signal {later} arrived before signal {earlier}"
        );
        later == 500
    });
}

/// A late signal arrives with the next one, or once the link is flushed.
pub fn late_signals_arrive_with_the_next_or_flush(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let second = FLAG + 128;
    let at = |offset, value| Signal { offset, value };
    for value in 1..=100 {
        pair.a.link.signal_late(at(FLAG, value)).unwrap();
        pair.a.link.signal(at(second, value)).unwrap();
        pair.until_signalled(second, value);
        assert_eq!(pair.b.word(FLAG), value);
    }
    pair.a.link.signal_late(at(FLAG, 101)).unwrap();
    pair.until("the late signal", |pair| {
        pair.a.link.flush_late().unwrap();
        pair.b.word(FLAG) == 101
    });
}

/// Like [`a_put_arrives_before_its_signal`], on the urgent stream.
pub fn urgent_operations_take_effect_in_order(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for round in 1..=200 {
        let bytes = pattern(round, 1 + 37 * round as usize);
        let memory = pair.a.memory(&[&bytes]);
        let source = memory.source();
        pair.complete("an urgent put", |link| {
            let urgent = link.urgent();
            urgent.put(RegionKey::POOL, DATA, &source, signal(FLAG, round))
        });
        pair.until_signalled(FLAG, round);
        assert_eq!(pair.b.bytes(DATA..DATA + bytes.len() as u64), bytes);
    }
}

/// Threads that share a link, each with its own range, do not disturb each other.
pub fn puts_from_many_threads_all_arrive(subject: &Subject) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 50;
    const STRIDE: u64 = 64 * 1024;
    let mut pair = LinkPair::new(subject);
    let link = &pair.a.link.clone();
    let flag = |thread| FLAG + 128 * thread;
    let len = |round: u64| if round.is_multiple_of(5) { 50_000 } else { 200 };
    let side = &pair.a;
    let memory: Vec<Vec<TestMemory>> = (0..THREADS)
        .map(|thread| {
            let of = |round| side.memory(&[&pattern(thread * 1000 + round, len(round))]);
            (1..=ROUNDS).map(of).collect()
        })
        .collect();
    std::thread::scope(|scope| {
        for (thread, memory) in (0..).zip(&memory) {
            scope.spawn(move || {
                for (round, memory) in (1..).zip(memory) {
                    let offset = DATA + thread * STRIDE;
                    let signal = signal(flag(thread), round);
                    let put = || link.put(RegionKey::POOL, offset, &memory.source(), signal);
                    let mut posted = put().unwrap();
                    while posted == Submission::Full {
                        std::thread::yield_now();
                        posted = put().unwrap();
                    }
                }
            });
        }
        pair.until("all threads' last signals", |pair| {
            (0..THREADS).all(|thread| pair.b.word(flag(thread)) == ROUNDS)
        });
    });
    for thread in 0..THREADS {
        let bytes = pattern(thread * 1000 + ROUNDS, len(ROUNDS));
        let start = DATA + thread * STRIDE;
        assert_eq!(
            pair.b.bytes(start..start + bytes.len() as u64),
            bytes,
            "thread {thread}"
        );
    }
}

/// Many megabytes in pieces of odd lengths, some of them empty.
pub fn large_puts_in_pieces_arrive_whole(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let bytes = pattern(7, (9 << 20) + 13);
    let (first, rest) = bytes.split_at(1_234_567);
    let (second, third) = rest.split_at(3);
    pair.put(DATA + 1, &[first, &[], second, third], signal(FLAG, 9));
    pair.until_signalled(FLAG, 9);
    assert!(
        pair.b.bytes(DATA + 1..DATA + 1 + bytes.len() as u64) == bytes,
        "the bytes differ"
    );
}

/// Zero lengths are legal, with no pieces and with empty ones.
pub fn a_put_without_bytes_still_signals(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    pair.put(DATA, &[], signal(FLAG, 1));
    pair.until_signalled(FLAG, 1);
    pair.put(DATA, &[&[], &[]], signal(FLAG, 2));
    pair.until_signalled(FLAG, 2);
    pair.put(DATA, &[], None);
    pair.put(DATA, &[&[5]], signal(FLAG, 3));
    pair.until_signalled(FLAG, 3);
    assert_eq!(pair.b.bytes(DATA..DATA + 2), [5, 0]);
}

/// A few bytes are copied before the call returns, although the peer does not receive yet and the
/// caller overwrites them.
pub fn injected_bytes_may_be_reused_immediately(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for round in 1..=2000 {
        let mut bytes = pattern(round, INJECT_BYTES_MAX);
        let link = &pair.a.link;
        let injected = link.inject(RegionKey::POOL, DATA, &bytes, signal(FLAG, round));
        injected.unwrap();
        bytes.fill(0);
    }
    pair.until_signalled(FLAG, 2000);
    let end = DATA + INJECT_BYTES_MAX as u64;
    assert_eq!(pair.b.bytes(DATA..end), pattern(2000, INJECT_BYTES_MAX));
    let nothing = pair.a.link.inject(RegionKey::POOL, DATA, &[], None);
    nothing.unwrap();
}

/// It does no harm.
pub fn more_than_can_be_injected_is_an_error(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let bytes = [1; INJECT_BYTES_MAX + 1];
    let (link, word) = (&pair.a.link, signal(FLAG, 1));
    assert!(link.inject(RegionKey::POOL, DATA, &bytes, word).is_err());
    pair.put(DATA, &[&[2]], signal(FLAG, 2));
    pair.until_signalled(FLAG, 2);
    assert_eq!(pair.b.bytes(DATA..DATA + 2), [2, 0]);
}

/// Neither bytes nor a signal outside the pool (or misaligned) reach anything.
pub fn a_write_outside_the_pool_does_no_harm(subject: &Subject) {
    let end = LinkPair::new(subject).b.local.pool.len();
    for offset in [end - 63, u64::MAX - 3] {
        let pool = RegionKey::POOL;
        check_refused(subject, |pair| {
            pair.a.link.inject(pool, offset, &[1; 64], None)
        });
        check_refused(subject, |pair| {
            let memory = pair.a.memory(&[&[1; 1000]]);
            let put = pair.a.link.put(pool, offset, &memory.source(), None);
            // The put may be read as long as the link lives.
            std::mem::forget(memory);
            put.map(drop)
        });
    }
    check_refused(subject, |pair| {
        pair.a.link.signal(Signal {
            offset: end,
            value: 1,
        })
    });
    check_refused(subject, |pair| {
        pair.a.link.signal(Signal {
            offset: FLAG + 4,
            value: 1,
        })
    });
    check_refused(subject, |pair| {
        pair.a.link.signal(Signal {
            offset: u64::MAX - 7,
            value: 1,
        })
    });
}

/// The call fails, or (where the receiver checks) the receiver ends the link; nothing is written
/// before the end of the pool.
fn check_refused(subject: &Subject, write: impl Fn(&LinkPair) -> Result<(), LinkError>) {
    let mut pair = LinkPair::new(subject);
    if write(&pair).is_ok() {
        pair.until("the receiver to object", |pair| {
            pair.b.received.end.is_some()
        });
        assert!(matches!(pair.b.received.end, Some(LinkError::Protocol(_))));
    }
    let end = pair.b.local.pool.len();
    assert_eq!(pair.b.bytes(end - 64..end), [0; 64]);
    assert_eq!(pair.b.word(FLAG), 0);
}

/// Late writes to a range that was granted once are dropped, and the link stays usable.
pub fn writes_to_a_revoked_range_are_dropped(subject: &Subject) {
    let mut pair = LinkPair::without_grants(subject);
    if pair.b.link.capabilities().maps {
        return;
    }
    let late = DATA..DATA + 65536;
    pair.b.open(FLAG..FLAG + 4096);
    pair.b.open(late.clone());
    pair.b.link.revoke(RegionKey::POOL, late.clone());
    let bytes = pattern(3, 65536);
    pair.put(late.start, &[&bytes], signal(late.start, 77));
    pair.put(late.start + 8, &[&bytes[..100]], signal(FLAG, 1));
    pair.until_signalled(FLAG, 1);
    assert!(
        pair.b.bytes(late).iter().all(|&byte| byte == 0),
        "a late write was not dropped"
    );
    pair.put(FLAG + 8, &[&bytes[..16]], signal(FLAG, 2));
    pair.until_signalled(FLAG, 2);
    assert_eq!(pair.b.bytes(FLAG + 8..FLAG + 24), bytes[..16]);
}

/// A write to a range that was never granted is hostile, or a bug.
pub fn a_write_without_a_grant_ends_the_link(subject: &Subject) {
    let mut pair = LinkPair::without_grants(subject);
    if pair.b.link.capabilities().maps {
        return;
    }
    pair.b.open(FLAG..FLAG + 4096);
    let injected = pair
        .a
        .link
        .inject(RegionKey::POOL, FLAG + 4000, &[1; 200], None);
    injected.unwrap();
    pair.until("the receiver to object", |pair| {
        pair.b.received.end.is_some()
    });
    assert!(matches!(pair.b.received.end, Some(LinkError::Protocol(_))));
    pair.until("the sender to notice", |pair| pair.a.received.end.is_some());
}

/// A peer's mapped memory stays mapped while the link exists, even after the peer's end.
pub fn a_peers_memory_outlives_the_peer(subject: &Subject) {
    let LinkPair { a, b } = LinkPair::new(subject);
    let Some(memory) = a.link.memory(RegionKey::POOL) else {
        return;
    };
    assert_eq!(memory.len(), b.local.pool.len());
    b.local.pool.word(FLAG).store(42, Ordering::Release);
    drop(b);
    a.link.close();
    drop(a);
    assert_eq!(memory.word(FLAG).load(Ordering::Acquire), 42);
}

/// The longest sleep of one side in [`super::waking`]: far longer than a case may take.
pub(super) const LONG: Duration = Duration::from_secs(15);
