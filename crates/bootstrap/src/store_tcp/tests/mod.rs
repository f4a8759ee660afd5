//! Tests of the store over TCP.

mod forgotten;
mod status;
mod tls;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::protocol::{StoreReply, StoreRequest};
use super::server::StoreLimits;
use super::*;
use crate::Store;

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

fn client(server: &TcpStoreServer) -> TcpStore {
    let address = server.address().to_string();
    TcpStore::connect(
        &address,
        StoreAccess::ThisHost,
        soon(10_000),
        &AtomicBool::new(false),
    )
    .unwrap()
}

fn server() -> TcpStoreServer {
    TcpStoreServer::start("127.0.0.1:0", &StoreAccess::ThisHost).unwrap()
}

#[test]
fn a_value_reaches_every_client() {
    let server = server();
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|_| {
                let client = client(&server);
                let keys = ["a".to_string(), "b".to_string()];
                scope.spawn(move || client.multi_get(&keys, soon(10_000), &AtomicBool::new(false)))
            })
            .collect();
        let setter = client(&server);
        setter.set("b", b"2").unwrap();
        setter.set("a", &vec![7; 3 << 20]).unwrap();
        for waiter in waiters {
            let values = waiter.join().unwrap().unwrap();
            assert_eq!(values, [vec![7; 3 << 20], b"2".to_vec()]);
        }
        assert!(setter.has("a").unwrap());
        assert!(!setter.has("c").unwrap());
        assert_eq!(setter.get("b", soon(1000), &never).unwrap(), b"2");
    });
}

#[test]
fn a_missing_key_times_out_and_is_named() {
    let server = server();
    let client = client(&server);
    let error = client
        .get("absent", soon(30), &AtomicBool::new(false))
        .unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("absent"), "{error}");
    client.set("present", b"1").unwrap();
}

#[test]
fn the_end_of_the_server_ends_every_wait() {
    let server = server();
    let client = client(&server);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get("never", soon(60_000), &AtomicBool::new(false)));
        drop(server);
        let error = waiter.join().unwrap().unwrap_err();
        assert!(
            matches!(error, Error::PeerLost { rank: Some(0), .. }),
            "{error}"
        );
    });
}

#[test]
fn calls_to_a_lost_server_fail_soon() {
    let server = server();
    let client = client(&server);
    drop(server);
    let started = Instant::now();
    // As many as a rank makes that reports its failure, and checks which ranks are missing.
    for _ in 0..4 {
        let error = client.set("failed", b"why").unwrap_err();
        assert!(matches!(error, Error::PeerLost { .. }), "{error}");
        assert!(client.has("here").is_err());
    }
    let error = client.get("never", soon(60_000), &AtomicBool::new(false));
    assert!(matches!(error, Err(Error::PeerLost { .. })), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn call_without_patience_connects_while_another_one_waits() {
    let server = server();
    let client = client(&server);
    client.set("present", b"1").unwrap();
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get("never", soon(60_000), &cancel));
        std::thread::sleep(Duration::from_millis(200));
        let found = client.get("present", Instant::now(), &AtomicBool::new(false));
        cancel.store(true, Ordering::Relaxed);
        assert_eq!(found.unwrap(), b"1");
        waiter.join().unwrap().unwrap_err();
    });
}

#[test]
fn client_does_not_continue_with_another_server_at_the_address() {
    let accesses = [StoreAccess::ThisHost, secret(OURS)];
    for before in &accesses {
        for access in &accesses {
            let former = TcpStoreServer::start("127.0.0.1:0", before).unwrap();
            let address = former.address().to_string();
            let client = connect(&former, before.clone()).unwrap();
            drop(former);
            let latter = TcpStoreServer::start(&address, access).unwrap();
            for _ in 0..2 {
                let error = client.set("key", b"1").unwrap_err();
                assert!(matches!(error, Error::PeerLost { .. }), "{error}");
            }
            assert!(
                !connect(&latter, access.clone())
                    .unwrap()
                    .has("key")
                    .unwrap()
            );
        }
    }
}

