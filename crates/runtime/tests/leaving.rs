//! Tests of ranks that leave immediately after the creation of their group.

mod ranks;

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ranks::case::Case;
use ranks::requested::{ALL_REDUCE, run};
use ranks::{Ranks, Setup, create};
use weft_runtime::{Error, GroupTerms, MemoryStore, TransportChoice, meet};
use weft_transport_testing::strict;

fn setups(ranks: u32) -> [Setup; 5] {
    let hosts: Vec<u32> = (0..ranks).map(|rank| rank / 2).collect();
    [
        TransportChoice::Loopback.into(),
        TransportChoice::Shm.into(),
        TransportChoice::Tcp.into(),
        TransportChoice::Custom(strict).into(),
        Setup::on_hosts(&hosts),
    ]
}

#[test]
fn all_ranks_may_leave_immediately() {
    for ranks in 1..=7 {
        for setup in setups(ranks) {
            for _ in 0..10 {
                Ranks::run_immediately(setup.clone(), ranks, |_| ());
            }
        }
    }
}

#[test]
fn one_rank_may_leave_before_the_others_call() {
    for ranks in 2..=5 {
        for setup in setups(ranks) {
            for leaver in 0..ranks {
                // An operation that fails breaks the group, also for ranks that are still making
                // it.
                let made = Barrier::new(ranks as usize - 1);
                let outcomes = Ranks::run_immediately(setup.clone(), ranks, |group| {
                    let stays = group.rank() != leaver;
                    // The goodbye arrives before or during the call.
                    std::thread::sleep(Duration::from_micros(u64::from(leaver) * 300));
                    stays.then(|| {
                        made.wait();
                        run(group, &Case::simple(ALL_REDUCE, 100))
                    })
                });
                for outcome in outcomes.into_iter().flatten() {
                    let error = outcome.unwrap_err();
                    assert!(matches!(error, Error::PeerLost { .. }), "{error}");
                }
            }
        }
    }
}

#[test]
fn rank_that_meets_without_making_the_group_is_named() {
    let mut setup = Setup::from(TransportChoice::Shm);
    setup.timeout = Duration::from_millis(300);
    let store = MemoryStore::new();
    let error = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let endpoint = setup.endpoint(1);
            let (terms, never) = (GroupTerms::default(), AtomicBool::new(false));
            let soon = Instant::now() + Duration::from_secs(60);
            meet(&endpoint, &store, 1, 2, terms, soon, &never).unwrap();
            endpoint
        });
        let error = create(&setup, &store, 0, 2).err();
        // Its endpoint existed all the time.
        drop(other.join().unwrap());
        error.unwrap()
    });
    let text = error.to_string();
    assert!(matches!(error, Error::Timeout { .. }), "{text}");
    assert!(
        text.contains("creation of group test") && text.contains("rank 1"),
        "{text}"
    );
}
