use std::sync::atomic::Ordering;

use weft_transport::ring::{Circle, Writer};
use weft_transport::{Inbox, Local, Regions};

use super::halves::TAG_MESSAGE;
use super::*;
use crate::rings::Rings;
use crate::socket;

/// Counts messages.
struct MessageCount(usize);

impl Inbox for MessageCount {
    fn message(&mut self, _bytes: &[u8]) {
        self.0 += 1;
    }
}

/// One end of a connection, with the other's socket and rings, for sending invalid data.
fn connection(name: &str) -> (ShmConnection, Descriptor, Rings) {
    let local = Local::create(1 << 20).unwrap();
    let listener = socket::listen(name.as_bytes()).unwrap();
    let ours = socket::connect(name.as_bytes()).unwrap();
    let theirs = socket::accept(listener.as_fd()).unwrap();
    let watch = ConnectionWatcher::start(listener, Arc::clone(&local.doorbell)).unwrap();
    let event = Descriptor::copy_of(local.doorbell.descriptor()).unwrap();
    let (pool, regions) = (
        Arc::clone(&local.pool),
        Regions::new(Arc::clone(&local.pool)),
    );
    let peer = MappedPeer::new(pool, regions, event).unwrap();
    let rings = Rings::create().unwrap();
    let other = Rings::map(Descriptor::copy_of(rings.descriptor()).unwrap()).unwrap();
    let connection = ShmConnection::new(local.id, peer, rings, ours, Arc::clone(&watch)).unwrap();
    watch.close();
    (connection, theirs, other)
}

fn breach(result: Result<(), LinkError>) -> String {
    match result {
        Err(LinkError::Protocol(what)) => what,
        other => panic!("not a protocol violation: {other:?}"),
    }
}

#[test]
fn invalid_record_ends_the_link() {
    let (connection, _socket, peer) = connection("weft-test-nonsense-record");
    peer.outgoing.header(0).store(1 << 40, Ordering::Release);
    assert!(connection.has_polled_message());
    let named = breach(connection.take_polled_message(&mut MessageCount(0)));
    assert!(named.contains("a record of 1099511627775 bytes"), "{named}");
    assert_eq!(breach(connection.check_open()), named);
    assert_eq!(breach(connection.receive(&mut MessageCount(0))), named);
}

#[test]
fn invalid_position_ends_the_link() {
    let (connection, _socket, peer) = connection("weft-test-nonsense-position");
    peer.incoming.taken().store(u64::MAX, Ordering::Release);
    let sent = (0..100).find_map(|_| connection.polled_message(&[&[0; 1000]]).err());
    let named = breach(sent.map_or(Ok(()), Err));
    assert!(named.contains("claims to have taken"), "{named}");
    assert_eq!(breach(connection.check_open()), named);
}

#[test]
fn packet_out_of_turn_ends_the_link() {
    let (connection, socket, _rings) = connection("weft-test-out-of-turn");
    socket::send(socket.as_fd(), [&[TAG_MESSAGE], b"early"], &[]).unwrap();
    let mut count = MessageCount(0);
    let named = breach(connection.receive(&mut count));
    assert!(named.contains("while the ring was in use"), "{named}");
    assert_eq!(count.0, 0);
}

#[test]
fn region_without_a_key_ends_the_link() {
    for (number, key) in [&[0; 8][..], &[1; 7]].into_iter().enumerate() {
        let (connection, socket, peer) = connection(&format!("weft-test-keyless-{number}"));
        Writer::default().divert(&peer.outgoing);
        socket::send(socket.as_fd(), [&[TAG_REGION], key], &[]).unwrap();
        let named = breach(connection.receive(&mut MessageCount(0)));
        assert!(named.contains("without a valid key"), "{named}");
    }
}
