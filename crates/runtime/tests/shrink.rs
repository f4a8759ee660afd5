//! Tests of groups of surviving ranks.

mod ranks;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use ranks::{Rng, Setup, all_reduce, fresh_seed};
use weft_runtime::{Endpoint, Error, Group, GroupOptions, MemoryStore, TransportChoice};
use weft_transport_testing::strict;

const TRANSPORTS: [TransportChoice; 4] = [
    TransportChoice::Loopback,
    TransportChoice::Shm,
    TransportChoice::Tcp,
    TransportChoice::Custom(strict),
];
/// The time within which survivors of an ended process must have their group.
const SOON: Duration = Duration::from_secs(5);

/// A rank: its endpoint, whose closing is the rank's end, and its group.
type Rank<'a> = (&'a Arc<Endpoint>, Arc<Group>);

/// Makes a group, and runs `body` on each rank once all have it.
fn run<T: Send>(
    setup: impl Into<Setup>,
    size: u32,
    timeout: Duration,
    body: impl Fn(Rank<'_>) -> T + Sync,
) -> Vec<T> {
    let (setup, store, made) = (
        setup.into(),
        MemoryStore::new(),
        Barrier::new(size as usize),
    );
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|rank| {
                let (setup, store, made, body) = (&setup, &store, &made, &body);
                scope.spawn(move || {
                    let (endpoint, never) = (setup.endpoint(rank), AtomicBool::new(false));
                    let options = GroupOptions {
                        timeout,
                        name: "test".into(),
                        ..GroupOptions::default()
                    };
                    let group = Group::create(endpoint.clone(), store, rank, size, options, &never);
                    made.wait();
                    body((&endpoint, group.unwrap()))
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn until_it_fails(group: &Group) {
    while all_reduce(group).is_ok() {}
}

const LONG: Duration = Duration::from_secs(8);

#[test]
fn vote_counts_only_if_it_is_unanimous() {
    for transport in TRANSPORTS {
        for (noes, expected) in [(vec![], true), (vec![2], false), (vec![0, 1, 2], false)] {
            run(transport, 3, LONG, |(_, group)| {
                let vote = !noes.contains(&group.rank());
                let (same, unanimous) = group.shrink_with_vote("voted", vote, None).unwrap();
                assert_eq!((same.size(), unanimous), (3, expected));
                all_reduce(&same).unwrap();
            });
        }
    }
}

#[test]
fn complete_group_shrinks_to_itself_once() {
    for transport in TRANSPORTS {
        run(transport, 3, LONG, |(_, group)| {
            let same = group.shrink("same", None).unwrap();
            assert_eq!((same.rank(), same.size()), (group.rank(), 3));
            assert_eq!((same.name(), same.hosts()), ("same", group.hosts()));
            all_reduce(&same).unwrap();
            all_reduce(&group).unwrap();
            let again = group.shrink("again", None).map(|_| ()).unwrap_err();
            assert!(matches!(again, Error::Config(_)), "{again}");
        });
    }
}

#[test]
fn survivors_make_a_group_after_any_rank_ended() {
    for transport in TRANSPORTS {
        for ended in 0..4 {
            let worked = Barrier::new(4);
            run(transport, 4, LONG, |(endpoint, group)| {
                all_reduce(&group).unwrap();
                worked.wait();
                if group.rank() == ended {
                    return endpoint.close();
                }
                until_it_fails(&group);
                let since = Instant::now();
                let left = group.shrink("left", None).unwrap();
                assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
                let expected: Vec<u32> = (0..4).filter(|rank| *rank != ended).collect();
                assert_eq!(group.ranks_of(&left), expected);
                assert_eq!(expected[left.rank() as usize], group.rank());
                group.close();
                (0..10).for_each(|_| all_reduce(&left).unwrap());
            });
        }
    }
}

#[test]
fn groups_shrink_until_one_rank_is_left() {
    for transport in TRANSPORTS {
        // A rank that ends before others have their group is left out of it.
        let made = [4, 3, 2, 1].map(Barrier::new);
        run(transport, 5, LONG, |(endpoint, mut group)| {
            let number = group.rank();
            for lost in 0..4 {
                if number == lost {
                    return endpoint.close();
                }
                until_it_fails(&group);
                group = group.shrink("left", None).unwrap();
                assert_eq!(group.size(), 4 - lost);
                made[lost as usize].wait();
            }
        });
    }
}

#[test]
fn ranks_that_end_during_shrink_are_left_out() {
    let seed = fresh_seed();
    for (round, transport) in (0..).zip(TRANSPORTS.into_iter().cycle().take(12)) {
        let mut rng = Rng::new(seed + round);
        let [first, second] = [rng.below(5) as u32, rng.below(5) as u32];
        let delay = Duration::from_micros(rng.below(3000) as u64);
        let survivors = 5 - if first == second { 1 } else { 2 };
        // If a call fails on some ranks, all shrink.
        let (together, failures) = (Barrier::new(survivors), AtomicUsize::new(0));
        let sizes = run(transport, 5, LONG, |(endpoint, group)| {
            if group.rank() == first {
                endpoint.close();
                return None;
            }
            thread::scope(|scope| {
                if group.rank() == second {
                    scope.spawn(|| {
                        thread::sleep(delay);
                        endpoint.close();
                    });
                }
                if group.rank() == second {
                    // It is not a member any more, which it does not know.
                    let _ = group.shrink("left", Some(Duration::from_secs(1)));
                    return None;
                }
                let left = group.shrink("left", None);
                // It may have ended after they had their group.
                let mut left = left.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                let mut seen = 0;
                loop {
                    failures.fetch_add(all_reduce(&left).is_err().into(), Ordering::SeqCst);
                    together.wait();
                    let failed = failures.load(Ordering::SeqCst);
                    together.wait();
                    if failed == seen {
                        return Some(left.size() as usize);
                    }
                    seen = failed;
                    left = left.shrink("left", None).unwrap();
                }
            })
        });
        let sizes: Vec<usize> = sizes.into_iter().flatten().collect();
        assert!(
            sizes
                .iter()
                .all(|size| *size == survivors || *size == survivors + 1),
            "seed {seed}: {sizes:?}"
        );
        assert_eq!(sizes.len(), survivors, "seed {seed}");
    }
}

#[test]
fn rank_that_calls_too_late_is_left_out() {
    for transport in TRANSPORTS {
        let settled = Barrier::new(3);
        run(transport, 3, LONG, |(_, group)| {
            if group.rank() == 0 {
                settled.wait();
                let error = group.shrink("late", None).map(|_| ()).unwrap_err();
                let text = error.to_string();
                assert!(
                    text.contains("ranks 1, 2 continue without rank 0"),
                    "{text}"
                );
                return;
            }
            let left = group.shrink("left", Some(Duration::from_secs(2))).unwrap();
            assert_eq!(group.ranks_of(&left), [1, 2]);
            // They must answer although they have left the group.
            group.close();
            all_reduce(&left).unwrap();
            settled.wait();
            thread::sleep(Duration::from_millis(300));
        });
    }
}

#[test]
fn of_two_living_ranks_only_rank_0_may_continue() {
    for lone in [0, 1] {
        let settled = Barrier::new(2);
        run(TransportChoice::Shm, 2, LONG, |(_, group)| {
            if group.rank() == lone {
                let left = group.shrink("left", Some(Duration::from_secs(1)));
                match (lone, left) {
                    (0, Ok(left)) => assert_eq!(left.size(), 1),
                    (1, Err(error @ Error::Timeout { .. })) => {
                        assert!(error.to_string().contains("rank 0 on "), "{error}");
                    }
                    (_, other) => panic!("{:?}", other.map(|left| left.size())),
                }
            }
            settled.wait();
        });
    }
}

#[test]
fn rank_that_closed_the_group_takes_no_part() {
    for transport in TRANSPORTS {
        let settled = Barrier::new(3);
        run(transport, 3, LONG, |(_, group)| {
            if group.rank() == 1 {
                group.close();
            } else {
                let since = Instant::now();
                let left = group.shrink("left", None).unwrap();
                assert_eq!(group.ranks_of(&left), [0, 2]);
                assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
                all_reduce(&left).unwrap();
            }
            settled.wait();
        });
    }
}
