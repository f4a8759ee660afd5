//! Conformance tests of connection establishment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{Subject, connect, deadline, listening};
use weft_transport::{
    EndpointId, Link, LinkError, LinkEvents, Local, POOL_HEADER, RegionKey, Signal,
};

/// Each side knows the other's identity, and the link's kind is its transport's.
pub fn both_sides_learn_the_peers_identity(subject: &Subject) {
    let (a, _) = listening(subject);
    let (b, accepted) = listening(subject);
    let dialled = connect(&a, &b).unwrap().unwrap();
    let link = accepted.next_link();
    assert_eq!((dialled.peer(), link.peer()), (b.0.id, a.0.id));
    assert_eq!((dialled.kind(), link.kind()), (a.1.kind(), b.1.kind()));
}

/// Declines connections from the larger identity, so that the attempt of the smaller one wins.
struct SmallerWins {
    own: EndpointId,
    links: super::Events,
}

impl LinkEvents for SmallerWins {
    fn accept(&self, peer: EndpointId) -> bool {
        peer < self.own
    }

    fn connected(&self, link: Arc<dyn Link>) {
        self.links.connected(link);
    }
}

/// Both endpoints dial each other at once: the rule leaves one link with two ends.
pub fn simultaneous_attempts_make_one_link(subject: &Subject) {
    let sides: Vec<_> = (0..2)
        .map(|_| {
            let local = Local::create(1 << 20).unwrap();
            let transport = (subject.make)(local.clone());
            let events = SmallerWins {
                own: local.id,
                links: super::Events::default(),
            };
            let events = Arc::new(events);
            transport
                .listen(Arc::clone(&events) as Arc<dyn LinkEvents>)
                .unwrap();
            ((local, transport), events)
        })
        .collect();
    let attempt = |from: usize| connect(&sides[from].0, &sides[1 - from].0).unwrap();
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| attempt(1));
        (attempt(0), other.join().unwrap())
    });
    let winner = if sides[0].0.0.id < sides[1].0.0.id {
        0
    } else {
        1
    };
    let dialled = [first, second];
    assert!(
        dialled[1 - winner].is_none(),
        "the attempt that should lose made a link"
    );
    let ours = dialled[winner]
        .as_ref()
        .expect("the attempt that should win made no link");
    let theirs = sides[1 - winner].1.links.next_link();
    let pool = &sides[1 - winner].0.0.pool;
    pool.reserve(POOL_HEADER..POOL_HEADER + 4096).unwrap();
    let granted = theirs.grant(RegionKey::POOL, POOL_HEADER..POOL_HEADER + 4096);
    granted.unwrap();
    ours.signal(Signal {
        offset: POOL_HEADER,
        value: 5,
    })
    .unwrap();
    let deadline = deadline();
    while pool.word(POOL_HEADER).load(Ordering::Acquire) != 5 {
        ours.flush().unwrap();
        theirs.receive(&mut super::Received::default()).unwrap();
        assert!(
            Instant::now() < deadline,
            "the two ends belong to different links"
        );
    }
}

/// A caller that does not know the listener's token is rejected before the listener is asked. A
/// transport whose addresses hold no token tests its own proofs.
pub fn a_wrong_token_is_refused_without_asking(subject: &Subject) {
    let (a, _) = listening(subject);
    let (b, accepted) = listening(subject);
    let mut address = b.1.address();
    let token = b.0.token;
    let mut windows = address.windows(token.len());
    let Some(at) = windows.position(|window| window == token) else {
        return;
    };
    address[at + 31] ^= 1;
    let never = AtomicBool::new(false);
    match a.1.connect(b.0.id, &address, deadline(), &never) {
        Err(LinkError::Refused(_) | LinkError::Gone(_)) => {}
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("a wrong token was accepted"),
    }
    assert!(accepted.asked.lock().unwrap().is_empty());
    // The listener still works.
    assert!(connect(&a, &b).unwrap().is_some());
}

/// An endpoint that never accepts its connections.
fn unresponsive(subject: &Subject) -> (Local, Arc<dyn weft_transport::Transport>) {
    let local = Local::create(1 << 20).unwrap();
    let transport = (subject.make)(local.clone());
    (local, transport)
}

/// A missing answer is an error at the deadline.
pub fn an_unresponsive_listener_is_detected_by_the_deadline(subject: &Subject) {
    let (a, b) = (unresponsive(subject), unresponsive(subject));
    let started = Instant::now();
    let never = AtomicBool::new(false);
    let soon = started + Duration::from_millis(300);
    match a.1.connect(b.0.id, &b.1.address(), soon, &never) {
        Err(LinkError::TimedOut(_) | LinkError::Absent(_)) => {}
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("connected, although the peer accepts nothing"),
    }
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

/// Cancelling ends an attempt immediately, not at its deadline.
pub fn an_attempt_can_be_cancelled(subject: &Subject) {
    let (a, b) = (unresponsive(subject), unresponsive(subject));
    let cancel = AtomicBool::new(false);
    let started = Instant::now();
    let result = std::thread::scope(|scope| {
        let attempt = scope.spawn(|| a.1.connect(b.0.id, &b.1.address(), deadline(), &cancel));
        cancel.store(true, Ordering::Relaxed);
        attempt.join().unwrap()
    });
    assert!(matches!(
        result,
        Err(LinkError::Cancelled | LinkError::Absent(_))
    ));
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

/// A listener serves many peers that connect at the same moment.
pub fn many_peers_connect_at_once(subject: &Subject) {
    const PEERS: usize = 12;
    let (b, accepted) = listening(subject);
    let peers: Vec<_> = (0..PEERS).map(|_| unresponsive(subject)).collect();
    let links: Vec<_> = std::thread::scope(|scope| {
        let attempts: Vec<_> = peers
            .iter()
            .map(|peer| scope.spawn(|| connect(peer, &b).unwrap().unwrap()))
            .collect();
        attempts
            .into_iter()
            .map(|attempt| attempt.join().unwrap())
            .collect()
    });
    let mut connected: Vec<_> = (0..PEERS).map(|_| accepted.next_link().peer()).collect();
    let mut expected: Vec<_> = peers.iter().map(|peer| peer.0.id).collect();
    connected.sort_unstable();
    expected.sort_unstable();
    assert_eq!(connected, expected);
    assert!(links.iter().all(|link| link.peer() == b.0.id));
}

/// A closed transport accepts no connection.
pub fn connections_are_refused_after_close(subject: &Subject) {
    let (a, _) = listening(subject);
    let (b, accepted) = listening(subject);
    b.1.close();
    let never = AtomicBool::new(false);
    let soon = Instant::now() + Duration::from_millis(300);
    let result = a.1.connect(b.0.id, &b.1.address(), soon, &never);
    assert!(
        !matches!(result, Ok(Some(_))),
        "a closed transport accepted"
    );
    assert!(accepted.asked.lock().unwrap().is_empty());
}
