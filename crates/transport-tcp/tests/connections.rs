//! Links of several connections: their special properties.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

use weft_transport::{Local, POOL_HEADER, RegionKey, Signal, Stream, Submission, Transport};
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{LinkPair, Subject, deadline};

const FLAG: u64 = POOL_HEADER;
const DATA: u64 = POOL_HEADER + 4096;
const BYTES: usize = 300_000;

fn transport(local: Local, interface: &str, connections: Option<usize>) -> Arc<dyn Transport> {
    let options = TcpOptions {
        interface: Interface::Named(interface.into()),
        connections,
        ..TcpOptions::default()
    };
    Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
}

/// Links of three connections.
fn three() -> LinkPair {
    LinkPair::new(&Subject {
        make: |local| transport(local, "127.0.0.1", Some(3)),
    })
}

/// The further streams of one side, by number.
fn further(pair: &LinkPair) -> Vec<usize> {
    let there = |number: &usize| pair.a.link.further_stream(*number).is_some();
    (0..20).filter(there).collect()
}

#[test]
fn every_connection_but_the_first_is_a_stream() {
    let pair = three();
    assert_eq!(further(&pair), [1, 2]);
    let mut chosen: Vec<usize> = (0..3).map(|_| pair.a.link.emptiest_stream()).collect();
    chosen.sort_unstable();
    assert_eq!(chosen, [0, 1, 2], "of empty ones, each has its turn");
}

#[test]
fn several_networks_make_one_connection_over_each() {
    let pair = LinkPair::new(&Subject {
        make: |local| transport(local, "127.0.0.1,127.0.0.0/8", None),
    });
    assert_eq!(further(&pair), [1]);
}

/// A put over a stream, with a signal of this value behind it.
fn put(pair: &LinkPair, number: usize, bytes: &[u8], value: u64) -> Submission {
    // Kept for as long as the test runs.
    let memory = ManuallyDrop::new(pair.a.memory(&[bytes]));
    let source = memory.source();
    let stream: &dyn Stream = pair.a.link.further_stream(number).expect("a stream");
    let signal = Signal {
        offset: FLAG + 64 * number as u64,
        value,
    };
    let place = DATA + (number * BYTES) as u64;
    let submitted = stream.put(RegionKey::POOL, place, &source, Some(signal));
    submitted.expect("a put")
}

#[test]
fn message_follows_the_puts_of_all_connections() {
    let mut pair = three();
    for round in 1..=50_u64 {
        let bytes = vec![round as u8; BYTES];
        for number in [1, 2] {
            while put(&pair, number, &bytes, round) == Submission::Full {
                pair.a.pump();
                pair.b.pump();
            }
        }
        pair.a
            .link
            .message(&round.to_le_bytes())
            .expect("a message");
        pair.until("the message", |pair| {
            pair.b.received.messages.len() as u64 == round
        });
        for number in [1, 2] {
            let start = DATA + (number * BYTES) as u64;
            assert_eq!(pair.b.bytes(start..start + BYTES as u64), bytes);
            let flag = FLAG + 64 * number as u64;
            assert_eq!(pair.b.bytes(flag..flag + 8), round.to_ne_bytes());
        }
    }
}

#[test]
fn goodbye_follows_the_data_of_all_connections() {
    let mut pair = three();
    let small = vec![7; 1000];
    for number in [1, 2] {
        assert_eq!(put(&pair, number, &small, 9), Submission::Done);
    }
    pair.a.link.close();
    let until = deadline();
    while pair.b.received.end.is_none() && Instant::now() < until {
        pair.b.pump();
    }
    for number in [1, 2] {
        let flag = FLAG + 64 * number as u64;
        assert_eq!(pair.b.bytes(flag..flag + 8), 9_u64.to_ne_bytes());
    }
}

#[test]
fn too_many_connections_per_link_are_refused() {
    for connections in [0, 17] {
        let options = TcpOptions {
            connections: Some(connections),
            ..TcpOptions::default()
        };
        let local = Local::create(1 << 20).expect("memory");
        let refused = TcpTransport::new(local, options).map(drop);
        let why = refused.expect_err("too many").to_string();
        assert!(why.contains("1 to 16"), "{why}");
    }
}