#[test]
fn cancel_ends_waits_and_connection_attempts() {
    let server = server();
    let client = client(&server);
    let cancel = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get("never", soon(60_000), &cancel));
        let unused = "127.0.0.1:1";
        let dialler = scope.spawn(|| {
            TcpStore::connect(unused, StoreAccess::ThisHost, soon(60_000), &cancel).map(drop)
        });
        cancel.store(true, Ordering::Relaxed);
        for error in [waiter.join().unwrap().map(drop), dialler.join().unwrap()] {
            assert!(matches!(error, Err(Error::Aborted { .. })), "{error:?}");
        }
    });
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_stranger_is_refused() {
    let server = server();
    let mut stranger = TcpStream::connect(server.address()).unwrap();
    stranger.write_all(&[b'G'; 64]).unwrap();
    let mut answer = Vec::new();
    // The connection ends, with or without a reset.
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    client(&server).set("still", b"there").unwrap();
}

#[test]
fn other_service_is_not_taken_for_a_store() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    let error = TcpStore::connect(
        &address,
        StoreAccess::ThisHost,
        soon(300),
        &AtomicBool::new(false),
    )
    .map(drop);
    other.join().unwrap();
    assert!(matches!(error, Err(Error::Timeout { .. })), "{error:?}");
}

fn secret(text: &str) -> StoreAccess {
    StoreAccess::Secret(Secret::new(text.as_bytes()).unwrap())
}

fn closed_server(limits: StoreLimits) -> TcpStoreServer {
    TcpStoreServer::start_with("127.0.0.1:0", &secret(OURS), limits).unwrap()
}

fn connect(server: &TcpStoreServer, access: StoreAccess) -> Result<TcpStore, Error> {
    let address = server.address().to_string();
    TcpStore::connect(&address, access, soon(20_000), &AtomicBool::new(false))
}

/// A request that weft's client would not make.
fn ask(server: &TcpStoreServer, access: StoreAccess, request: &StoreRequest) -> StoreReply {
    let never = AtomicBool::new(false);
    let Ok(mut connection) = connect(server, access)
        .unwrap()
        .dial_once(soon(5000), &never)
    else {
        panic!("no connection");
    };
    connection
        .exchange(request, client::SILENCE_MAX, &never)
        .unwrap()
        .reply
}

/// The server's reply to a stranger's bytes, until the connection ends.
fn reply_to_stranger(server: &TcpStoreServer, says: &[u8]) -> Vec<u8> {
    let mut stranger = TcpStream::connect(server.address()).unwrap();
    stranger
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stranger.write_all(says).unwrap();
    let mut answer = Vec::new();
    match stranger.read_to_end(&mut answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("still open"),
        _ => answer,
    }
}

/// A client's first bytes.
fn opening(access: &StoreAccess) -> Vec<u8> {
    let mut wire = Vec::new();
    channel::StoreChannel::of_client(access, "127.0.0.1:1", &mut wire).unwrap();
    wire
}

const OURS: &str = "the secret of this job";
const OTHER: &str = "the secret of another job";

#[test]
fn clients_with_the_secret_are_served() {
    let server = closed_server(StoreLimits::default());
    let [one, two] = [(); 2].map(|()| connect(&server, secret(OURS)).unwrap());
    std::thread::scope(|scope| {
        let keys = ["a".to_string(), "empty".to_string()];
        let waiter =
            scope.spawn(move || two.multi_get(&keys, soon(10_000), &AtomicBool::new(false)));
        one.set("empty", b"").unwrap();
        one.set("a", &vec![7; 3 << 20]).unwrap();
        let values = waiter.join().unwrap().unwrap();
        assert_eq!(values, [vec![7; 3 << 20], Vec::new()]);
    });
}

