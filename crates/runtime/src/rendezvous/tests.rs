use std::sync::Arc;
use std::thread;

use super::*;
use crate::endpoint::{EndpointOptions, TransportChoice};
use crate::store::{MemoryStore, PrefixStore};

fn endpoint(transport: TransportChoice) -> Arc<Endpoint> {
    let options = EndpointOptions {
        transport,
        interface: Some("127.0.0.1".into()),
        pool_bytes: 1 << 20,
        ..EndpointOptions::default()
    };
    Endpoint::new(options).unwrap()
}

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

/// Every rank's result, where rank r is alone in using `choices[r]`.
fn meet_all(choices: &[TransportChoice], store: &dyn Store) -> Vec<Result<Meeting, Error>> {
    let size = choices.len() as u32;
    let endpoints: Vec<_> = choices.iter().map(|choice| endpoint(*choice)).collect();
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .zip(&endpoints)
            .map(|(rank, endpoint)| {
                let never = AtomicBool::new(false);
                scope.spawn(move || {
                    meet(
                        endpoint,
                        store,
                        rank,
                        size,
                        Terms::default(),
                        soon(20_000),
                        &never,
                    )
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn check_hosts(transport: TransportChoice, expected: [u32; 3]) -> Meeting {
    let results = meet_all(&[transport; 3], &MemoryStore::new());
    let mut meetings = results.into_iter().map(Result::unwrap);
    let first = meetings.next().unwrap();
    assert!(meetings.all(|meeting| meeting == first), "ranks disagree");
    let hosts: Vec<u32> = first.members.iter().map(|member| member.host).collect();
    assert_eq!(hosts, expected);
    first
}

#[test]
fn all_ranks_agree() {
    assert_eq!(
        check_hosts(TransportChoice::Loopback, [0; 3]).kind(1, 2),
        Kind::Loopback
    );
    assert_eq!(
        check_hosts(TransportChoice::Shm, [0; 3]).kind(1, 2),
        Kind::Shm
    );
    assert_eq!(
        check_hosts(TransportChoice::Auto, [0; 3]).kind(0, 2),
        Kind::Shm
    );
    assert_eq!(
        check_hosts(TransportChoice::Tcp, [0, 1, 2]).kind(0, 2),
        Kind::Tcp
    );
}

#[test]
fn one_store_serves_several_groups() {
    let store = MemoryStore::new();
    let ids: Vec<u64> = ["a", "b"]
        .iter()
        .map(|name| {
            let part = PrefixStore::new(name, &store);
            let results = meet_all(&[TransportChoice::Loopback; 2], &part);
            results[0].as_ref().unwrap().group_id
        })
        .collect();
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn different_transports_are_a_configuration_error_everywhere() {
    let choices = [TransportChoice::Tcp, TransportChoice::Loopback];
    for result in meet_all(&choices, &MemoryStore::new()) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error}");
        assert!(error.to_string().contains("rank 1"), "{error}");
    }
}

#[test]
fn missing_ranks_are_named() {
    let store = MemoryStore::new();
    let lonely = endpoint(TransportChoice::Loopback);
    let never = AtomicBool::new(false);
    let error = meet(&lonely, &store, 1, 4, Terms::default(), soon(30), &never).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(error.to_string().contains("ranks 0, 2, 3 of 4"), "{error}");
}

#[test]
fn cancel_ends_the_meeting() {
    let store = MemoryStore::new();
    let lonely = endpoint(TransportChoice::Loopback);
    let cancel = AtomicBool::new(true);
    let error = meet(
        &lonely,
        &store,
        0,
        2,
        Terms::default(),
        soon(20_000),
        &cancel,
    )
    .unwrap_err();
    assert!(matches!(error, Error::Aborted { .. }), "{error}");
}

#[test]
fn wrong_arguments_are_named() {
    let store = MemoryStore::new();
    let lonely = endpoint(TransportChoice::Loopback);
    let never = AtomicBool::new(false);
    let error = meet(&lonely, &store, 2, 2, Terms::default(), soon(30), &never).unwrap_err();
    assert!(error.to_string().contains("0..2"), "{error}");
}

#[test]
fn different_world_sizes_are_named() {
    let store = MemoryStore::new();
    let (first, second) = (
        endpoint(TransportChoice::Loopback),
        endpoint(TransportChoice::Loopback),
    );
    let never = AtomicBool::new(false);
    // The first one waits in vain, but has published what it expects.
    meet(&first, &store, 0, 3, Terms::default(), soon(30), &never).unwrap_err();
    let error = meet(&second, &store, 1, 2, Terms::default(), soon(1000), &never).unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert!(error.to_string().contains("expects 3 ranks"), "{error}");
}

#[test]
fn long_lists_of_ranks_are_cut() {
    let check = |ranks: &[u32], expected: &str| assert_eq!(name_ranks(ranks), expected);
    check(&[2], "rank 2");
    check(&[2, 5], "ranks 2, 5");
    let many: Vec<u32> = (0..900).collect();
    check(
        &many,
        "ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 ... 899 (900 in all)",
    );
}
