use std::sync::atomic::Ordering;
use std::thread;

use super::exchange::name_ranks;
use super::*;
use crate::endpoint::tests::endpoint;
use crate::{Formats, JobIdentity, MemoryStore, Policy, PrefixStore, TransportChoice};

fn soon(millis: u64) -> Instant {
    Instant::now() + Duration::from_millis(millis)
}

/// Every rank's result, where only rank r uses `choices[r]`.
fn meet_all(choices: &[TransportChoice], store: &dyn Store) -> Vec<Result<Meeting, Error>> {
    meet_within(choices, &vec![Domain::default(); choices.len()], store)
}

/// Like [`meet_all`], where rank r is in the r-th domain.
fn meet_within(
    choices: &[TransportChoice],
    domains: &[Domain],
    store: &dyn Store,
) -> Vec<Result<Meeting, Error>> {
    let size = choices.len() as u32;
    let endpoints: Vec<_> = choices.iter().map(|choice| endpoint(*choice)).collect();
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .zip(&endpoints)
            .zip(domains)
            .map(|((rank, endpoint), domain)| {
                let never = AtomicBool::new(false);
                let terms = GroupTerms {
                    domain: *domain,
                    ..GroupTerms::default()
                };
                scope.spawn(move || meet(endpoint, store, rank, size, terms, soon(20_000), &never))
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
        TransportKind::Loopback
    );
    assert_eq!(
        check_hosts(TransportChoice::Shm, [0; 3]).kind(1, 2),
        TransportKind::Shm
    );
    assert_eq!(
        check_hosts(TransportChoice::Auto, [0; 3]).kind(0, 2),
        TransportKind::Shm
    );
    assert_eq!(
        check_hosts(TransportChoice::Tcp, [0, 1, 2]).kind(0, 2),
        TransportKind::Tcp
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
fn ranks_with_one_endpoint_are_refused() {
    let shared = endpoint(TransportChoice::Loopback);
    let store = MemoryStore::new();
    let never = AtomicBool::new(false);
    let visit = |rank| {
        meet(
            &shared,
            &store,
            rank,
            2,
            GroupTerms::default(),
            soon(5000),
            &never,
        )
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| visit(1));
        for result in [visit(0), second.join().unwrap()] {
            let error = result.unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("ranks 0 and 1 have one endpoint"),
                "{error}"
            );
        }
    });
}

#[test]
fn missing_ranks_are_named() {
    let store = MemoryStore::new();
    let lonely = endpoint(TransportChoice::Loopback);
    let never = AtomicBool::new(false);
    let error = meet(
        &lonely,
        &store,
        1,
        4,
        GroupTerms::default(),
        soon(30),
        &never,
    )
    .unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    // Rank 0 is expected first.
    assert!(error.to_string().contains("for rank 0 of 4"), "{error}");
    let store = MemoryStore::new();
    let error = meet(
        &lonely,
        &store,
        0,
        4,
        GroupTerms::default(),
        soon(30),
        &never,
    )
    .unwrap_err();
    assert!(error.to_string().contains("ranks 1, 2, 3 of 4"), "{error}");
}

#[test]
fn failing_link_leaves_time_for_the_others() {
    let now = Instant::now();
    let seconds = Duration::from_secs;
    assert_eq!(end_of_probe(now, now + seconds(300)), now + PROBE);
    assert_eq!(end_of_probe(now, now + seconds(4)), now + seconds(2));
    assert_eq!(end_of_probe(now + seconds(4), now), now + seconds(4));
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
        GroupTerms::default(),
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
    let error = meet(
        &lonely,
        &store,
        2,
        2,
        GroupTerms::default(),
        soon(30),
        &never,
    )
    .unwrap_err();
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
    // The first rank times out, but has published its size.
    meet(
        &first,
        &store,
        0,
        3,
        GroupTerms::default(),
        soon(30),
        &never,
    )
    .unwrap_err();
    let error = meet(
        &second,
        &store,
        1,
        2,
        GroupTerms::default(),
        soon(1000),
        &never,
    )
    .unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert!(error.to_string().contains("expects 3 ranks"), "{error}");
}

