use std::sync::Mutex;
use std::sync::atomic::Ordering;

use weft_transport::{FlushState, Inbox, RegionKey, Signal, Standing};
use weft_transport_testing::{enter_network, set_loopback, strict};

use super::*;

const ALL: [(TransportChoice, TransportKind); 4] = [
    (TransportChoice::Loopback, TransportKind::Loopback),
    (TransportChoice::Custom(strict), TransportKind::Custom),
    (TransportChoice::Shm, TransportKind::Shm),
    (TransportChoice::Tcp, TransportKind::Tcp),
];

/// An endpoint that only this host can reach.
pub(crate) fn endpoint(transport: TransportChoice) -> Arc<Endpoint> {
    let options = EndpointOptions {
        transport,
        interface: Some("127.0.0.1".into()),
        pool_bytes: 64 << 20,
        ..EndpointOptions::default()
    };
    Endpoint::new(options).unwrap()
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn link(from: &Endpoint, to: &Endpoint, kind: TransportKind) -> Arc<dyn Link> {
    let never = AtomicBool::new(false);
    to.admit(&from.address()).unwrap();
    from.link(&to.address(), kind, far(), &never).unwrap()
}

/// Collects every announced link.
fn collect(endpoint: &Endpoint) -> Arc<Mutex<Vec<Arc<dyn Link>>>> {
    let links = Arc::new(Mutex::new(Vec::new()));
    let collected = links.clone();
    endpoint.on_link(Box::new(move |link| collected.lock().unwrap().push(link)));
    links
}

struct Nothing;

impl Inbox for Nothing {
    fn message(&mut self, bytes: &[u8]) {
        panic!("an unexpected message of {} bytes", bytes.len());
    }
}

/// Both ends find a link, and it joins them.
fn check_joined(a: &Endpoint, b: &Endpoint, kind: TransportKind) {
    let (at_a, at_b) = (link(a, b, kind), link(b, a, kind));
    let range = b.pool().allocate(4096, 1).unwrap();
    at_b.grant(RegionKey::POOL, range.range()).unwrap();
    let signal = Signal {
        offset: range.offset,
        value: 9,
    };
    at_a.signal(signal).unwrap();
    let word = b.pool().segment().word(range.offset);
    let deadline = far();
    while word.load(Ordering::Acquire) != 9 {
        let flushed: FlushState = at_a.flush().unwrap();
        at_b.receive(&mut Nothing).unwrap();
        assert!(Instant::now() < deadline, "{flushed:?}");
        std::thread::yield_now();
    }
}

#[test]
fn one_link_per_peer_from_either_side() {
    for (transport, kind) in ALL {
        let (a, b) = (endpoint(transport), endpoint(transport));
        let (links_a, links_b) = (collect(&a), collect(&b));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| link(&a, &b, kind));
            }
        });
        check_joined(&a, &b, kind);
        assert_eq!(links_a.lock().unwrap().len(), 1, "{kind}");
        assert_eq!(links_b.lock().unwrap().len(), 1, "{kind}");
    }
}

#[test]
fn simultaneous_dialling_makes_one_link() {
    const ROUNDS: usize = 20;
    for (transport, kind) in ALL {
        for _ in 0..ROUNDS {
            let (a, b) = (endpoint(transport), endpoint(transport));
            let (links_a, links_b) = (collect(&a), collect(&b));
            let start = std::sync::Barrier::new(2);
            std::thread::scope(|scope| {
                for (from, to) in [(&a, &b), (&b, &a)] {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        link(from, to, kind)
                    });
                }
            });
            check_joined(&a, &b, kind);
            assert_eq!(links_a.lock().unwrap().len(), 1, "{kind}");
            assert_eq!(links_b.lock().unwrap().len(), 1, "{kind}");
        }
    }
}

#[test]
fn a_forgotten_peer_can_be_linked_again() {
    for (transport, kind) in ALL {
        let (a, b) = (endpoint(transport), endpoint(transport));
        let ended = [(&a, link(&a, &b, kind)), (&b, link(&b, &a, kind))];
        for (endpoint, ended) in &ended {
            ended.close();
            endpoint.forget(ended);
        }
        check_joined(&a, &b, kind);
    }
}

#[test]
fn ended_link_is_not_returned() {
    let (a, b) = (
        endpoint(TransportChoice::Tcp),
        endpoint(TransportChoice::Tcp),
    );
    let (at_a, at_b) = (
        link(&a, &b, TransportKind::Tcp),
        link(&b, &a, TransportKind::Tcp),
    );
    at_a.close();
    b.forget(&at_b);
    check_joined(&a, &b, TransportKind::Tcp);
}

#[test]
fn silent_link_is_taken_once_usable() {
    if !enter_network() {
        return;
    }
    let (a, b) = (
        endpoint(TransportChoice::Tcp),
        endpoint(TransportChoice::Tcp),
    );
    let silent = link(&a, &b, TransportKind::Tcp);
    assert!(set_loopback("down"));
    silent.message(b"on its way").unwrap();
    while silent.standing() == Standing::Good {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ready = a.ready_link(b.id, TransportKind::Tcp);
    assert!(ready.is_none(), "a silent link must not be taken");
    std::thread::scope(|scope| {
        let taken = scope.spawn(|| link(&a, &b, TransportKind::Tcp));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!taken.is_finished(), "a silent link was taken");
        assert!(set_loopback("up"));
        assert!(Arc::ptr_eq(&taken.join().unwrap(), &silent));
    });
}

#[test]
fn missing_transport_is_a_configuration_error() {
    let (a, b) = (
        endpoint(TransportChoice::Tcp),
        endpoint(TransportChoice::Tcp),
    );
    let never = AtomicBool::new(false);
    let refused = a
        .link(&b.address(), TransportKind::Shm, far(), &never)
        .map(drop);
    assert!(matches!(refused, Err(Error::Config(_))), "{refused:?}");
}

#[test]
fn closed_endpoint_makes_no_links() {
    for (transport, kind) in ALL {
        let (a, b) = (endpoint(transport), endpoint(transport));
        check_joined(&a, &b, kind);
        let at_b = link(&b, &a, kind);
        a.close();
        let deadline = far();
        let end = loop {
            if let Err(end) = at_b.receive(&mut Nothing) {
                break end;
            }
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        };
        assert!(matches!(end, LinkError::Left), "{kind}: {end}");
        let never = AtomicBool::new(false);
        assert!(a.link(&b.address(), kind, far(), &never).is_err(), "{kind}");
        b.forget(&at_b);
        let soon = Instant::now() + Duration::from_millis(300);
        assert!(b.link(&a.address(), kind, soon, &never).is_err(), "{kind}");
    }
}
