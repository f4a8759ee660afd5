//! Regions beside the pool, and the capabilities of transports.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::memory::pattern;
use super::{LinkPair, Subject, bytes_of};
use weft_transport::{LinkError, POOL_HEADER, RegionKey, Segment, Signal};

const FLAG: u64 = POOL_HEADER;
const BYTES: u64 = 100_000;

fn signal(value: u64) -> Option<Signal> {
    Some(Signal {
        offset: FLAG,
        value,
    })
}

/// Sends `a` a message, after which it knows of every earlier grant.
fn announce(pair: &mut LinkPair) {
    let before = pair.a.received.messages.len();
    pair.b.link.message(b"granted").unwrap();
    pair.until("a message", |pair| pair.a.received.messages.len() > before);
}

/// Puts and injected bytes are written to the region of their key, the signal to the pool.
pub fn a_region_is_written_by_its_key(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let regions = [pair.b.region(BYTES), pair.b.region(BYTES)];
    announce(&mut pair);
    for (number, (key, _)) in (1..).zip(&regions) {
        pair.put_to(*key, 8, &[&pattern(number, 70_000)], signal(2 * number - 1));
        let injected = pair
            .a
            .link
            .inject(*key, 0, &[number as u8; 8], signal(2 * number));
        injected.unwrap();
        pair.until_signalled(FLAG, 2 * number);
    }
    for (number, (_, region)) in (1..).zip(&regions) {
        assert_eq!(bytes_of(region, 0..8), [number as u8; 8]);
        assert!(bytes_of(region, 8..70_008) == pattern(number, 70_000));
    }
    let after = FLAG + 8..FLAG + 70_008;
    assert!(pair.b.bytes(after).iter().all(|byte| *byte == 0));
}

/// The peer can load from and store to a region once the message after its grant has arrived.
pub fn a_region_is_mapped_where_the_transport_maps(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let maps = pair.a.link.capabilities().maps;
    assert_eq!(pair.a.link.memory(RegionKey::POOL).is_some(), maps);
    let (key, region) = pair.b.region(BYTES);
    announce(&mut pair);
    let Some(mapped) = pair.a.link.memory(key) else {
        return assert!(!maps, "it is not mapped");
    };
    assert!(maps);
    assert!(mapped.len() >= BYTES);
    region.word(64).store(42, Ordering::Release);
    assert_eq!(mapped.word(64).load(Ordering::Acquire), 42);
    // The holder keeps the mapping, even after the end of the region and of the peer.
    pair.b.transport.withdraw(key);
    let LinkPair { a, b } = pair;
    drop((a, b));
    mapped.word(64).store(43, Ordering::Release);
    assert_eq!(region.word(64).load(Ordering::Acquire), 43);
}

/// A key that was never issued is rejected; where the link checks, so is one without grants.
pub fn a_region_never_granted_is_out_of_reach(subject: &Subject) {
    for exposed in [false, true] {
        let mut pair = LinkPair::new(subject);
        if exposed && pair.a.link.capabilities().maps {
            return;
        }
        let segment = Arc::new(Segment::create("weft-conformance", BYTES).unwrap());
        let key = match exposed {
            true => pair.b.transport.expose(&segment).unwrap(),
            false => RegionKey(77),
        };
        if pair.a.link.inject(key, 0, &[1; 64], signal(1)).is_ok() {
            pair.until("the receiver to object", |pair| {
                pair.b.received.end.is_some()
            });
            assert!(matches!(pair.b.received.end, Some(LinkError::Protocol(_))));
        }
        assert_eq!(pair.b.word(FLAG), 0);
        assert_eq!(bytes_of(&segment, 0..64), [0; 64]);
    }
}

/// Late writes fail at the caller or are dropped, and the link stays usable.
pub fn a_withdrawn_region_is_not_written(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let (key, region) = pair.b.region(BYTES);
    announce(&mut pair);
    pair.put_to(key, 0, &[&[1; 5000]], signal(1));
    pair.until_signalled(FLAG, 1);
    pair.b.transport.withdraw(key);
    announce(&mut pair);
    let memory = pair.a.memory(&[&[2; 5000]]);
    let late = pair.a.link.put(key, 0, &memory.source(), None);
    let injected = pair.a.link.inject(key, 0, &[2; 8], None);
    let maps = pair.a.link.capabilities().maps;
    assert_eq!((late.is_err(), injected.is_err()), (maps, maps));
    assert!(pair.a.link.memory(key).is_none());
    pair.put(FLAG + 128, &[&[3; 5000]], signal(2));
    pair.until_signalled(FLAG, 2);
    assert_eq!(bytes_of(&region, 0..5000), [1; 5000]);
}

/// Also if the same memory is exposed again and again.
pub fn keys_are_never_reused(subject: &Subject) {
    let pair = LinkPair::new(subject);
    let mut keys = vec![RegionKey::POOL];
    let segment = pair.b.region(BYTES).1;
    for _ in 0..10 {
        let key = pair.b.transport.expose(&segment).unwrap();
        pair.b.transport.withdraw(key);
        assert!(!keys.contains(&key), "{key:?} again");
        keys.push(key);
    }
}

/// They are the transport's, and agree with the link's behaviour.
pub fn both_ends_have_the_same_capabilities(subject: &Subject) {
    let pair = LinkPair::new(subject);
    let can = pair.a.transport.capabilities();
    let links = [&pair.a.link, &pair.b.link];
    assert!(links.iter().all(|link| link.capabilities() == can));
    let descriptors = links.map(|link| link.descriptor().is_some());
    assert!(!can.manual_progress || descriptors == [true; 2]);
}
