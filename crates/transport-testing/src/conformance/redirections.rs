//! Redirections of arriving puts. A link that redirects nothing writes all bytes to the region.

use std::ops::Range;

use super::memory::pattern;
use super::{LinkPair, LinkSide, Subject, TestMemory};
use weft_transport::{POOL_HEADER, Redirection, RegionKey, Signal, Submission};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const BYTES: u64 = 8 << 20;
/// The part of the put that is redirected.
const PLACE: Range<u64> = DATA + 1000..DATA + BYTES - 1000;
const DONE: Option<Signal> = Some(Signal {
    offset: FLAG,
    value: 1,
});

/// Redirects the middle of the coming put to memory of zeros.
fn redirected(pair: &LinkPair) -> (TestMemory, Option<Redirection>) {
    let bytes = (PLACE.end - PLACE.start) as usize;
    let memory = pair.b.memory(&[&vec![0; bytes]]);
    let redirections = pair.b.link.redirections();
    let redirection =
        redirections.map(|link| link.redirect(RegionKey::POOL, PLACE.start, memory.target()));
    (memory, redirection)
}

fn take_back(side: &LinkSide, redirection: Option<Redirection>) -> Vec<Range<u64>> {
    let redirected = side.link.redirections().zip(redirection);
    redirected.map_or_else(Vec::new, |(link, redirection)| link.take_back(redirection))
}

/// Checks that the sent bytes are in the region, except for these parts.
fn check_region(pair: &LinkPair, sent: &[u8], gone: &[Range<u64>]) {
    let mut held = pair.b.bytes(DATA..DATA + BYTES);
    for part in gone {
        let part = (part.start - DATA) as usize..(part.end - DATA) as usize;
        held[part.clone()].copy_from_slice(&sent[part]);
    }
    assert!(held == sent);
}

/// Bytes that were not redirected are in the region, and so are the bytes beside the redirected
/// place.
pub fn redirected_bytes_arrive_before_their_signal(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let sent = pattern(5, BYTES as usize);
    let (memory, redirection) = redirected(&pair);
    pair.put(
        DATA,
        &[&sent[..BYTES as usize / 3], &sent[BYTES as usize / 3..]],
        DONE,
    );
    pair.until_signalled(FLAG, 1);
    let gone = take_back(&pair.b, redirection);
    check_region(&pair, &sent, &gone);
    let held = memory.bytes();
    for part in gone {
        let bytes = &held[(part.start - PLACE.start) as usize..(part.end - PLACE.start) as usize];
        assert!(bytes == &sent[(part.start - DATA) as usize..(part.end - DATA) as usize]);
    }
}

/// Also in the middle of a put: a later write crashes.
pub fn memory_may_be_freed_once_taken_back(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let sent = pattern(6, BYTES as usize);
    let source = pair.a.memory(&[&sent]);
    let (memory, redirection) = redirected(&pair);
    let put = pair
        .a
        .link
        .put(RegionKey::POOL, DATA, &source.source(), DONE);
    pair.until("the first bytes", |pair| {
        pair.b.word(FLAG) == 1 || memory.bytes()[..100] != [0; 100]
    });
    let gone = take_back(&pair.b, redirection);
    drop(memory);
    pair.until_signalled(FLAG, 1);
    check_region(&pair, &sent, &gone);
    if let Submission::UnderWay(ticket) = put.unwrap() {
        pair.until("the put to be complete", |pair| {
            pair.a.link.completed(ticket).unwrap()
        });
    }
}

/// Also where the peer has died in the middle of a put.
pub fn a_redirection_is_taken_back_after_the_end(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let source = pair.a.memory(&[&pattern(7, BYTES as usize)]);
    let (memory, redirection) = redirected(&pair);
    let put = pair
        .a
        .link
        .put(RegionKey::POOL, DATA, &source.source(), DONE);
    put.unwrap();
    pair.until("the first bytes", |pair| {
        pair.b.word(FLAG) == 1 || memory.bytes()[..100] != [0; 100]
    });
    let LinkPair { a, mut b } = pair;
    drop(a);
    let deadline = super::deadline();
    while b.received.end.is_none() {
        b.pump();
        assert!(
            std::time::Instant::now() < deadline,
            "the end was not detected"
        );
        std::thread::yield_now();
    }
    let gone = take_back(&b, redirection);
    let first = memory.bytes()[..100] == pattern(7, BYTES as usize)[1000..1100];
    assert_eq!(first, gone.iter().any(|part| part.start == PLACE.start));
    drop(memory);
    b.pump();
    b.link.close();
}
