//! Tests of the levels that a group derives from the domains of its ranks.

use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use weft_bootstrap::{
    Domain, GroupTerms, Meeting, MemoryStore, Policy, Store, TransportChoice, meet,
};
use weft_call::Error;

use super::{GroupTraits, Site};
use crate::group::tests::endpoint;

/// Every rank's meeting, where rank r uses `choices[r]` and is in the r-th domain.
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
                scope.spawn(move || {
                    meet(
                        endpoint,
                        store,
                        rank,
                        size,
                        terms,
                        Instant::now() + Duration::from_secs(20),
                        &never,
                    )
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The levels inside hosts that ranks agree on, if rank r is in the r-th domain.
fn found(transport: TransportChoice, domains: &[(Option<u32>, Option<u32>)]) -> Vec<Vec<u32>> {
    let domain = |(cache, node): &(Option<u32>, Option<u32>)| Domain {
        cache: *cache,
        node: *node,
    };
    let domains: Vec<Domain> = domains.iter().map(domain).collect();
    let choices = vec![transport; domains.len()];
    let results = meet_within(&choices, &domains, &MemoryStore::new());
    let levels = results.into_iter().map(|meeting| {
        let (topology, setting) = GroupTraits::of(&meeting.unwrap(), &Policy::default()).unwrap();
        let site = Site {
            rank: 0,
            ranks: setting.ranks,
            topology,
        };
        site.domains()
    });
    let levels: Vec<_> = levels.collect();
    assert!(levels.iter().all(|found| *found == levels[0]));
    levels.into_iter().next().unwrap()
}

#[test]
fn domains_that_ranks_report_become_levels() {
    let shm = TransportChoice::Shm;
    let at = |cache, node| (Some(cache), Some(node));
    // Caches in nodes, nodes that share a cache, and domains that do not nest.
    assert_eq!(
        found(shm, &[at(0, 0), at(0, 0), at(2, 0), at(4, 1), at(4, 1)]),
        [[0, 0, 2, 3, 3], [0, 0, 0, 3, 3]]
    );
    assert_eq!(
        found(shm, &[at(0, 0), at(0, 0), at(0, 1), at(6, 2)]),
        [[0, 0, 2, 3], [0, 0, 0, 3]]
    );
    assert_eq!(
        found(shm, &[at(0, 0), at(0, 1), at(6, 1), at(6, 2)]),
        [[0, 0, 2, 2]]
    );
    // No levels: a rank may run in several domains, each rank has a separate one, or all share one.
    assert!(found(shm, &[at(0, 0), at(0, 0), (None, Some(1)), (Some(6), None)]).is_empty());
    assert!(found(shm, &[at(0, 0), at(2, 1)]).is_empty());
    assert!(found(shm, &[at(0, 0); 3]).is_empty());
    // Without shared memory, every rank is a separate host.
    assert!(found(TransportChoice::Tcp, &[at(0, 0), at(0, 0), at(2, 1)]).is_empty());
}
