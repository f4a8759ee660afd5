//! Failures that adapters report: links end with the adapter's status.
#![cfg(feature = "devices")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use weft_transport::{
    EndpointId, Inbox, Iovec, Link, LinkError, LinkEvents, Local, POOL_HEADER, RegionKey,
    Submission, Transport,
};
use weft_transport_rdma::{RdmaOptions, RdmaTransport};
use weft_transport_tcp::{Interface, TcpOptions};

const DEADLINE: Duration = Duration::from_secs(30);

struct AcceptedLinks(Mutex<mpsc::Sender<Arc<dyn Link>>>);

impl LinkEvents for AcceptedLinks {
    fn accept(&self, _peer: EndpointId) -> bool {
        true
    }

    fn connected(&self, link: Arc<dyn Link>) {
        self.0.lock().unwrap().send(link).unwrap();
    }
}

struct Messages(usize);

impl Inbox for Messages {
    fn message(&mut self, _bytes: &[u8]) {
        self.0 += 1;
    }
}

fn endpoint() -> (Local, RdmaTransport) {
    let local = Local::create(16 << 20).unwrap();
    let options = RdmaOptions {
        control: TcpOptions {
            interface: Interface::Named("127.0.0.1".into()),
            ..TcpOptions::default()
        },
        devices: None,
        gid_index: None,
        traffic_class: None,
    };
    let transport = RdmaTransport::new(local.clone(), options).expect("an RDMA device");
    (local, transport)
}

/// The adapter rejects a revoked key, even from a peer that has not received the revocation:
/// nothing is written, and both ends report the adapters' status.
#[test]
fn revoked_key_is_void_and_status_reported() {
    let ((a_local, a), (b_local, b)) = (endpoint(), endpoint());
    let (sender, links) = mpsc::channel();
    b.listen(Arc::new(AcceptedLinks(Mutex::new(sender))))
        .unwrap();
    b.admit(a_local.id, &a.address()).unwrap();
    let (deadline, never) = (Instant::now() + DEADLINE, AtomicBool::new(false));
    let dialled = a
        .connect(b_local.id, &b.address(), deadline, &never)
        .unwrap()
        .unwrap();
    let accepted = links.recv_timeout(DEADLINE).unwrap();

    let range = POOL_HEADER..POOL_HEADER + 4096;
    b_local.pool.reserve(range.clone()).unwrap();
    accepted.grant(RegionKey::POOL, range.clone()).unwrap();
    accepted.message(b"granted").unwrap();
    let mut messages = Messages(0);
    while messages.0 == 0 {
        accepted.flush().unwrap();
        dialled.receive(&mut messages).unwrap();
        assert!(Instant::now() < deadline, "no message");
    }
    accepted.revoke(RegionKey::POOL, range.clone());

    let source = a_local.pool.at(&range).unwrap();
    a_local
        .pool
        .word(range.start)
        .store(7, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the pool lives as long as the link.
    let piece = unsafe { Iovec::new(source.as_ptr(), 4096) };
    let put = dialled
        .put(RegionKey::POOL, range.start, &[piece], None)
        .unwrap();
    let Submission::UnderWay(ticket) = put else {
        panic!("a put that is {put:?}");
    };
    let error = loop {
        match dialled.completed(ticket) {
            Ok(true) => panic!("the put was executed"),
            Ok(false) => assert!(Instant::now() < deadline, "the put hangs"),
            Err(error) => break error,
        }
        std::thread::yield_now();
    };
    let text = error.to_string();
    assert!(matches!(error, LinkError::Gone(_)), "{text}");
    assert!(text.contains("remote access error"), "{text}");
    let word = b_local.pool.word(range.start);
    assert_eq!(word.load(std::sync::atomic::Ordering::Acquire), 0);
    while accepted.receive(&mut messages).is_ok() {
        assert!(Instant::now() < deadline, "the other end hangs");
        std::thread::yield_now();
    }
}
