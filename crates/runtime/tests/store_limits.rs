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

/// One test: the limit is the process's.
#[test]
fn a_store_serves_by_its_last_descriptor_and_tells_who_waits_when_it_has_none() {
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
        // It may get in once the waiter's connection is idle, which makes room.
        let second = client(&server, within(20));
        let told = waiter.join().unwrap();
        limit_descriptors(before);
        drop(second);
        match told {
            // By the server; or by the waiter's own process, where it waited too late.
            Err(Error::Config(why)) => assert!(why.contains("ulimit -n"), "{why}"),
            other => panic!("the waiter was not told: {other:?}"),
        }
    });
}