#[test]
fn different_secrets_fail_soon_and_clearly() {
    let closed = closed_server(StoreLimits::default());
    let open = server();
    let started = Instant::now();
    for (server, access) in [
        (&closed, secret(OTHER)),
        (&closed, StoreAccess::ThisHost),
        (&open, secret(OURS)),
    ] {
        let error = connect(server, access).map(drop).unwrap_err();
        assert!(matches!(error, Error::Auth(_)), "{error}");
        let message = error.to_string();
        assert!(
            message.contains("WEFT_SECRET must be the same"),
            "{message}"
        );
        assert!(
            !message.contains(OURS) && !message.contains(OTHER),
            "{message}"
        );
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[test]
fn stranger_gets_no_reply_and_changes_nothing() {
    let limits = StoreLimits {
        stranger_time: Duration::from_millis(300),
        ..StoreLimits::default()
    };
    let server = closed_server(limits);
    let [plain, other] = [StoreAccess::ThisHost, secret(OTHER)].map(|access| opening(&access));
    let mut request = plain.clone();
    request.extend(protocol::message(&StoreRequest::Set {
        key: "a".into(),
        value: b"1".into(),
    }));
    let noise = [0xa5; 100_000];
    for says in [&noise[..], &request, &other, &[], &plain[..20]] {
        assert!(reply_to_stranger(&server, says).is_empty());
    }
    assert!(!connect(&server, secret(OURS)).unwrap().has("a").unwrap());
}

#[test]
fn replayed_bytes_of_a_client_are_useless() {
    let limits = StoreLimits {
        stranger_time: Duration::from_millis(300),
        ..StoreLimits::default()
    };
    let server = closed_server(limits);
    // A man in the middle keeps all bytes from the client.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let to = server.address();
    let recorder = std::thread::spawn(move || {
        let (mut inner, _) = listener.accept().unwrap();
        let mut outer = TcpStream::connect(to).unwrap();
        let (mut back, mut front) = (outer.try_clone().unwrap(), inner.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut front));
        let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = inner.read(&mut buffer) {
            kept.extend_from_slice(&buffer[..bytes]);
            outer.write_all(&buffer[..bytes]).unwrap();
        }
        kept
    });
    let client = TcpStore::connect(
        &address,
        secret(OURS),
        soon(10_000),
        &AtomicBool::new(false),
    );
    let client = client.unwrap();
    client.set("the key", b"the value").unwrap();
    drop(client);
    let kept = recorder.join().unwrap();
    for shown in [&b"the key"[..], b"the value"] {
        assert!(!kept.windows(shown.len()).any(|part| part == shown));
    }
    // Without the secret, the reply to a replay cannot be continued.
    let opening_bytes = opening(&secret(OURS)).len();
    assert!(reply_to_stranger(&server, &kept).len() <= opening_bytes);
    assert!(reply_to_stranger(&server, &kept[..opening_bytes]).len() <= opening_bytes);
}

#[test]
fn idle_strangers_make_room() {
    let limits = StoreLimits {
        strangers: 8,
        stranger_time: Duration::from_secs(600),
        ..StoreLimits::default()
    };
    let server = closed_server(limits);
    let strangers: Vec<_> = (0..100)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    connect(&server, secret(OURS))
        .unwrap()
        .set("a", b"1")
        .unwrap();
    let is_open = |mut stranger: &TcpStream| {
        stranger
            .set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        let read = stranger.read(&mut [0]);
        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    let open = strangers
        .iter()
        .filter(|stranger| is_open(stranger))
        .count();
    assert!(open <= 8, "{open}");
}

#[test]
fn idle_clients_make_room_and_reconnect() {
    let limits = StoreLimits {
        clients: 2,
        idle_time: Duration::from_millis(200),
        ..StoreLimits::default()
    };
    let server = closed_server(limits);
    let clients: Vec<_> = (0..6)
        .map(|_| connect(&server, secret(OURS)).unwrap())
        .collect();
    for (number, client) in clients.iter().enumerate() {
        client.set(&number.to_string(), b"1").unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    assert!(clients[0].has("5").unwrap());
}

#[test]
fn more_clients_may_wait_than_fit() {
    let limits = StoreLimits {
        clients: 2,
        ..StoreLimits::default()
    };
    let server = closed_server(limits);
    std::thread::scope(|scope| {
        let waiters = [(); 6].map(|()| {
            scope.spawn(|| {
                let client = connect(&server, secret(OURS)).unwrap();
                client.get("a", soon(20_000), &AtomicBool::new(false))
            })
        });
        std::thread::sleep(Duration::from_millis(200));
        connect(&server, secret(OURS))
            .unwrap()
            .set("a", b"1")
            .unwrap();
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap().unwrap(), b"1");
        }
    });
}

#[test]
fn a_key_is_set_once() {
    let server = server();
    let [one, two] = [(); 2].map(|()| client(&server));
    one.set("a", b"1").unwrap();
    two.set("a", b"1").unwrap();
    let error = two.set("a", b"2").unwrap_err();
    assert!(error.to_string().contains("set already"), "{error}");
    let value = two.get("a", soon(1000), &AtomicBool::new(false));
    assert_eq!(value.unwrap(), b"1");
}

#[test]
fn oversized_requests_are_refused() {
    let server = server();
    client(&server).set("k", &vec![7; 1 << 20]).unwrap();
    let ask = |keys| {
        let wait_millis = 1000;
        let request = StoreRequest::Get { keys, wait_millis };
        ask(&server, StoreAccess::ThisHost, &request)
    };
    assert!(matches!(ask(vec!["k".into(); 64]), StoreReply::Values(64)));
    for refused in [
        vec!["k".to_string(); 65],
        vec!["k".into(); 1000],
        vec!["k".into(); 1025],
        vec!["k".repeat(513)],
    ] {
        let reply = ask(refused);
        assert!(matches!(reply, StoreReply::Refused(_)), "{reply:?}");
    }
    // Not even decoded: a million keys take more memory than their encoding.
    let keys = vec![String::new(); (1 << 20) + 1];
    let body = protocol::message(&StoreRequest::Get {
        keys,
        wait_millis: 0,
    });
    assert!(StoreRequest::decode(&body[4..]).is_err());
}

#[test]
fn many_keys_are_requested_in_parts() {
    let server = server();
    let client = client(&server);
    let keys: Vec<String> = (0..2500).map(|number| number.to_string()).collect();
    for key in &keys {
        client.set(key, key.as_bytes()).unwrap();
    }
    let values = client
        .multi_get(&keys, soon(10_000), &AtomicBool::new(false))
        .unwrap();
    assert!(
        values
            .iter()
            .zip(&keys)
            .all(|(value, key)| value == key.as_bytes())
    );
}

#[test]
fn stored_bytes_are_bounded() {
    let limits = StoreLimits {
        stored_bytes: 10_000,
        ..StoreLimits::default()
    };
    let server = closed_server(limits);
    let client = connect(&server, secret(OURS)).unwrap();
    client.set("a", &[1; 9000]).unwrap();
    let error = client.set("b", &[1; 9000]).unwrap_err().to_string();
    assert!(error.contains("no room"), "{error}");
    client.set("c", &[1; 500]).unwrap();
    let error = client.set(&"k".repeat(600), b"1").unwrap_err().to_string();
    assert!(error.contains("600 bytes"), "{error}");
    let error = client
        .set("v", &vec![0; (16 << 20) + 1])
        .unwrap_err()
        .to_string();
    assert!(error.contains("16777217 bytes"), "{error}");
}

#[test]
fn without_a_secret_nothing_leaves_the_host() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:1"] {
        let server = TcpStoreServer::start(address, &StoreAccess::ThisHost).map(drop);
        let never = AtomicBool::new(false);
        let client = TcpStore::connect(address, StoreAccess::ThisHost, soon(5000), &never);
        for error in [server.unwrap_err(), client.map(drop).unwrap_err()] {
            let message = error.to_string();
            assert!(
                message.contains("set WEFT_SECRET") && message.contains("WEFT_INSECURE=1"),
                "{message}"
            );
        }
    }
    TcpStoreServer::start("0.0.0.0:0", &StoreAccess::Anybody).unwrap();
}

