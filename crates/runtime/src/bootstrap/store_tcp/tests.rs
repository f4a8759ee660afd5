use std::io::Write;

use super::*;

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

fn client(server: &TcpStoreServer) -> TcpStore {
    let address = server.address().to_string();
    TcpStore::connect(&address, soon(10_000), &AtomicBool::new(false)).unwrap()
}

fn server() -> TcpStoreServer {
    TcpStoreServer::start("127.0.0.1:0").unwrap()
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
fn cancel_ends_a_wait_and_an_attempt_to_connect() {
    let server = server();
    let client = client(&server);
    let cancel = AtomicBool::new(false);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| client.get("never", soon(60_000), &cancel));
        let nobody = "127.0.0.1:1";
        let dialler = scope.spawn(|| TcpStore::connect(nobody, soon(60_000), &cancel).map(drop));
        cancel.store(true, Ordering::Relaxed);
        for error in [waiter.join().unwrap().map(drop), dialler.join().unwrap()] {
            assert!(matches!(error, Err(Error::Aborted { .. })), "{error:?}");
        }
    });
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_stranger_is_turned_away() {
    let server = server();
    let mut stranger = TcpStream::connect(server.address()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    // The connection ends; whether by a reset depends on what was read.
    let _ = std::io::Read::read_to_end(&mut stranger, &mut answer);
    assert!(answer.len() <= 12, "{answer:?}");
    client(&server).set("still", b"there").unwrap();
}

#[test]
fn something_else_at_the_address_is_not_taken_for_a_store() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    let error = TcpStore::connect(&address, soon(300), &AtomicBool::new(false)).map(drop);
    other.join().unwrap();
    assert!(matches!(error, Err(Error::Timeout { .. })), "{error:?}");
}
