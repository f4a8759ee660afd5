//! The conformance suite over shared memory.

use std::sync::Arc;
use std::time::Instant;

use weft_transport::LinkError;
use weft_transport_shm::ShmTransport;
use weft_transport_testing::conformance::{LinkPair, Subject, deadline};

const SUBJECT: Subject = Subject {
    make: |local| Arc::new(ShmTransport::new(local).expect("a transport")),
};

weft_transport_testing::conformance_tests!(SUBJECT);

/// A closed link may be dropped immediately: data that waits for room in its socket is sent
/// nevertheless, the goodbye last.
#[test]
fn a_goodbye_behind_a_flood_outlives_its_link() {
    const COUNT: usize = 60;
    let LinkPair { a, mut b } = LinkPair::new(&SUBJECT);
    for _ in 0..COUNT {
        a.link.message(&[1; 64 * 1024]).unwrap();
    }
    a.link.close();
    drop(a);
    let deadline = deadline();
    while b.received.end.is_none() {
        b.pump();
        assert!(Instant::now() < deadline, "no end");
    }
    assert!(
        matches!(b.received.end, Some(LinkError::Left)),
        "{:?}",
        b.received.end
    );
    assert_eq!(b.received.messages.len(), COUNT);
}
