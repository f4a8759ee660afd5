//! Test of listening TCP ports: an endpoint has none while all ranks that it meets share memory.
//! One test only, since it examines the sockets of the process.

mod ranks;

use std::collections::HashSet;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ranks::Setup;
use ranks::case::Case;
use ranks::requested::{ALL_REDUCE, run};
use weft_runtime::{Endpoint, Group, GroupOptions, MemoryStore};

/// The TCP sockets of this process that listen.
fn listening() -> usize {
    /// The kernel's code for a listening socket.
    const LISTEN: &str = "0A";
    let listed = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let inodes: HashSet<String> = (listed.lines().skip(1))
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields[3] == LISTEN)
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
    let own = targets.filter(|target| inodes.contains(&*target.to_string_lossy()));
    own.count()
}

/// A group of these endpoints, in which each rank takes part in a sum.
fn group_of(endpoints: &[Arc<Endpoint>]) -> Vec<Arc<Group>> {
    let (store, never) = (MemoryStore::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..)
            .zip(endpoints)
            .map(|(rank, endpoint)| {
                let (store, never) = (&store, &never);
                scope.spawn(move || {
                    let size = endpoints.len() as u32;
                    let options = GroupOptions::default();
                    let group =
                        Group::create(endpoint.clone(), store, rank, size, options, never).unwrap();
                    run(&group, &Case::simple(ALL_REDUCE, 100_000)).unwrap();
                    group
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn endpoint_has_no_port_while_all_share_memory() {
    let setup = Setup::on_hosts(&[0, 0, 1]);
    let endpoints: Vec<_> = (0..3).map(|rank| setup.endpoint(rank)).collect();
    assert_eq!(listening(), 3, "they may be about to meet");
    let [one_host, alone] = [&endpoints[..2], &endpoints[2..]].map(group_of);
    assert_eq!(listening(), 0);
    // Another meeting, with a rank that shares no memory: they listen again, at other ports.
    let all = group_of(&endpoints);
    assert_eq!(listening(), 3);
    // A member of such a group continues to listen, regardless of later meetings.
    let again = group_of(&endpoints[..2]);
    assert_eq!(listening(), 3);
    drop([one_host, alone, all, again]);
}
