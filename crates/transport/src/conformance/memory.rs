//! Puts and signals.

use std::time::Duration;

use super::{Pair, Subject};
use crate::{LinkError, POOL_HEADER, Progress, Signal};

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
pub fn put_lands_where_it_should(subject: &Subject) {
    let mut pair = Pair::new(subject);
    let bytes = pattern(1, 1000);
    pair.put(1, DATA + 3, &[&bytes], None);
    pair.put(2, FLAG, &[], signal(FLAG, 1));
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

/// Whoever sees the signal sees the bytes.
pub fn put_is_there_when_its_signal_is(subject: &Subject) {
    let mut pair = Pair::new(subject);
    for round in 1..=200 {
        let bytes = pattern(round, 1 + 37 * round as usize);
        pair.put(round, DATA, &[&bytes], signal(FLAG, round));
        pair.until_signalled(FLAG, round);
        assert_eq!(pair.b.bytes(DATA..DATA + bytes.len() as u64), bytes);
    }
}

/// A later signal is never seen without the earlier ones.
pub fn signals_take_effect_in_order(subject: &Subject) {
    let mut pair = Pair::new(subject);
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
            "signal {later} came before signal {earlier}"
        );
        later == 500
    });
}

/// Threads that share a link, each with a range of its own, do not disturb each other.
pub fn puts_from_many_threads_all_land(subject: &Subject) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 50;
    const STRIDE: u64 = 64 * 1024;
    let mut pair = Pair::new(subject);
    let link = &pair.a.link.clone();
    let flag = |thread| FLAG + 128 * thread;
    let len = |round: u64| if round.is_multiple_of(5) { 50_000 } else { 200 };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let bytes = pattern(thread * 1000 + round, len(round));
                    let (token, offset) = (thread, DATA + thread * STRIDE);
                    while link
                        .put(token, offset, &[&bytes], signal(flag(thread), round))
                        .unwrap()
                        == Progress::Pending
                    {
                        std::thread::yield_now();
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
    let mut pair = Pair::new(subject);
    let bytes = pattern(7, (9 << 20) + 13);
    let (first, rest) = bytes.split_at(1_234_567);
    let (second, third) = rest.split_at(3);
    pair.put(1, DATA + 1, &[first, &[], second, third], signal(FLAG, 9));
    pair.until_signalled(FLAG, 9);
    assert!(
        pair.b.bytes(DATA + 1..DATA + 1 + bytes.len() as u64) == bytes,
        "the bytes differ"
    );
}

/// Zero lengths are legal, with no pieces and with empty ones.
pub fn a_put_of_nothing_still_signals(subject: &Subject) {
    let mut pair = Pair::new(subject);
    pair.put(1, DATA, &[], signal(FLAG, 1));
    pair.until_signalled(FLAG, 1);
    pair.put(2, DATA, &[&[], &[]], signal(FLAG, 2));
    pair.until_signalled(FLAG, 2);
    pair.put(3, DATA, &[], None);
    pair.put(4, DATA, &[&[5]], signal(FLAG, 3));
    pair.until_signalled(FLAG, 3);
    assert_eq!(pair.b.bytes(DATA..DATA + 2), [5, 0]);
}

/// Up to 256 bytes are taken at once, though nobody receives.
pub fn small_puts_are_done_at_once(subject: &Subject) {
    let mut pair = Pair::new(subject);
    for round in 1..=2000 {
        let bytes = pattern(round, 256);
        let progress = pair
            .a
            .link
            .put(round, DATA, &[&bytes], signal(FLAG, round))
            .unwrap();
        assert_eq!(progress, Progress::Done, "round {round}");
    }
    pair.until_signalled(FLAG, 2000);
    assert_eq!(pair.b.bytes(DATA..DATA + 256), pattern(2000, 256));
}

