//! Connections to the store that something on the way forgets.

use std::io::copy;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use super::*;

/// Forwards connections to a server, those after a number of them.
struct MiddleBox {
    address: String,
    /// The number of connections that were made.
    made: Arc<AtomicUsize>,
    /// How many of the first ones are forgotten.
    forgotten: Arc<AtomicUsize>,
}

impl MiddleBox {
    fn before(server: &TcpStoreServer) -> MiddleBox {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (made, forgotten) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (count, gone, target) = (made.clone(), forgotten.clone(), server.address());
        std::thread::spawn(move || {
            for caller in listener.incoming() {
                let caller = caller.unwrap();
                let number = count.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(target).unwrap();
                let back = (server.try_clone().unwrap(), caller.try_clone().unwrap());
                for (from, to) in [(caller, server), back] {
                    let gone = gone.clone();
                    std::thread::spawn(move || pass(from, to, number, &gone));
                }
            }
        });
        MiddleBox {
            address,
            made,
            forgotten,
        }
    }
}

/// Passes bytes on. Those of a forgotten connection vanish, and so does its end.
fn pass(mut from: TcpStream, mut to: TcpStream, number: usize, forgotten: &AtomicUsize) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if number < forgotten.load(Ordering::Relaxed) {
            let _ = copy(&mut from, &mut std::io::sink());
            return;
        }
        if to.write_all(&bytes[..read]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn client_through(middle_box: &MiddleBox) -> TcpStore {
    let never = AtomicBool::new(false);
    TcpStore::connect(&middle_box.address, secret(OURS), soon(20_000), &never).unwrap()
}

#[test]
fn request_on_a_forgotten_connection_is_made_on_another() {
    let server = closed_server(StoreLimits::default());
    let middle_box = MiddleBox::before(&server);
    let store = client_through(&middle_box);
    store.set("before", b"1").unwrap();
    let made = middle_box.made.load(Ordering::Relaxed);
    middle_box.forgotten.store(made, Ordering::Relaxed);
    let since = Instant::now();
    store.set("after", b"2").unwrap();
    let never = AtomicBool::new(false);
    assert_eq!(store.get("before", soon(20_000), &never).unwrap(), b"1");
    assert_eq!(store.get("after", soon(20_000), &never).unwrap(), b"2");
    // Once for all of its connections, and before the server would be lost.
    assert!(
        since.elapsed() < client::SILENCE_MAX,
        "{:?}",
        since.elapsed()
    );
}

#[test]
fn connection_may_be_forgotten_while_a_request_waits() {
    let server = closed_server(StoreLimits::default());
    let middle_box = MiddleBox::before(&server);
    let store = client_through(&middle_box);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| store.get("late", soon(30_000), &AtomicBool::new(false)));
        std::thread::sleep(Duration::from_millis(700));
        let made = middle_box.made.load(Ordering::Relaxed);
        middle_box.forgotten.store(made, Ordering::Relaxed);
        // Another one, on a new connection.
        client_through(&middle_box).set("late", b"3").unwrap();
        assert_eq!(waiter.join().unwrap().unwrap(), b"3");
    });
}

#[test]
fn value_is_found_although_the_deadline_has_passed() {
    let server = closed_server(StoreLimits::default());
    let middle_box = MiddleBox::before(&server);
    let store = client_through(&middle_box);
    store.set("key", b"4").unwrap();
    let made = middle_box.made.load(Ordering::Relaxed);
    middle_box.forgotten.store(made, Ordering::Relaxed);
    let found = store.get("key", soon(500), &AtomicBool::new(false));
    assert_eq!(found.unwrap(), b"4");
}

#[test]
fn silent_server_is_lost() {
    let server = closed_server(StoreLimits::default());
    let middle_box = MiddleBox::before(&server);
    let store = client_through(&middle_box);
    middle_box.forgotten.store(usize::MAX, Ordering::Relaxed);
    let since = Instant::now();
    let error = store.set("key", b"value").unwrap_err();
    assert!(
        matches!(error, Error::PeerLost { rank: Some(0), .. }),
        "{error:?}"
    );
    let took = since.elapsed();
    assert!(
        client::SILENCE_MAX / 2 < took && took < 3 * client::SILENCE_MAX,
        "{took:?}"
    );
}
