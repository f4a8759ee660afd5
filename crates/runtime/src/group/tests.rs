use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use weft_algorithms::{MemoryClass, ScheduleRequest, Selection, Sizes, Topology, family, select};
use weft_bootstrap::{Endpoint, EndpointOptions, MemoryStore, TransportChoice};
use weft_call::{Call, Counts, Op, Tiling};
use weft_channel::ControlMessage;
use weft_kernels::DType;
use weft_schedule::{Collective, Schedule};
use weft_transport::{LinkError, TransportKind};

use super::*;
use crate::Error;
use crate::execution::GroupFailure;
use crate::progress::NO_OPERATION;
use crate::selection::NAMED;

/// An endpoint that only this host can reach.
pub(crate) fn endpoint(transport: TransportChoice) -> Arc<Endpoint> {
    let options = EndpointOptions {
        transport,
        interface: Some("127.0.0.1".into()),
        pool_bytes: 64 << 20,
        ..EndpointOptions::default()
    };
    Endpoint::new(options).unwrap()
}

fn create(endpoint: Arc<Endpoint>, store: &MemoryStore, rank: u32, size: u32) -> Arc<Group> {
    let (options, never) = (GroupOptions::default(), AtomicBool::new(false));
    Group::create(endpoint, store, rank, size, options, &never).unwrap()
}

/// Runs `body` on every rank of a group that shares memory.
fn ranks(size: u32, body: impl Fn(&Group) + Sync) {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (store, body) = (&store, &body);
            scope.spawn(move || {
                let group = create(endpoint(TransportChoice::Loopback), store, rank, size);
                body(&group);
                // A rank that leaves earlier would be reported as lost.
                call(&group, Collective::Barrier, None);
            });
        }
    });
}

/// Calls a collective on a few elements. Returns whether it ran inline.
fn call(group: &Group, collective: Collective, algorithm: Option<&str>) -> bool {
    let count = 5;
    let mut memory = vec![1.0_f32; 2 * count * group.size() as usize];
    let (input, output) = memory.split_at_mut(count * group.size() as usize);
    let call = Call {
        collective,
        dtype: DType::F32,
        op: Op::Sum,
        input: input.as_ptr().cast(),
        output: output.as_mut_ptr().cast(),
        counts: Counts::Equal(count as u64),
        priority: 0,
        timeout: Some(Duration::from_secs(60)),
        algorithm: algorithm.map(str::to_owned),
        tiling: Tiling::default(),
        wire: None,
    };
    let path = group.calling_thread.as_ref().unwrap();
    let before = path.called();
    // SAFETY: both parts have room for a block of every rank, and are kept until the operation has
    // ended.
    let work = unsafe { group.issue(call, false) }.unwrap();
    assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
    path.called() > before
}

#[test]
fn named_algorithms_run_on_the_calling_thread() {
    let root = 1;
    let collectives = [
        Collective::AllReduce,
        Collective::Reduce { root },
        Collective::Broadcast { root },
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::AllToAll,
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::Barrier,
    ];
    for size in [2, 3, 6] {
        ranks(size, |group| {
            for collective in collectives {
                let topology = Topology::flat(size);
                let family = family(collective.name(), &topology);
                for name in family.iter().map(Selection::name) {
                    for spelt in [name.clone(), name.replace(", ", " ,"), name] {
                        let inline = call(group, collective, Some(&spelt));
                        assert!(inline, "{collective} by {spelt} on {size} ranks");
                    }
                }
            }
        });
    }
}

/// Every rank's program of an algorithm for all-reduce.
fn schedules(name: &str, ranks: u32) -> Vec<Schedule> {
    let program = |rank| {
        select("all-reduce", name).unwrap().build(&ScheduleRequest {
            collective: Collective::AllReduce,
            ranks,
            rank,
            memory: MemoryClass::Ordinary,
            sizes: Sizes::Equal,
            topology: &Topology::flat(ranks),
            parts: &[],
        })
    };
    (0..ranks).map(program).collect()
}