/// Neither bytes nor a signal outside the pool (or misaligned) reach anything.
pub fn a_write_outside_the_pool_does_no_harm(subject: &Subject) {
    let end = Pair::new(subject).b.local.pool.len();
    let bytes = [1u8; 64];
    check_refused(subject, |pair| {
        pair.a.link.put(1, end - 63, &[&bytes], None).map(drop)
    });
    check_refused(subject, |pair| {
        pair.a.link.put(1, u64::MAX - 3, &[&bytes], None).map(drop)
    });
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

/// The call fails, or (where the receiver checks) the receiver ends the link; nothing is written before the end of the pool.
fn check_refused(subject: &Subject, write: impl Fn(&Pair) -> Result<(), LinkError>) {
    let mut pair = Pair::new(subject);
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

/// What was granted once and is not any more: late writes vanish, and the link lives on.
pub fn writes_to_a_revoked_range_are_dropped(subject: &Subject) {
    if !subject.checks_writes {
        return;
    }
    let mut pair = Pair::without_grants(subject);
    let late = DATA..DATA + 65536;
    pair.b.open(FLAG..FLAG + 4096);
    pair.b.open(late.clone());
    pair.b.link.revoke(late.clone());
    let bytes = pattern(3, 65536);
    pair.put(1, late.start, &[&bytes], signal(late.start, 77));
    pair.put(2, late.start + 8, &[&bytes[..100]], signal(FLAG, 1));
    pair.until_signalled(FLAG, 1);
    assert!(
        pair.b.bytes(late).iter().all(|&byte| byte == 0),
        "a late write was not dropped"
    );
    pair.put(3, FLAG + 8, &[&bytes[..16]], signal(FLAG, 2));
    pair.until_signalled(FLAG, 2);
    assert_eq!(pair.b.bytes(FLAG + 8..FLAG + 24), bytes[..16]);
}

/// A write to where the peer was never let is hostile, or a bug.
pub fn a_write_to_a_range_never_granted_ends_the_link(subject: &Subject) {
    if !subject.checks_writes {
        return;
    }
    let mut pair = Pair::without_grants(subject);
    pair.b.open(FLAG..FLAG + 4096);
    pair.a.link.put(1, FLAG + 4000, &[&[1; 200]], None).unwrap();
    pair.until("the receiver to object", |pair| {
        pair.b.received.end.is_some()
    });
    assert!(matches!(pair.b.received.end, Some(LinkError::Protocol(_))));
    pair.until("the sender to notice", |pair| pair.a.received.end.is_some());
}

/// After a put is abandoned, puts and signals go on, and the abandoned put's signal never comes.
pub fn an_abandoned_put_leaves_the_link_usable(subject: &Subject) {
    let mut pair = Pair::new(subject);
    let bytes = pattern(5, 16 << 20);
    let progress = pair
        .a
        .link
        .put(1, DATA, &[&bytes], signal(FLAG, 1))
        .unwrap();
    if progress == Progress::Pending {
        pair.a.link.abandon(1);
        drop(bytes);
    }
    pair.put(2, DATA, &[&[1, 2, 3]], signal(FLAG + 128, 1));
    pair.until_signalled(FLAG + 128, 1);
    assert_eq!(pair.b.bytes(DATA..DATA + 3), [1, 2, 3]);
    assert_eq!(pair.b.word(FLAG) == 1, progress == Progress::Done);
}

/// Where a peer's memory is mapped, it stays mapped while the link exists, whatever becomes of the peer.
pub fn a_peers_memory_outlives_the_peer(subject: &Subject) {
    let Pair { a, b } = Pair::new(subject);
    let Some(memory) = a.link.memory() else {
        return;
    };
    assert_eq!(memory.len as u64, b.local.pool.len());
    b.local
        .pool
        .word(FLAG)
        .store(42, std::sync::atomic::Ordering::Release);
    drop(b);
    a.link.close();
    // SAFETY: the word is aligned and lies in the memory that the link keeps mapped.
    let word = unsafe { memory.base.add(FLAG as usize) };
    // SAFETY: as above.
    let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(word.as_ptr().cast()) };
    assert_eq!(word.load(std::sync::atomic::Ordering::Acquire), 42);
    drop(a);
}

/// The longest that one side of [`super::waking`] sleeps before it looks again: far longer than a case may take.
pub(super) const LONG: Duration = Duration::from_secs(15);
