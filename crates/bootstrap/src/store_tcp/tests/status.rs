//! Tests of the job's status at the store.

use std::sync::{Arc, Barrier};

use super::*;

const LIMIT_MILLIS: u64 = 20_000;

fn ask_status(server: &TcpStoreServer, access: StoreAccess) -> Result<String, Error> {
    connect(server, access)?.status(soon(LIMIT_MILLIS), &AtomicBool::new(false))
}

/// Lets the process that serves a store answer.
fn answer_by(
    server: &TcpStoreServer,
    access: StoreAccess,
    report: impl Fn() -> Option<String> + Send + Sync + 'static,
) {
    let address = server.address().to_string();
    let never = AtomicBool::new(false);
    let own = TcpStore::connect_own(server, &address, access, soon(LIMIT_MILLIS), &never);
    own.unwrap().answer_status(Arc::new(report));
}

#[test]
fn members_get_the_status_again_and_again() {
    let server = closed_server(StoreLimits::default());
    let long = "x".repeat(3 << 20);
    let text = long.clone();
    answer_by(&server, secret(OURS), move || Some(text.clone()));
    let client = connect(&server, secret(OURS)).unwrap();
    for _ in 0..3 {
        let status = client.status(soon(LIMIT_MILLIS), &AtomicBool::new(false));
        assert_eq!(status.unwrap(), long);
    }
    client.set("still", b"there").unwrap();
}

#[test]
fn strangers_get_no_status() {
    let server = closed_server(StoreLimits::default());
    answer_by(&server, secret(OURS), || panic!("a stranger's question"));
    for access in [secret(OTHER), StoreAccess::ThisHost, StoreAccess::Anybody] {
        let error = ask_status(&server, access).unwrap_err();
        assert!(matches!(error, Error::Auth(_)), "{error}");
    }
    let request = protocol::message(&StoreRequest::Status);
    let says = [opening(&StoreAccess::ThisHost), request].concat();
    assert!(reply_to_stranger(&server, &says).is_empty());
}

#[test]
fn missing_status_has_a_reason() {
    let closed = closed_server(StoreLimits::default());
    let check = |server: &TcpStoreServer, access, expected: &str| {
        let error = ask_status(server, access).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    };
    check(&closed, secret(OURS), "rank 0 is in no group yet");
    answer_by(&closed, secret(OURS), || None);
    check(&closed, secret(OURS), "the job has ended");
    let open = TcpStoreServer::start("127.0.0.1:0", &StoreAccess::Anybody).unwrap();
    answer_by(&open, StoreAccess::Anybody, || panic!("anybody's question"));
    check(&open, StoreAccess::Anybody, "this job has no secret");
}

#[test]
fn slow_status_delays_no_member_and_few_wait_for_it() {
    let server = closed_server(StoreLimits::default());
    let begun = Arc::new(Barrier::new(5));
    let ended = Arc::new(Barrier::new(5));
    let (begins, ends) = (begun.clone(), ended.clone());
    answer_by(&server, secret(OURS), move || {
        begins.wait();
        ends.wait();
        Some("slow".into())
    });
    std::thread::scope(|scope| {
        let askers = [(); 4].map(|()| scope.spawn(|| ask_status(&server, secret(OURS))));
        begun.wait();
        connect(&server, secret(OURS))
            .unwrap()
            .set("a", b"1")
            .unwrap();
        let error = ask_status(&server, secret(OURS)).unwrap_err();
        assert!(error.to_string().contains("answered already"), "{error}");
        ended.wait();
        for asker in askers {
            assert_eq!(asker.join().unwrap().unwrap(), "slow");
        }
    });
}