/// The end of a link is handled after the peer's earlier messages.
#[test]
fn failure_is_reported_before_the_links_end() {
    for transport in [TransportChoice::Loopback, TransportChoice::Tcp] {
        let store = MemoryStore::new();
        let make = |rank| create(endpoint(transport), &store, rank, 2);
        let (stays, leaves) = std::thread::scope(|scope| {
            let other = scope.spawn(|| make(1));
            (make(0), other.join().unwrap())
        });
        stays.engine.with(|state, finished| {
            leaves.abort("enough");
            leaves.engine.endpoint().close();
            let failure = GroupFailure::Link(1, LinkError::Left);
            state.on_operation_failure(stays.id, NO_OPERATION, failure, finished);
        });
        let error = stays.broken().unwrap().to_string();
        assert!(error.contains("enough"), "{transport:?}: {error}");
    }
}

/// A process that is not in a group cannot break it.
#[test]
fn messages_of_nonmembers_are_ignored() {
    let make = || endpoint(TransportChoice::Loopback);
    let (members, stranger, store) = ([make(), make()], make(), MemoryStore::new());
    let (far, never) = (
        Instant::now() + Duration::from_secs(60),
        AtomicBool::new(false),
    );
    std::thread::scope(|scope| {
        for (rank, endpoint) in (0..).zip(&members) {
            let (store, stranger, never) = (&store, &stranger, &never);
            scope.spawn(move || {
                let group = create(endpoint.clone(), store, rank, 2);
                let kind = TransportKind::Loopback;
                let link = stranger
                    .link(&endpoint.address(), kind, far, never)
                    .unwrap();
                let claim = ControlMessage::Broken {
                    group: group.id,
                    error: Error::PeerLost {
                        rank: Some(1 - rank),
                        host: "somewhere".into(),
                        detail: "as a stranger says".into(),
                    },
                    origin: None,
                    limit: 0,
                };
                link.message(&claim.encode()).unwrap();
                group.engine.with(|state, finished| {
                    state.notified = true;
                    state.pass(finished);
                });
                assert_eq!(group.broken(), None);
                call(&group, Collective::Barrier, None);
            });
        }
    });
}

/// After a temporary cut, the other side was the first to report a loss.
#[test]
fn peer_that_reports_us_lost_is_lost() {
    ranks(3, |group| {
        let seen_here = |lost: u32| {
            let error = Error::PeerLost {
                rank: Some(lost),
                host: "there".into(),
                detail: "it was silent".into(),
            };
            group.engine.with(|state, _| {
                let group = state.groups.get(&group.id).unwrap();
                group.as_seen_here(error, Some((group.connections.rank + 1) % 3))
            })
        };
        let (own, reporter) = (group.rank(), (group.rank() + 1) % 3);
        let Error::PeerLost { rank, detail, .. } = seen_here(own) else {
            panic!("not about a lost peer");
        };
        assert_eq!(rank, Some(reporter));
        assert_eq!(detail, "it reported this rank as lost: it was silent");
        let third = (own + 2) % 3;
        assert!(
            seen_here(third)
                .to_string()
                .starts_with(&format!("lost rank {third} on there: it was"))
        );
    });
}

#[test]
fn names_run_inline_up_to_a_limit_and_defaults_always() {
    ranks(2, |group| {
        let names: Vec<String> = (0..NAMED + 3).map(|i| format!("mine-{i}")).collect();
        for _ in 0..2 {
            for (place, name) in names.iter().enumerate() {
                group.add_schedule(name, schedules("ring", 2)).unwrap();
                let inline = call(group, Collective::AllReduce, Some(name));
                assert_eq!(inline, place < NAMED, "{name}");
            }
        }
        for name in [None, Some("direct"), Some("slice-reduce")] {
            assert!(call(group, Collective::AllReduce, name), "{name:?}");
        }
        assert!(!call(group, Collective::AllReduce, Some("ring")));
    });
}
