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
use crate::selection::NAMED;

/// One that this host alone can reach.
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

/// What every rank of a group that shares memory does.
fn ranks(size: u32, body: impl Fn(&Group) + Sync) {
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        for rank in 0..size {
            let (store, body) = (&store, &body);
            scope.spawn(move || {
                let group = create(endpoint(TransportChoice::Loopback), store, rank, size);
                body(&group);
                // Who leaves earlier is missed.
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
    // SAFETY: both parts of the memory have room for a block of every rank, and are kept until the
    // operation is over.
    let work = unsafe { group.issue(call, false) }.unwrap();
    assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
    path.called() > before
}

#[test]
fn whatever_calls_name_runs_inline() {
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

/// Whoever meets the end of a link hears first what the peer has said before.
#[test]
fn who_has_left_over_a_failure_is_not_what_is_told() {
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
            state.fail(stays.id, u64::MAX, failure, finished);
        });
        let told = stays.broken().unwrap().to_string();
        assert!(told.contains("enough"), "{transport:?}: {told}");
    }
}

/// Who is not in a group cannot break it, whatever it claims to have seen.
#[test]
fn strangers_are_not_believed() {
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

/// A line was cut for a while, and the other side was quicker to give this rank up.
#[test]
fn who_hears_that_it_is_lost_has_lost_the_one_who_says_so() {
    ranks(3, |group| {
        let heard = |lost: u32| {
            let error = Error::PeerLost {
                rank: Some(lost),
                host: "there".into(),
                detail: "it was silent".into(),
            };
            group.engine.with(|state, _| {
                let group = state.groups.get(&group.id).unwrap();
                group.as_heard_here(error, Some((group.connections.rank + 1) % 3))
            })
        };
        let (own, teller) = (group.rank(), (group.rank() + 1) % 3);
        let Error::PeerLost { rank, detail, .. } = heard(own) else {
            panic!("not about a lost peer");
        };
        assert_eq!(rank, Some(teller));
        assert_eq!(detail, "it has given up this rank: it was silent");
        let third = (own + 2) % 3;
        assert!(
            heard(third)
                .to_string()
                .starts_with(&format!("lost rank {third} on there: it was"))
        );
    });
}

#[test]
fn as_many_names_run_inline_as_there_is_room_for_and_what_is_chosen_always() {
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