#[test]
fn foreign_address_needs_a_secret() {
    let elsewhere = "192.0.2.1:0";
    let error = TcpStoreServer::start(elsewhere, &StoreAccess::Anybody)
        .map(drop)
        .unwrap_err();
    assert!(error.to_string().contains("MASTER_ADDR"), "{error}");
    let server = TcpStoreServer::start(elsewhere, &secret(OURS)).unwrap();
    assert!(server.listens_everywhere());
    assert!(!closed_server(StoreLimits::default()).listens_everywhere());
}

/// The published address leads through a forwarded port, which this host does not reach.
#[test]
fn serving_process_reaches_its_own_store() {
    let never = AtomicBool::new(false);
    let elsewhere = "192.0.2.1:0";
    for at in [elsewhere, "127.0.0.1:0"] {
        let server = TcpStoreServer::start(at, &secret(OURS)).unwrap();
        let own = TcpStore::connect_own(&server, elsewhere, secret(OURS), soon(10_000), &never);
        own.unwrap().set("key", b"value").unwrap();
    }
}

#[test]
fn timeout_mentions_refused_processes() {
    let never = AtomicBool::new(false);
    let server = TcpStoreServer::start("127.0.0.1:0", &secret(OURS)).unwrap();
    let address = server.address().to_string();
    let own = TcpStore::connect_own(&server, &address, secret(OURS), soon(10_000), &never).unwrap();
    assert_eq!(own.refusals(), None);
    for access in [secret(OTHER), StoreAccess::Anybody] {
        let refused = TcpStore::connect(&address, access, soon(10_000), &never);
        assert!(matches!(refused.map(drop), Err(Error::Auth(_))));
    }
    let note = own.refusals().unwrap();
    assert!(
        note.contains("the last from 127.0.0.1") && note.contains("WEFT_SECRET"),
        "{note}"
    );
}
