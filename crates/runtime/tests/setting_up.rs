//! Tests of set-up that fails on one rank: it soon fails on all ranks, with that rank's error.

mod ranks;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use ranks::Setup;
use ranks::case::Case;
use ranks::requested::{ALL_REDUCE, run};
use weft_runtime::{
    Endpoint, Error, Group, GroupOptions, MemoryStore, SplitOptions, TransportChoice, interruptible,
};

const TRANSPORTS: [TransportChoice; 2] = [TransportChoice::Shm, TransportChoice::Tcp];
/// The time within which all ranks must get the error: a second, but on a busy machine.
const SOON: Duration = Duration::from_secs(5);
/// The timeout, which no rank should reach.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Runs every rank on a thread, with an endpoint that is closed when all ranks have ended.
fn ranks<T: Send>(
    transport: TransportChoice,
    size: u32,
    body: impl Fn(u32, Arc<Endpoint>, &MemoryStore, &Barrier) -> T + Sync,
) -> Vec<T> {
    let (store, over) = (MemoryStore::new(), Barrier::new(size as usize));
    let setup = Setup::from(transport);
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..size)
            .map(|rank| {
                let (store, over, setup, body) = (&store, &over, &setup, &body);
                scope.spawn(move || {
                    let endpoint = setup.endpoint(rank);
                    let result = body(rank, endpoint.clone(), store, over);
                    over.wait();
                    result
                })
            })
            .collect();
        let results = started.into_iter().map(|rank| rank.join().unwrap());
        results.collect()
    })
}

fn create(
    endpoint: Arc<Endpoint>,
    store: &MemoryStore,
    rank: u32,
    size: u32,
) -> Result<Arc<Group>, Error> {
    let options = GroupOptions {
        timeout: TIMEOUT,
        ..GroupOptions::default()
    };
    let never = AtomicBool::new(false);
    Group::create(endpoint, store, rank, size, options, &never)
}

/// Permanently allocates all memory of a pool except for at most `but` bytes.
fn exhaust(endpoint: &Endpoint, but: u64) {
    let mut bytes = endpoint.pool().available();
    while bytes > but {
        if endpoint.pool().allocate(bytes, 1).is_err() {
            bytes /= 2;
        }
    }
}

fn all_reduce(group: &Group) -> Result<(), Error> {
    run(group, &Case::simple(ALL_REDUCE, 100)).map(drop)
}

/// Checks every rank's error, and that it was returned soon.
fn check(outcomes: &[(Result<(), Error>, Duration)], words: &[&str]) {
    for (rank, (result, after)) in outcomes.iter().enumerate() {
        let text = result.as_ref().unwrap_err().to_string();
        assert!(*after < SOON, "rank {rank} after {after:?}: {text}");
        for word in words {
            assert!(text.contains(word), "rank {rank}: {text}");
        }
    }
}

#[test]
fn failed_symmetric_memory_fails_on_all_and_keeps_the_group() {
    for transport in TRANSPORTS {
        for size in [2, 4] {
            let outcomes = ranks(transport, size, |rank, endpoint, store, over| {
                let group = create(endpoint, store, rank, size).unwrap();
                over.wait();
                let began = Instant::now();
                // More than an address space has.
                let bytes = if rank == 1 { u64::MAX / 2 } else { 1 << 16 };
                let result = group.symmetric(bytes).map(drop);
                let after = began.elapsed();
                // The failed call does not shift the numbers of later ones.
                let next = group.symmetric(1 << 16).unwrap();
                all_reduce(&group).unwrap();
                drop(next);
                over.wait();
                (result, after)
            });
            check(&outcomes[..1], &["rank 1: cannot make", "symmetric memory"]);
            check(&outcomes[1..2], &["cannot make", "symmetric memory"]);
            check(&outcomes[2..], &["rank 1: cannot make", "symmetric memory"]);
        }
    }
}

#[test]
fn interrupted_symmetric_memory_fails_later_callers() {
    let outcomes = ranks(TransportChoice::Shm, 2, |rank, endpoint, store, over| {
        let group = create(endpoint, store, rank, 2).unwrap();
        over.wait();
        if rank == 1 {
            over.wait();
        }
        let began = Instant::now();
        let result = interruptible(|| true, || group.symmetric(1 << 16).map(drop));
        let after = began.elapsed();
        if rank == 0 {
            over.wait();
        }
        all_reduce(&group).unwrap();
        (result, after)
    });
    check(&outcomes[..1], &["interrupted"]);
    check(&outcomes[1..], &["rank 0: interrupted"]);
}

