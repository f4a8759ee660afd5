//! Tests of a vanishing host, emulated by taking down the loopback interface of a network
//! namespace. They need the right to make one; without it, they print a message and pass.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use weft_transport::{LinkError, POOL_HEADER, RegionKey, Standing};
use weft_transport_tcp::{Interface, TcpOptions, TcpTransport};
use weft_transport_testing::conformance::{LinkPair, Subject, connect, listening};
use weft_transport_testing::{enter_network, reset, set_loopback};

const PEER_TIMEOUT: Duration = Duration::from_secs(2);

const SUBJECT: Subject = Subject {
    make: |local| {
        let options = TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            peer_timeout: PEER_TIMEOUT,
            ..TcpOptions::default()
        };
        Arc::new(TcpTransport::new(local, options).expect("a port on the loopback interface"))
    },
};

fn check_gone(pair: &mut LinkPair) {
    let started = Instant::now();
    pair.until("the link to end", |pair| {
        pair.a.received.end.is_some() && pair.b.received.end.is_some()
    });
    let took = started.elapsed();
    for end in [&pair.a.received.end, &pair.b.received.end] {
        assert!(matches!(end, Some(LinkError::Gone(_))), "{end:?}");
    }
    assert!(took < PEER_TIMEOUT * 3, "{took:?}");
    assert_eq!(pair.a.link.standing(), Standing::Ended);
}

#[test]
fn idle_link_detects_a_vanished_host() {
    if !enter_network() {
        return;
    }
    let mut pair = LinkPair::new(&SUBJECT);
    assert!(set_loopback("down"));
    check_gone(&mut pair);
}

#[test]
fn busy_link_detects_a_vanished_host() {
    if !enter_network() {
        return;
    }
    let mut pair = LinkPair::new(&SUBJECT);
    assert!(set_loopback("down"));
    let memory = pair.a.memory(&[&[1; 100_000]]);
    for link in [&pair.a.link, &pair.b.link] {
        let put = link.put(RegionKey::POOL, POOL_HEADER, &memory.source(), None);
        put.expect("the link is still good");
    }
    check_gone(&mut pair);
}

/// Makes the only host unreachable, or reachable again.
fn set_unreachable(unreachable: bool) -> bool {
    let verb = if unreachable { "replace" } else { "del" };
    let route = ["unreachable", "127.0.0.1", "table", "local"];
    let status = Command::new("ip")
        .args(["route", verb])
        .args(route)
        .status();
    status.is_ok_and(|status| status.success())
}

/// As for a moment after a line was repaired.
#[test]
fn briefly_unreachable_host_is_called_again() {
    if !enter_network() {
        return;
    }
    let [(a, _events), (b, events)] = [listening(&SUBJECT), listening(&SUBJECT)];
    assert!(set_unreachable(true));
    let called = Instant::now();
    let error = connect(&a, &b).err();
    let took = called.elapsed();
    let unreachable = io::ErrorKind::HostUnreachable;
    assert!(
        matches!(&error, Some(LinkError::Io(error)) if error.kind() == unreachable),
        "{error:?}"
    );
    assert!(
        PEER_TIMEOUT <= took && took < PEER_TIMEOUT * 2,
        "it must try for the whole peer timeout: {took:?}"
    );
    let called = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(PEER_TIMEOUT / 4);
            assert!(set_unreachable(false));
        });
        assert!(connect(&a, &b).unwrap().is_some());
    });
    events.next_link();
    assert!(called.elapsed() < PEER_TIMEOUT);
}

#[test]
fn shorter_cut_does_no_harm() {
    if !enter_network() {
        return;
    }
    let mut pair = LinkPair::new(&SUBJECT);
    assert_eq!(pair.a.link.standing(), Standing::Good);
    assert!(set_loopback("down"));
    let cut = Instant::now();
    pair.a
        .link
        .message(b"through")
        .expect("the link is still good");
    pair.until("half the timeout", |_| cut.elapsed() > PEER_TIMEOUT / 4);
    assert_eq!(pair.a.link.standing(), Standing::Silent);
    assert!(set_loopback("up"));
    pair.until("the message", |pair| !pair.b.received.messages.is_empty());
    pair.until("its acknowledgement", |pair| {
        pair.a.link.standing() == Standing::Good
    });
}

#[test]
fn link_is_resumed_once_its_line_is_repaired() {
    if !enter_network() {
        return;
    }
    let mut pair = LinkPair::new(&SUBJECT);
    assert!(set_loopback("down"));
    reset(&*pair.a.link);
    let cut = Instant::now();
    pair.a
        .link
        .message(b"through")
        .expect("the link is still good");
    // The kernel repeats the first packet of a call after a second, and again after another.
    pair.until("a second", |_| cut.elapsed() > PEER_TIMEOUT * 11 / 20);
    assert_eq!(pair.a.link.standing(), Standing::Silent);
    assert!(set_loopback("up"));
    pair.until("the message", |pair| !pair.b.received.messages.is_empty());
    let renewals = |link: &dyn weft_transport::Link| link.traffic().map(|traffic| traffic.renewals);
    assert_eq!(renewals(&*pair.a.link), Some(1));
}

/// The reset is seen at one end only, and nothing can be called.
#[test]
fn broken_link_to_a_vanished_host_ends_after_the_peer_timeout() {
    if !enter_network() {
        return;
    }
    for first in [false, true] {
        let mut pair = LinkPair::new(&SUBJECT);
        assert!(set_loopback("down"));
        let end = if first { &pair.a } else { &pair.b };
        reset(&*end.link);
        let since = Instant::now();
        check_gone(&mut pair);
        assert!(since.elapsed() > PEER_TIMEOUT / 2, "{:?}", since.elapsed());
        assert!(set_loopback("up"));
    }
}