#[test]
fn difference_is_reported_before_all_ranks_join() {
    let store = MemoryStore::new();
    let [first, second] = [(); 2].map(|()| endpoint(TransportChoice::Loopback));
    let cancel = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            meet(
                &first,
                &store,
                0,
                3,
                GroupTerms::default(),
                soon(60_000),
                &cancel,
            )
            .unwrap_err()
        });
        let never = AtomicBool::new(false);
        let error = meet(
            &second,
            &store,
            1,
            4,
            GroupTerms::default(),
            soon(60_000),
            &never,
        )
        .unwrap_err();
        assert!(
            error
                .to_string()
                .contains("rank 0 expects 3 ranks, this rank 4"),
            "{error}"
        );
        cancel.store(true, Ordering::SeqCst);
        waits.join().unwrap();
    });
}

#[test]
fn all_ranks_get_missing_and_failing_ranks() {
    let store = MemoryStore::new();
    let endpoints = [(); 2].map(|()| endpoint(TransportChoice::Loopback));
    let never = AtomicBool::new(false);
    let visit = |rank: u32, millis| {
        let endpoint = &endpoints[rank as usize];
        meet(
            endpoint,
            &store,
            rank,
            3,
            GroupTerms::default(),
            soon(millis),
            &never,
        )
        .unwrap_err()
    };
    thread::scope(|scope| {
        let patient = scope.spawn(|| visit(1, 60_000));
        for error in [visit(0, 50), patient.join().unwrap()] {
            assert!(matches!(error, Error::Timeout { .. }), "{error}");
            assert!(
                error.to_string().contains("waiting for rank 2 of 3"),
                "{error}"
            );
        }
    });

    // Rank 1 fails while rank 2 is missing: rank 0 reads the reason when it has all keys.
    let part = PrefixStore::new("again", &store);
    let exchange = |rank| Exchange::new(&part, (rank, 3), soon(60_000), &never);
    exchange(1).call_off(&Error::Config("no memory".into()));
    exchange(2).publish(Topic::Address, vec![]).unwrap();
    let first = meet(
        &endpoints[0],
        &part,
        0,
        3,
        GroupTerms::default(),
        soon(60_000),
        &never,
    );
    for error in [
        first.unwrap_err(),
        exchange(2).read_answer(Topic::Address).unwrap_err(),
    ] {
        assert!(matches!(error, Error::Aborted { .. }), "{error}");
        assert!(error.to_string().contains("failed on rank 1: "), "{error}");
        assert!(error.to_string().contains("no memory"), "{error}");
    }
}

#[test]
fn all_ranks_get_the_differences() {
    let store = MemoryStore::new();
    let errors = thread::scope(|scope| {
        let ranks = [0, 1, 2].map(|rank| {
            let store = &store;
            scope.spawn(move || {
                let policy = Policy {
                    reproducible: rank == 1,
                    ..Policy::default()
                };
                let terms = GroupTerms {
                    policy,
                    ..GroupTerms::default()
                };
                let (endpoint, never) =
                    (endpoint(TransportChoice::Loopback), AtomicBool::new(false));
                meet(&endpoint, store, rank, 3, terms, soon(20_000), &never).unwrap_err()
            })
        });
        ranks.map(|rank| rank.join().unwrap().to_string())
    });
    let has = |rank: usize, text| assert!(errors[rank].contains(text), "{}", errors[rank]);
    has(
        0,
        "rank 1 was given the option reproducible=true, this rank reproducible=false",
    );
    has(
        1,
        "rank 0 was given the option reproducible=false, this rank reproducible=true",
    );
    has(
        2,
        "rank 1 was given the option reproducible=true, rank 0 reproducible=false",
    );
}

/// The process of rank 0 may end with its error, and the store with it.
#[test]
fn rank_0_stays_until_its_failure_is_read() {
    let (store, never) = (MemoryStore::new(), AtomicBool::new(false));
    let exchange = |rank| Exchange::new(&store, (rank, 3), soon(60_000), &never);
    // Rank 2 has not joined.
    exchange(0).publish(Topic::Address, vec![]).unwrap();
    exchange(1).publish(Topic::Address, vec![]).unwrap();
    let received = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let other = exchange(1);
            let error = other.read_answer(Topic::Address).unwrap_err();
            assert!(error.to_string().contains("failed on rank 0: no memory"));
            received.store(true, Ordering::SeqCst);
            other.call_off(&error);
        });
        exchange(0).call_off(&Error::Config("no memory".into()));
        assert!(received.load(Ordering::SeqCst));
    });
}

/// Terms with this job identity.
fn of_job(names: &[(&str, &str)]) -> GroupTerms {
    let names = names
        .iter()
        .map(|(kind, name)| (kind.to_string(), name.to_string()));
    GroupTerms {
        job: JobIdentity(names.collect()),
        ..GroupTerms::default()
    }
}

