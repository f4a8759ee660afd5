//! Tests of ranks that leave immediately after the creation of their group.

mod ranks;

use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use ranks::asked::{ALL_REDUCE, run};
use ranks::case::Case;
use ranks::{Ranks, Setup, create};
use weft_runtime::{Error, MemoryStore, Terms, TransportChoice, meet};
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
fn all_at_once() {
    for ranks in 1..=7 {
        for setup in setups(ranks) {
            for _ in 0..10 {
                Ranks::run_at_once(setup.clone(), ranks, |_| ());
            }
        }
    }
}

#[test]
fn one_before_the_others_have_done_anything() {
    for ranks in 2..=5 {
        for setup in setups(ranks) {
            for leaver in 0..ranks {
                // An operation that fails breaks the group, also for those who are still making it.
                let made = Barrier::new(ranks as usize - 1);
                let outcomes = Ranks::run_at_once(setup.clone(), ranks, |group| {
                    let stays = group.rank() != leaver;
                    // Sometimes the goodbye is there before the call, sometimes it comes amid.
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
fn who_meets_but_makes_no_group_is_named() {
    let mut setup = Setup::from(TransportChoice::Shm);
    setup.timeout = Duration::from_millis(300);
    let store = MemoryStore::new();
    let error = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let endpoint = setup.endpoint(1);
            let (terms, never) = (Terms::default(), AtomicBool::new(false));
            let soon = Instant::now() + Duration::from_secs(60);
            meet(&endpoint, &store, 1, 2, terms, soon, &never).unwrap();
            endpoint
        });
        let error = create(&setup, &store, 0, 2).err();
        // It was there all the time.
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
