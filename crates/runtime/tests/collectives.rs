//! Every collective and algorithm, for real, over every transport, with ranks as threads of this process.

mod ranks;

use ranks::{Ranks, Rng};
use weft_kernels::DType;
use weft_runtime::{Call, Counts, Group, Op, TransportChoice};
use weft_schedule::Collective;

fn call(collective: Collective, input: &[f32], output: &mut [f32], count: u64) -> Call {
    Call {
        collective,
        dtype: DType::F32,
        op: Op::Sum,
        input: input.as_ptr().cast(),
        output: output.as_mut_ptr().cast(),
        counts: Counts::Equal(count),
        priority: 0,
        timeout: None,
        algorithm: None,
    }
}

fn run(group: &Group, call: Call) {
    // SAFETY: the tests keep their buffers until the wait is over.
    let work = unsafe { group.issue(call, false) }.unwrap();
    work.wait(None, &mut || false).unwrap();
}

fn contribution(rank: u32, count: usize) -> Vec<f32> {
    let mut rng = Rng::new(u64::from(rank) * 7919 + count as u64);
    (0..count).map(|_| rng.float()).collect()
}

fn sum(ranks: u32, count: usize) -> Vec<f64> {
    let mut total = vec![0.0; count];
    for rank in 0..ranks {
        for (t, x) in total.iter_mut().zip(contribution(rank, count)) {
            *t += f64::from(x);
        }
    }
    total
}

fn close(found: &[f32], expected: &[f64], ranks: u32) {
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let bound = f64::from(ranks) * f64::from(ranks) * f64::from(f32::EPSILON);
        assert!(
            (f64::from(*f) - e).abs() <= bound,
            "element {i}: {f} instead of {e}"
        );
    }
}

const COUNTS: [usize; 6] = [0, 1, 5, 1000, 4099, 300_007];

fn all_reduce(transport: TransportChoice, ranks: u32) {
    let algorithms = weft_algorithms::registry()
        .iter()
        .filter(|a| a.collective == "all-reduce");
    let names: Vec<&str> = algorithms
        .filter(|a| transport != TransportChoice::Tcp || !a.requires.mapped_scratch)
        .map(|a| a.name)
        .collect();
    let results = Ranks::run(transport, ranks, |group| {
        let mut results = Vec::new();
        for name in &names {
            for count in COUNTS {
                let input = contribution(group.rank(), count);
                let mut output = vec![f32::NAN; count];
                let mut c = call(Collective::AllReduce, &input, &mut output, count as u64);
                c.algorithm = Some((*name).into());
                run(group, c);
                close(&output, &sum(ranks, count), ranks);
                results.push(output);
            }
        }
        results
    });
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "ranks differ"
    );
}

#[test]
fn all_reduce_over_loopback() {
    (1..=5).for_each(|ranks| all_reduce(TransportChoice::Loopback, ranks));
}

#[test]
fn all_reduce_over_shared_memory() {
    (2..=4).for_each(|ranks| all_reduce(TransportChoice::Shm, ranks));
}

#[test]
fn all_reduce_over_tcp() {
    (2..=4).for_each(|ranks| all_reduce(TransportChoice::Tcp, ranks));
}

fn others(transport: TransportChoice, ranks: u32) {
    Ranks::run(transport, ranks, |group| {
        for root in 0..ranks {
            for count in COUNTS {
                rooted(group, root, count);
            }
        }
        for count in [0, 1, 77, 40_001] {
            blocks(group, count);
        }
        run(group, call(Collective::Barrier, &[], &mut [], 0));
    });
}