/// The results of rank 1, and of rank 0, if they belong to these jobs. A second rank 1, of rank 0's
/// job, joins after the first has got its error.
fn meet_as(first: &[(&str, &str)], second: &[(&str, &str)]) -> [Result<Meeting, Error>; 2] {
    let (store, never) = (MemoryStore::new(), AtomicBool::new(false));
    let visit = |rank, terms| {
        let endpoint = endpoint(TransportChoice::Loopback);
        meet(&endpoint, &store, rank, 2, terms, soon(20_000), &never)
    };
    thread::scope(|scope| {
        let met = scope.spawn(|| visit(0, of_job(first)));
        let other = visit(1, of_job(second));
        if other.is_err() {
            visit(1, of_job(first)).unwrap();
        }
        [met.join().unwrap(), other]
    })
}

#[test]
fn rank_of_another_job_is_refused() {
    let [met, refused] = meet_as(&[("RUN", "a")], &[("RUN", "b")]);
    let text = refused.unwrap_err().to_string();
    assert!(
        text.contains(
            "rank 0 at the rendezvous belongs to another job: it has RUN=a, this process RUN=b"
        ),
        "{text}"
    );
    met.unwrap();
    // The first name that both have decides.
    let [met, refused] = meet_as(
        &[("STEP", "1.0"), ("JOB", "1")],
        &[("STEP", "1.1"), ("JOB", "1")],
    );
    assert!(met.is_ok() && refused.is_err());
    for (first, second) in [
        (&[("STEP", "1.0"), ("JOB", "1")][..], &[("JOB", "1")][..]),
        (&[("RUN", "a"), ("JOB", "1")], &[("RUN", "a"), ("JOB", "2")]),
        (&[("RUN", "a")], &[("JOB", "1")]),
        (&[("RUN", "a")], &[]),
    ] {
        let [met, other] = meet_as(first, second);
        assert!(met.is_ok() && other.is_ok(), "{first:?} {second:?}");
    }
}

/// A store in which a key can be set again, like torch's.
struct ForgetfulStore(std::sync::Mutex<std::collections::HashMap<String, Vec<u8>>>);

impl Store for ForgetfulStore {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
        self.0.lock().unwrap().insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, key: &str, deadline: Instant, cancel: &AtomicBool) -> Result<Vec<u8>, Error> {
        loop {
            let value = self.0.lock().unwrap().get(key).cloned();
            match value {
                Some(value) => return Ok(value),
                None if cancel.load(Ordering::SeqCst) => return Err(Error::cancelled()),
                None if Instant::now() >= deadline => {
                    return Err(crate::store::key_timeout(key, Duration::ZERO));
                }
                None => thread::yield_now(),
            }
        }
    }
}

/// The errors of two processes that both join as rank 1 of 3, among `others`.
fn join_twice(store: &dyn Store, others: &[u32]) -> Vec<String> {
    thread::scope(|scope| {
        let visit = |rank: u32| {
            scope.spawn(move || {
                let (endpoint, never) = (endpoint(TransportChoice::Shm), AtomicBool::new(false));
                meet(
                    &endpoint,
                    store,
                    rank,
                    3,
                    GroupTerms::default(),
                    soon(20_000),
                    &never,
                )
            })
        };
        let others: Vec<_> = others.iter().map(|rank| visit(*rank)).collect();
        let twins = [visit(1), visit(1)].map(|twin| twin.join().unwrap());
        others
            .into_iter()
            .for_each(|other| drop(other.join().unwrap()));
        let errors = twins.into_iter().filter_map(Result::err);
        errors.map(|error| error.to_string()).collect()
    })
}

#[test]
fn duplicate_rank_is_reported_to_both() {
    let errors = join_twice(&MemoryStore::new(), &[0]);
    assert_eq!(errors.len(), 2);
    // If the second replaces the first's value, one of them may have met the others already.
    let replaced = join_twice(&ForgetfulStore(Default::default()), &[0, 2]);
    assert!(!replaced.is_empty());
    for text in errors.iter().chain(&replaced) {
        assert!(
            text.contains("rank 1 joined the rendezvous twice"),
            "{text}"
        );
    }
}