#[test]
fn failed_split_breaks_the_new_group_on_all() {
    for transport in TRANSPORTS {
        for size in [2, 4] {
            let outcomes = ranks(transport, size, |rank, endpoint, store, over| {
                let world = create(endpoint.clone(), store, rank, size).unwrap();
                all_reduce(&world).unwrap();
                if rank == 1 {
                    exhaust(&endpoint, 4096);
                }
                over.wait();
                let began = Instant::now();
                let all: Vec<u32> = (0..size).collect();
                let made = world.split(&all, "all", SplitOptions::default());
                let result = made.and_then(|group| all_reduce(&group.unwrap()));
                let after = began.elapsed();
                over.wait();
                all_reduce(&world).unwrap();
                (result, after)
            });
            check(&outcomes, &["weft's pool has no room"]);
            for (result, _) in outcomes.iter().take(1).chain(&outcomes[2..]) {
                let text = result.as_ref().unwrap_err().to_string();
                assert!(text.contains("rank 1 failed"), "{text}");
            }
        }
    }
}

#[test]
fn operation_without_pool_memory_breaks_the_group() {
    for transport in TRANSPORTS {
        for size in [2, 4] {
            let outcomes = ranks(transport, size, |rank, endpoint, store, over| {
                let group = create(endpoint.clone(), store, rank, size).unwrap();
                all_reduce(&group).unwrap();
                if rank == 1 {
                    exhaust(&endpoint, 64 << 10);
                }
                over.wait();
                // Operations that fit still work.
                all_reduce(&group).unwrap();
                over.wait();
                let began = Instant::now();
                let result = run(&group, &Case::simple(ALL_REDUCE, 1 << 18)).map(drop);
                (result, began.elapsed())
            });
            check(&outcomes, &["weft's pool has no room", "WEFT_POOL_BYTES"]);
            check(&outcomes[..1], &["rank 1 failed"]);
        }
    }
}

#[test]
fn failed_group_creation_fails_on_all_ranks() {
    for transport in TRANSPORTS {
        for size in [2, 4] {
            for but in [4096, 20 << 20] {
                let outcomes = ranks(transport, size, |rank, endpoint, store, over| {
                    if rank == 1 {
                        exhaust(&endpoint, but);
                    }
                    over.wait();
                    let began = Instant::now();
                    let made = create(endpoint, store, rank, size);
                    let result = made.and_then(|group| all_reduce(&group));
                    (result, began.elapsed())
                });
                if but == 4096 {
                    check(&outcomes, &["weft's pool has no room"]);
                    check(&outcomes[..1], &["rank 1 failed"]);
                }
                assert!(
                    outcomes.iter().all(|(_, after)| *after < SOON),
                    "{outcomes:?}"
                );
            }
        }
    }
}

#[test]
fn cancelled_meeting_fails_ranks_that_join_later() {
    let outcomes = ranks(TransportChoice::Shm, 2, |rank, endpoint, store, over| {
        let cancel = AtomicBool::new(rank == 0);
        if rank == 1 {
            over.wait();
        }
        let began = Instant::now();
        let options = GroupOptions {
            timeout: TIMEOUT,
            ..GroupOptions::default()
        };
        let made = Group::create(endpoint, store, rank, 2, options, &cancel);
        if rank == 0 {
            over.wait();
        }
        (made.map(drop), began.elapsed())
    });
    check(&outcomes[..1], &["cancelled"]);
    check(&outcomes[1..], &["rank 0", "cancelled"]);
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

#[test]
fn waiting_for_symmetric_memory_can_be_interrupted() {
    let outcomes = ranks(TransportChoice::Tcp, 3, |rank, endpoint, store, over| {
        let world = create(endpoint, store, rank, 3).unwrap();
        over.wait();
        let began = Instant::now();
        let interrupted = || INTERRUPTED.swap(true, Ordering::SeqCst);
        // Ranks 1 and 2 never call it.
        let result = match rank {
            0 => interruptible(interrupted, || world.symmetric(1 << 12).map(drop)),
            _ => Ok(()),
        };
        let after = began.elapsed();
        over.wait();
        (result, after)
    });
    check(&outcomes[..1], &["interrupted"]);
}
