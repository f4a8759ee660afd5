//! Tests of groups over RDMA verbs: every algorithm over one device and over two, together with
//! shared memory, and with the same bits as over TCP. They need devices: `make test-rdma`.

mod ranks;

use std::sync::Mutex;

use ranks::arena::{Arena, perform};
use ranks::case::{BlockCounts, Case};
use ranks::choices::{ForcedChoice, choices};
use ranks::judge::{judged, named};
use ranks::registering::{
    device_registration_may_end_while_it_is_sent, devices_memory_is_sent_by_its_file,
    large_sums_are_registered_while_they_are_sent, messages_and_puts_are_sent_in_place,
    registration_may_end_while_its_memory_is_sent, sums_are_sent_in_place,
};
use ranks::{Ranks, Rng, Setup, all_reduce, fresh_seed};
use weft_kernels::DType;
use weft_runtime::{
    Endpoint, EndpointOptions, Error, Group, Op, SplitOptions, Symmetric, TransportChoice,
};
use weft_schedule::Collective;
use weft_transport::TransportKind;

/// Messages of an emulated machine are so slow that a group has as many slots as for links with
/// delay: up to 270 MB of each pool.
const POOL_BYTES: u64 = 512 << 20;

fn over(transport: TransportChoice) -> Setup {
    Setup {
        pool_bytes: POOL_BYTES,
        ..transport.into()
    }
}

fn on_hosts(hosts: &[u32]) -> Setup {
    Setup {
        pool_bytes: POOL_BYTES,
        ..Setup::on_hosts(hosts)
    }
}

fn collective(choice: &ForcedChoice, root: u32) -> Collective {
    match choice.collective {
        "all-reduce" => Collective::AllReduce,
        "reduce" => Collective::Reduce { root },
        "broadcast" => Collective::Broadcast { root },
        "all-gather" => Collective::AllGather,
        "reduce-scatter" => Collective::ReduceScatter,
        "all-to-all" => Collective::AllToAll,
        "gather" => Collective::Gather { root },
        "scatter" => Collective::Scatter { root },
        "barrier" => Collective::Barrier,
        other => panic!("unknown collective {other}"),
    }
}

/// Every algorithm: short and long messages, and different sizes where possible; in turn in place
/// and not, on ordinary and symmetric memory, with every root. Few cases, as the emulated machine
/// is slow.
fn cases(setup: &Setup, ranks: u32, seed: u64) -> Vec<Case> {
    let mut rng = Rng::new(seed);
    let mut cases: Vec<Case> = Vec::new();
    for choice in choices(setup, ranks) {
        let variants = [1001, 50_021, 0];
        for (variant, count) in variants.into_iter().enumerate() {
            let uneven = variant == 2;
            if uneven && !choice.requires.per_rank_sizes {
                continue;
            }
            let root = cases.len() as u32 % ranks;
            let collective = collective(&choice, root);
            let (dtype, op) = [
                (DType::F32, Op::Sum),
                (DType::Bf16, Op::Average),
                (DType::I64, Op::Max),
            ][cases.len() % 3];
            let mut sizes = || (0..ranks).map(|_| rng.below(300)).collect::<Vec<_>>();
            let blocks = match (uneven, collective) {
                (false, _) => BlockCounts::Equal(count),
                (true, Collective::AllToAll) => {
                    BlockCounts::PerPair((0..ranks).map(|_| sizes()).collect())
                }
                (true, _) => BlockCounts::PerRank(sizes()),
            };
            cases.push(Case {
                algorithm: Some(choice.name.clone()),
                dtype,
                op,
                blocks,
                in_place: cases.len().is_multiple_of(2),
                symmetric: !(cases.len() / 2).is_multiple_of(2),
                seed: rng.next(),
                ..Case::simple(collective, count)
            });
        }
    }
    cases
}

fn symmetric_memory(group: &Group, cases: &[Case]) -> Symmetric {
    let needed = cases.iter().map(|case| Arena::needed(case, group.size()));
    group.symmetric(needed.max().unwrap_or(1) as u64).unwrap()
}

