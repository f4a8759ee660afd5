//! Test that links leave no descriptor, thread or mapping behind. One test, since it counts the
//! objects of the whole process.

use std::sync::Arc;
use std::time::Instant;

use weft_transport_shm::ShmTransport;
use weft_transport_testing::conformance::{LinkPair, Subject, deadline};

fn count(directory: &str) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

fn mapped_memory() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("weft-pool") || line.contains("weft-rings"))
        .count()
}

/// Descriptors, threads, mapped pools and rings.
fn census() -> [usize; 3] {
    [
        count("/proc/self/fd"),
        count("/proc/self/task"),
        mapped_memory(),
    ]
}

#[test]
fn dropped_links_leave_nothing() {
    let subject = Subject {
        make: |local| Arc::new(ShmTransport::new(local).unwrap()),
    };
    // The first link opens descriptors that stay open for the life of the process.
    drop(LinkPair::new(&subject));
    let deadline = deadline();
    let settled = || census()[2] == 0 && census()[1] <= 2;
    while !settled() {
        assert!(Instant::now() < deadline, "{:?}", census());
        std::thread::yield_now();
    }
    let before = census();
    for round in 0..30 {
        let pair = LinkPair::new(&subject);
        pair.a.link.message(&[1; 60_000]).unwrap();
        pair.a.region(60_000);
        match round % 3 {
            0 => {}
            1 => pair.b.link.close(),
            // A goodbye that waits behind unread messages.
            _ => {
                for _ in 0..20 {
                    pair.a.link.message(&[2; 60_000]).unwrap();
                }
                pair.a.link.close();
            }
        }
    }
    // The watching threads end by themselves.
    while census() != before {
        assert!(
            Instant::now() < deadline,
            "before: {before:?}, now: {:?}",
            census()
        );
        std::thread::yield_now();
    }
}
