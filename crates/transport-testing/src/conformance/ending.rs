//! Orderly closing and death.

use super::memory::pattern;
use super::{LinkPair, Subject, TestMemory};
use weft_transport::{FlushState, LinkError, POOL_HEADER, RegionKey, Signal, Submission};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;

fn until_b_ended(pair: &mut LinkPair) {
    pair.until("the end of the link", |pair| pair.b.received.end.is_some());
}

/// Drops `a`, its endpoint and all, and returns what is left.
fn drop_a(pair: LinkPair) -> super::LinkSide {
    let LinkPair { a, b } = pair;
    drop(a);
    b
}

fn until_ended(side: &mut super::LinkSide) {
    let deadline = super::deadline();
    while side.received.end.is_none() {
        side.pump();
        assert!(
            std::time::Instant::now() < deadline,
            "the end of the link was not detected"
        );
        std::thread::yield_now();
    }
}

/// Without a goodbye, the peer is gone. Every later call reports it too.
pub fn a_dropped_link_is_gone(subject: &Subject) {
    let mut b = drop_a(LinkPair::new(subject));
    until_ended(&mut b);
    assert!(
        matches!(b.received.end, Some(LinkError::Gone(_))),
        "{:?}",
        b.received.end
    );
    assert!(matches!(
        b.link.receive(&mut b.received),
        Err(LinkError::Gone(_))
    ));
    assert!(b.link.message(b"still there?").is_err());
    assert!(
        b.link
            .signal(Signal {
                offset: FLAG,
                value: 1
            })
            .is_err()
    );
    let memory = b.memory(&[&[1]]);
    let put = b.link.put(RegionKey::POOL, DATA, &memory.source(), None);
    assert!(put.is_err());
}

/// A goodbye is distinguished from a death.
pub fn a_closed_link_has_left(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    pair.a.link.close();
    until_b_ended(&mut pair);
    assert!(
        matches!(pair.b.received.end, Some(LinkError::Left)),
        "{:?}",
        pair.b.received.end
    );
    assert!(pair.a.link.message(b"too late").is_err());
    assert!(
        pair.a
            .link
            .signal(Signal {
                offset: FLAG,
                value: 1
            })
            .is_err()
    );
    let mut b = drop_a(pair);
    assert!(matches!(
        b.link.receive(&mut b.received),
        Err(LinkError::Left)
    ));
}

/// Closing discards no sent messages.
pub fn messages_before_the_goodbye_arrive(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    for number in 0..20 {
        pair.a.link.message(&pattern(number, 1000)).unwrap();
    }
    pair.a
        .link
        .signal(Signal {
            offset: FLAG,
            value: 3,
        })
        .unwrap();
    pair.a.link.close();
    until_b_ended(&mut pair);
    assert_eq!(pair.b.received.messages.len(), 20);
    assert_eq!(pair.b.word(FLAG), 3);
    assert!(
        matches!(pair.b.received.end, Some(LinkError::Left)),
        "{:?}",
        pair.b.received.end
    );
}

/// Messages sent before the end are read before the end is reported, after a goodbye as after a
/// death.
pub fn polled_messages_before_the_end_arrive(subject: &Subject) {
    for (count, goodbye) in [(3, true), (3, false), (100, true)] {
        let pair = LinkPair::new(subject);
        for number in 0..count {
            pair.a
                .link
                .polled_message(&[&pattern(number, 1500)])
                .unwrap();
        }
        if goodbye {
            pair.a.link.close();
        } else {
            // Queued messages are lost with the process; the others are not.
            while pair.a.link.flush().unwrap() == FlushState::Pending {}
        }
        let mut b = drop_a(pair);
        until_ended(&mut b);
        assert_eq!(b.received.messages.len() as u64, count);
        let left = matches!(b.received.end, Some(LinkError::Left));
        assert_eq!(left, goodbye, "{:?}", b.received.end);
    }
}