fn rooted(group: &Group, root: u32, count: usize) {
    let (rank, ranks) = (group.rank(), group.size());
    let mut vector = contribution(rank, count);
    let input = vector.clone();
    run(
        group,
        call(
            Collective::Broadcast { root },
            &input,
            &mut vector,
            count as u64,
        ),
    );
    assert_eq!(vector, contribution(root, count));

    let mine = contribution(rank, count);
    let mut output = vec![f32::NAN; count];
    run(
        group,
        call(
            Collective::Reduce { root },
            &mine,
            &mut output,
            count as u64,
        ),
    );
    if rank == root {
        close(&output, &sum(ranks, count), ranks);
    } else {
        assert_eq!(mine, contribution(rank, count));
        assert!(output.iter().all(|x| x.is_nan()));
    }

    let size = ranks as usize;
    let mut gathered = vec![f32::NAN; count * size];
    run(
        group,
        call(
            Collective::Gather { root },
            &mine,
            &mut gathered,
            count as u64,
        ),
    );
    let everything: Vec<f32> = (0..ranks).flat_map(|r| contribution(r, count)).collect();
    if rank == root {
        assert_eq!(gathered, everything);
    }
    let mut block = vec![f32::NAN; count];
    run(
        group,
        call(
            Collective::Scatter { root },
            &everything,
            &mut block,
            count as u64,
        ),
    );
    assert_eq!(block, mine);
}

fn blocks(group: &Group, count: usize) {
    let (rank, ranks) = (group.rank(), group.size());
    let size = ranks as usize;
    let mine = contribution(rank, count);
    let everything: Vec<f32> = (0..ranks).flat_map(|r| contribution(r, count)).collect();
    for name in ["ring", "direct"] {
        let mut output = vec![f32::NAN; count * size];
        let mut c = call(Collective::AllGather, &mine, &mut output, count as u64);
        c.algorithm = Some(name.into());
        run(group, c);
        assert_eq!(output, everything);

        let input = contribution(rank, count * size);
        let mut block = vec![f32::NAN; count];
        let mut c = call(Collective::ReduceScatter, &input, &mut block, count as u64);
        c.algorithm = Some(name.into());
        run(group, c);
        let expected = sum(ranks, count * size);
        close(&block, &expected[rank as usize * count..][..count], ranks);
    }
    for name in ["pairwise", "direct"] {
        let input = contribution(rank, count * size);
        let mut output = vec![f32::NAN; count * size];
        let mut c = call(Collective::AllToAll, &input, &mut output, count as u64);
        c.algorithm = Some(name.into());
        run(group, c);
        let expected: Vec<f32> = (0..ranks)
            .flat_map(|r| contribution(r, count * size)[rank as usize * count..][..count].to_vec())
            .collect();
        assert_eq!(output, expected);
    }
}

#[test]
fn others_over_loopback() {
    (1..=4).for_each(|ranks| others(TransportChoice::Loopback, ranks));
}

#[test]
fn others_over_shared_memory() {
    others(TransportChoice::Shm, 3);
}

#[test]
fn others_over_tcp() {
    others(TransportChoice::Tcp, 3);
}

#[test]
fn all_to_all_with_a_count_per_pair() {
    for transport in [TransportChoice::Loopback, TransportChoice::Tcp] {
        Ranks::run(transport, 3, |group| {
            let rank = u64::from(group.rank());
            let count = |from: u64, to: u64| (from * 1000 + to * 70_000) * (from ^ to);
            let send: Vec<u64> = (0..3).map(|to| count(rank, to)).collect();
            let receive: Vec<u64> = (0..3).map(|from| count(from, rank)).collect();
            let input: Vec<f32> = (0..3)
                .flat_map(|to| vec![(rank * 10 + to) as f32; count(rank, to) as usize])
                .collect();
            let mut output = vec![f32::NAN; receive.iter().sum::<u64>() as usize];
            let mut c = call(Collective::AllToAll, &input, &mut output, 0);
            c.counts = Counts::PerPair { send, receive };
            run(group, c);
            let expected: Vec<f32> = (0..3)
                .flat_map(|from| vec![(from * 10 + rank) as f32; count(from, rank) as usize])
                .collect();
            assert_eq!(output, expected);
        });
    }
}