fn check_group(setup: &Setup, ranks: u32) {
    let seed = fresh_seed();
    named(&format!("{setup:?}, seed {seed}"), || {
        let cases = cases(setup, ranks, seed);
        judged(setup, ranks, &cases, |group, hand_in| {
            let memory = symmetric_memory(group, &cases);
            for case in &cases {
                hand_in(perform(case, group, Some(&memory)));
            }
        });
    });
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn every_algorithm_over_one_device() {
    (2..=5).for_each(|ranks| check_group(&over(TransportChoice::Rdma), ranks));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn every_algorithm_over_two_devices() {
    let setup = Setup {
        rdma_devices: Some("all".into()),
        ..over(TransportChoice::Rdma)
    };
    (2..=5).for_each(|ranks| check_group(&setup, ranks));
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn hosts_whose_ranks_share_memory() {
    for hosts in [&[0, 0, 1][..], &[0, 0, 1, 1, 1]] {
        check_group(&on_hosts(hosts), hosts.len() as u32);
    }
}

/// If all ranks have a device, it is used without an option.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn rdma_is_chosen_between_hosts_unless_it_is_unwanted() {
    let kinds = |setup: Setup| {
        Ranks::run(setup, 3, |group| {
            all_reduce(group).unwrap();
            [0, 1, 2].map(|rank| group.transport(rank))
        })
    };
    let (shm, rdma) = (Some(TransportKind::Shm), Some(TransportKind::Rdma));
    assert_eq!(kinds(on_hosts(&[0, 0, 1]))[0], [None, shm, rdma]);
    let unwanted = Setup {
        rdma_devices: Some("none".into()),
        ..on_hosts(&[0, 0, 1])
    };
    assert_eq!(kinds(unwanted)[0], [None, shm, Some(TransportKind::Tcp)]);
}

/// The order of additions does not depend on the transport.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn sums_have_the_bits_of_tcp() {
    for ranks in 2..=5 {
        let seed = fresh_seed();
        let sums = |transport: TransportChoice| -> Vec<Vec<u8>> {
            let setup = over(transport);
            let mut found = choices(&setup, ranks);
            found.retain(|c| ["all-reduce", "reduce-scatter"].contains(&c.collective));
            let cases: Vec<Case> = (found.iter())
                .map(|choice| Case {
                    algorithm: Some(choice.name.clone()),
                    dtype: DType::F32,
                    op: Op::Average,
                    seed,
                    ..Case::simple(collective(choice, 0), 20_011)
                })
                .collect();
            Ranks::run(setup, ranks, |group| {
                let output = |case| perform(case, group, None);
                cases.iter().map(output).collect::<Vec<_>>().concat()
            })
        };
        let [tcp, rdma] = [TransportChoice::Tcp, TransportChoice::Rdma].map(sums);
        assert!(
            tcp == rdma,
            "{ranks} ranks, seed {seed}: other bits than over TCP"
        );
    }
}

/// Over one device and over both, each of which has the memory registered.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn registered_memory_is_sent_without_a_copy() {
    for devices in [None, Some("all".to_owned())] {
        let setup = Setup {
            rdma_devices: devices,
            ..over(TransportChoice::Rdma)
        };
        let needing = Some(TransportKind::Rdma);
        sums_are_sent_in_place(&setup, 3, needing, &["ring", "halving-doubling"]);
        registration_may_end_while_its_memory_is_sent(&setup, 2);
        messages_and_puts_are_sent_in_place(&setup);
        large_sums_are_registered_while_they_are_sent(&setup, 2);
    }
}

/// If the devices refuse such memory, as Soft-RoCE does, nothing is sent.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn memory_of_a_device_is_sent_by_its_file() {
    for devices in [None, Some("all".to_owned())] {
        let setup = Setup {
            rdma_devices: devices,
            ..over(TransportChoice::Rdma)
        };
        devices_memory_is_sent_by_its_file(&setup);
        device_registration_may_end_while_it_is_sent(&setup);
    }
}

/// Groups reuse memory of closed groups, and adapters see its new content.
#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn groups_use_the_memory_of_closed_ones() {
    let sums = Mutex::new(0);
    // The memory of a closed group is free once the other rank has left it too.
    let setup = Setup {
        pool_bytes: 4 * POOL_BYTES,
        ..over(TransportChoice::Rdma)
    };
    Ranks::run(setup, 2, |group| {
        for _ in 0..2 {
            let part = group.split(&[0, 1], "part", SplitOptions::default());
            let part = part.unwrap().expect("both are members");
            all_reduce(&part).unwrap();
            part.close();
            *sums.lock().unwrap() += 1;
        }
        all_reduce(group).unwrap();
    });
    assert_eq!(sums.into_inner().unwrap(), 4);
}

#[test]
#[ignore = "needs an RDMA device: make test-rdma"]
fn unknown_device_is_refused_with_the_available_ones() {
    let made = Endpoint::new(EndpointOptions {
        transport: TransportChoice::Rdma,
        rdma_devices: Some("mlx5_7".into()),
        ..EndpointOptions::default()
    });
    let Err(Error::Config(text)) = made else {
        panic!("there is no such device");
    };
    assert!(
        text.contains("mlx5_7") && text.contains("rxe0:1 (RoCE v2, active"),
        "{text}"
    );
}

/// Without a library or a device, the error names what is missing, and `auto` does not use RDMA.
#[test]
fn missing_rdma_requirement_is_named() {
    let make = |transport| {
        Endpoint::new(EndpointOptions {
            transport,
            interface: Some("127.0.0.1".into()),
            ..EndpointOptions::default()
        })
    };
    if let Err(error) = make(TransportChoice::Rdma) {
        let text = error.to_string();
        assert!(text.contains("the rdma transport cannot start"), "{text}");
    }
    make(TransportChoice::Auto).unwrap();
}