/// The closing side has not read the other's messages: the other still sees a goodbye, not a death.
pub fn closing_with_unread_traffic_is_still_a_goodbye(subject: &Subject) {
    let pair = LinkPair::new(subject);
    for number in 0..20 {
        pair.b.link.message(&pattern(number, 5000)).unwrap();
    }
    let memory = pair.b.memory(&[&pattern(1, 100_000)]);
    let put = pair
        .b
        .link
        .put(RegionKey::POOL, DATA, &memory.source(), None);
    put.unwrap();
    pair.a.link.close();
    let mut b = drop_a(pair);
    until_ended(&mut b);
    assert!(
        matches!(b.received.end, Some(LinkError::Left)),
        "{:?}",
        b.received.end
    );
}

/// The goodbye waits in the queue behind everything that was sent.
pub fn closing_behind_a_flood_is_still_a_goodbye(subject: &Subject) {
    const COUNT: usize = 60;
    let mut pair = LinkPair::new(subject);
    for number in 0..COUNT {
        pair.a
            .link
            .message(&pattern(number as u64, 64 * 1024))
            .unwrap();
    }
    pair.a.link.close();
    pair.until("the end of the link", |pair| pair.b.received.end.is_some());
    assert!(
        matches!(pair.b.received.end, Some(LinkError::Left)),
        "{:?}",
        pair.b.received.end
    );
    assert_eq!(pair.b.received.messages.len(), COUNT);
}

/// Closing again, or closing from both sides, changes nothing.
pub fn closing_twice_is_closing_once(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    pair.a.link.close();
    pair.a.link.close();
    until_b_ended(&mut pair);
    pair.b.link.close();
    pair.b.link.close();
    assert!(matches!(pair.b.received.end, Some(LinkError::Left)));
    assert!(pair.a.link.receive(&mut pair.a.received).is_err());
}

/// Threads in the middle of puts get an error, and none hangs.
pub fn closing_while_threads_put_ends_them(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    let link = &pair.a.link.clone();
    let memory = |thread| pair.a.memory(&[&pattern(thread, 70_000)]);
    let memory: Vec<TestMemory> = (0..3).map(memory).collect();
    std::thread::scope(|scope| {
        for (thread, memory) in (0..).zip(&memory) {
            scope.spawn(move || {
                for value in 1.. {
                    let signal = Signal {
                        offset: FLAG + 128 * thread,
                        value,
                    };
                    let offset = DATA + (thread << 20);
                    loop {
                        match link.put(RegionKey::POOL, offset, &memory.source(), Some(signal)) {
                            Ok(Submission::Full) => std::thread::yield_now(),
                            Ok(_) => break,
                            Err(_) => return,
                        }
                    }
                }
            });
        }
        pair.until("traffic", |pair| pair.b.word(FLAG) > 3);
        pair.b.link.close();
        pair.until("the end of the link", |pair| pair.a.received.end.is_some());
        assert!(
            matches!(pair.a.received.end, Some(LinkError::Left)),
            "{:?}",
            pair.a.received.end
        );
        pair.a.link.close();
    });
}

/// Closing a transport, and dropping it, leaves its links as they are.
pub fn links_outlive_their_transport(subject: &Subject) {
    let mut pair = LinkPair::new(subject);
    // What no longer listens makes no connection anew.
    super::disturb_with(|_| ());
    let memory = pair.a.memory(&[&pattern(1, 100_000)]);
    pair.a.transport.close();
    pair.b.transport.close();
    let idle = (subject.make)(pair.a.local.clone());
    pair.a.transport = std::sync::Arc::clone(&idle);
    pair.b.transport = idle;
    let signal = Some(Signal {
        offset: FLAG,
        value: 1,
    });
    let source = memory.source();
    pair.complete("a put", |link| {
        link.put(RegionKey::POOL, DATA, &source, signal)
    });
    pair.until_signalled(FLAG, 1);
    pair.a.link.message(b"still here").unwrap();
    pair.until("a message", |pair| !pair.b.received.messages.is_empty());
}