#[test]
fn several_operations_at_once_with_priorities() {
    for transport in [
        TransportChoice::Loopback,
        TransportChoice::Shm,
        TransportChoice::Tcp,
    ] {
        Ranks::run(transport, 3, |group| {
            let mut buffers: Vec<Vec<f32>> = (0..20)
                .map(|i| contribution(group.rank(), 1 + i * 9973))
                .collect();
            let mut works = Vec::new();
            for (i, buffer) in buffers.iter_mut().enumerate() {
                let count = buffer.len();
                let input = buffer.as_ptr();
                let mut c = call(Collective::AllReduce, &[], buffer, count as u64);
                c.input = input.cast();
                c.priority = (i % 3) as i32;
                // SAFETY: the buffers live until all waits are over.
                works.push(unsafe { group.issue(c, true) }.unwrap());
            }
            for work in works.iter().rev() {
                work.wait(None, &mut || false).unwrap();
            }
            for (i, buffer) in buffers.iter().enumerate() {
                close(buffer, &sum(3, 1 + i * 9973), 3);
            }
        });
    }
}

#[test]
fn symmetric_memory_is_reduced_in_place() {
    for transport in [
        TransportChoice::Loopback,
        TransportChoice::Shm,
        TransportChoice::Tcp,
    ] {
        Ranks::run(transport, 3, |group| {
            let count = 1_000_003;
            let memory = group.symmetric(4 * count as u64).unwrap();
            // SAFETY: the memory has this size, is aligned, and nobody else uses it between operations.
            let vector =
                unsafe { std::slice::from_raw_parts_mut(memory.base().cast::<f32>(), count) };
            for part in [count, 3, 50_001] {
                vector[..part].copy_from_slice(&contribution(group.rank(), part));
                let input = vector.as_ptr();
                let mut c = call(Collective::AllReduce, &[], &mut vector[..part], part as u64);
                c.input = input.cast();
                run(group, c);
                close(&vector[..part], &sum(3, part), 3);
            }
            // One rank passes ordinary memory: all take the staged path.
            let mut ordinary = contribution(group.rank(), 50_001);
            vector[..50_001].copy_from_slice(&ordinary);
            let target = if group.rank() == 1 {
                &mut ordinary[..]
            } else {
                &mut vector[..50_001]
            };
            let input = target.as_ptr();
            let mut c = call(Collective::AllReduce, &[], target, 50_001);
            c.input = input.cast();
            run(group, c);
            close(target, &sum(3, 50_001), 3);
        });
    }
}

#[test]
fn messages_of_all_sizes_find_their_receivers() {
    for transport in [
        TransportChoice::Loopback,
        TransportChoice::Shm,
        TransportChoice::Tcp,
    ] {
        Ranks::run(transport, 3, |group| {
            let (rank, size) = (group.rank(), group.size());
            let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
            for (tag, bytes) in [0_usize, 1, 1000, 16_384, 16_385, 1_000_001]
                .into_iter()
                .enumerate()
            {
                let sent = vec![rank as u8 + tag as u8; bytes];
                let mut received = vec![255; bytes];
                // SAFETY: both buffers live until both waits are over.
                let receive = unsafe {
                    group.receive(
                        (tag % 2 == 0).then_some(from),
                        tag as u64,
                        received.as_mut_ptr(),
                        bytes as u64,
                        None,
                    )
                };
                let receive = receive.unwrap();
                // SAFETY: as above.
                let send = unsafe { group.send(to, tag as u64, sent.as_ptr(), bytes as u64, None) };
                send.unwrap().wait(None, &mut || false).unwrap();
                receive.wait(None, &mut || false).unwrap();
                assert_eq!(receive.source(), Some(from));
                assert!(received.iter().all(|byte| *byte == from as u8 + tag as u8));
            }
        });
    }
}

#[test]
fn subgroups_work_beside_their_parent() {
    Ranks::run(TransportChoice::Loopback, 4, |group| {
        let half: Vec<u32> = (0..4)
            .filter(|rank| rank % 2 == group.rank() % 2)
            .rev()
            .collect();
        let sub = group.split(&half, "half", None).unwrap().unwrap();
        let mut value = vec![group.rank() as f32];
        let input = value.clone();
        run(&sub, call(Collective::AllReduce, &input, &mut value, 1));
        assert_eq!(value[0], if group.rank() % 2 == 0 { 2.0 } else { 4.0 });
        assert!(group.split(&[5], "wrong", None).is_err());
    });
}
