//! Tests of a store whose process runs out of descriptors.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_runtime::{Error, Store, StoreAccess, TcpStore, TcpStoreServer};
use weft_transport_testing::limits::{limit_descriptors, next_descriptor};

static NEVER: AtomicBool = AtomicBool::new(false);

fn within(seconds: u64) -> Instant {
    Instant::now() + Duration::from_secs(seconds)
}

fn client(server: &TcpStoreServer, deadline: Instant) -> Result<TcpStore, Error> {
    let address = server.address().to_string();
    TcpStore::connect(&address, StoreAccess::ThisHost, deadline, &NEVER)
}

/// One test only, as the limit belongs to the process.
#[test]
fn store_without_descriptors_refuses_waiting_clients() {
    let server = TcpStoreServer::start("127.0.0.1:0", &StoreAccess::ThisHost).unwrap();

    // One descriptor for the client's end, the last one for the server's.
    let before = limit_descriptors(next_descriptor() + 2);
    let first = client(&server, within(10));
    limit_descriptors(before);
    let first = first.expect("the last descriptor serves");
    first.set("here", b"1").unwrap();

    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| first.get("absent", within(30), &NEVER));
        std::thread::sleep(Duration::from_millis(200));
        let before = limit_descriptors(next_descriptor() + 1);
        // It may be served once the waiter's connection is idle, which frees a descriptor.
        let second = client(&server, within(20));
        let outcome = waiter.join().unwrap();
        limit_descriptors(before);
        drop(second);
        match outcome {
            // Reported by the server, or by the waiter's process if it waited too late.
            Err(Error::Config(why)) => assert!(why.contains("ulimit -n"), "{why}"),
            other => panic!("the waiter was not refused: {other:?}"),
        }
    });
}