#[test]
fn failing_rank_is_reported_while_others_are_missing() {
    let never = AtomicBool::new(false);
    for failing in [0, 2] {
        let store = MemoryStore::new();
        let why = Error::Config("no memory".into());
        let texts = thread::scope(|scope| {
            let waiting = [0, 1].map(|rank| {
                let store = &store;
                scope.spawn(move || {
                    let never = AtomicBool::new(false);
                    let endpoint = endpoint(TransportChoice::Loopback);
                    let started = Instant::now();
                    let met = (rank != failing).then(|| {
                        meet(
                            &endpoint,
                            store,
                            rank,
                            4,
                            GroupTerms::default(),
                            soon(20_000),
                            &never,
                        )
                    });
                    assert!(started.elapsed() < Duration::from_secs(10));
                    met
                })
            });
            // Rank 3 never joins, so rank 0 would stay for long.
            let linger = AtomicBool::new(true);
            fail_meeting(
                &store,
                failing,
                4,
                &why,
                if failing == 0 { &linger } else { &never },
            );
            waiting.map(|rank| rank.join().unwrap())
        });
        for error in texts.into_iter().flatten() {
            let text = error.unwrap_err().to_string();
            let expected = format!("the rendezvous failed on rank {failing}: no memory");
            assert!(text.contains(&expected), "{text}");
        }
    }
}

#[test]
fn options_that_differ_are_named() {
    let store = MemoryStore::new();
    let errors = thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let store = &store;
            scope.spawn(move || {
                let terms = GroupTerms {
                    settings: [("probe".to_string(), format!("{}", rank == 1))].into(),
                    ..GroupTerms::default()
                };
                let (endpoint, never) =
                    (endpoint(TransportChoice::Loopback), AtomicBool::new(false));
                meet(&endpoint, store, rank, 2, terms, soon(20_000), &never).unwrap_err()
            })
        });
        ranks.map(|rank| rank.join().unwrap().to_string())
    });
    assert!(
        errors[0].contains("rank 1 was given the option probe=true, this rank probe=false"),
        "{}",
        errors[0]
    );
    assert!(
        errors[1].contains("rank 0 was given the option probe=false, this rank probe=true"),
        "{}",
        errors[1]
    );
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

#[test]
fn builds_with_different_layouts_are_refused() {
    let store = MemoryStore::new();
    let refused = thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let store = &store;
            scope.spawn(move || {
                let terms = GroupTerms {
                    formats: Formats {
                        messages: 7,
                        memory: 8 + u64::from(rank),
                    },
                    ..GroupTerms::default()
                };
                let (endpoint, never) =
                    (endpoint(TransportChoice::Loopback), AtomicBool::new(false));
                meet(&endpoint, store, rank, 2, terms, soon(20_000), &never).unwrap_err()
            })
        });
        ranks.map(|rank| rank.join().unwrap().to_string())
    });
    let both = [
        "rank 0 has memory layout 0000000000000008",
        "rank 1 0000000000000009",
    ];
    assert!(
        both.iter().all(|text| refused[1].contains(text)),
        "{}",
        refused[1]
    );
    assert!(
        refused[0].contains("rank 1 has memory layout"),
        "{}",
        refused[0]
    );
}

/// A transport that not every machine has is used if all ranks have it; a requested one must be the
/// same everywhere.
#[test]
fn optional_transports_are_dropped_if_missing() {
    let address = |kinds: &[(TransportKind, bool)]| {
        let mut address = endpoint(TransportChoice::Loopback).address();
        let transport = |(kind, optional): &(TransportKind, bool)| TransportAddress {
            kind: *kind,
            maps: false,
            optional: *optional,
            bytes: vec![],
        };
        address.transports = kinds.iter().map(transport).collect();
        address
    };
    let kept = |mut addresses: [EndpointAddress; 2]| {
        keep_common(&mut addresses);
        let kinds = addresses.each_ref().map(|a| a.kinds().collect::<Vec<_>>());
        (kinds, check_transports(&addresses).is_ok())
    };
    let (rdma, tcp) = (TransportKind::Rdma, TransportKind::Tcp);
    let has_device = || address(&[(rdma, true), (tcp, false)]);
    let lacks_one = || address(&[(tcp, false)]);
    let asks_for_it = || address(&[(rdma, false)]);
    let both = [vec![rdma, tcp], vec![rdma, tcp]];
    assert_eq!(kept([has_device(), has_device()]), (both, true));
    let none = [vec![tcp], vec![tcp]];
    assert_eq!(kept([lacks_one(), has_device()]), (none, true));
    assert!(!kept([asks_for_it(), has_device()]).1);
}
