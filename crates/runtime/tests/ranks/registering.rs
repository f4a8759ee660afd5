//! Checks of registered memory, on groups whose links need it and on others.

use weft_kernels::DType;
use weft_runtime::{
    Call, CellOp, Compare, Counts, Group, OneSidedOptions, Op, Registration, SignalUpdate, Stage,
    Unregistered, Work,
};
use weft_schedule::Collective;
use weft_transport::TransportKind;
use weft_transport_testing::{DeviceMemory, must_take_device_memory};

use super::{Ranks, Setup, all_reduce};

/// The initial values of every rank: whole numbers, whose sums are exact.
fn values(rank: u32, count: usize) -> Vec<f32> {
    let value = |index: usize| ((index * 7 + rank as usize * 13) % 31) as f32;
    (0..count).map(value).collect()
}

fn sums(ranks: u32, count: usize) -> Vec<f32> {
    let all: Vec<Vec<f32>> = (0..ranks).map(|rank| values(rank, count)).collect();
    let sum = |index| all.iter().map(|values| values[index]).sum();
    (0..count).map(sum).collect()
}

fn register(group: &Group, memory: &[f32]) -> Registration {
    // SAFETY: the checks keep their vectors longer than the handles.
    unsafe { group.register(memory.as_ptr().cast(), size_of_val(memory) as u64) }.unwrap()
}

/// Starts a sum in place.
fn start(group: &Group, memory: &mut [f32], algorithm: Option<&str>) -> Work {
    let call = Call {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: Op::Sum,
        input: memory.as_ptr().cast(),
        output: memory.as_mut_ptr().cast(),
        counts: Counts::Equal(memory.len() as u64),
        priority: 0,
        timeout: None,
        algorithm: algorithm.map(str::to_owned),
        tiling: Default::default(),
        wire: None,
    };
    // SAFETY: the checks wait for it before they drop the memory.
    unsafe { group.issue(call, true) }.unwrap()
}

fn sum(group: &Group, memory: &mut [f32], algorithm: Option<&str>) {
    let work = start(group, memory, algorithm);
    work.wait(None, &mut || false).unwrap();
}

/// The number of bytes that `something` copied into the pool.
fn staged(group: &Group, something: impl FnOnce()) -> u64 {
    let before = group.staged_bytes();
    something();
    group.staged_bytes() - before
}

/// Sums of registered memory and of parts of it are correct, and sent without copies. Without a
/// handle, and after its end, they are copied where links need it.
pub(crate) fn sums_are_sent_in_place(
    setup: &Setup,
    ranks: u32,
    needing: Option<TransportKind>,
    algorithms: &[&str],
) {
    const COUNT: usize = 300_007;
    Ranks::run(setup.clone(), ranks, |group| {
        for algorithm in algorithms {
            let mut memory = values(group.rank(), COUNT);
            let handle = register(group, &memory);
            assert_eq!(handle.kinds(), Vec::from_iter(needing));
            let algorithm = Some(*algorithm);
            let copied = staged(group, || sum(group, &mut memory, algorithm));
            assert_eq!(copied, 0, "{algorithm:?}");
            assert!(memory == sums(ranks, COUNT), "{algorithm:?}");
            // A part that was written since.
            memory[1001..200_002].copy_from_slice(&values(group.rank(), 199_001));
            let part = &mut memory[1001..200_002];
            assert_eq!(staged(group, || sum(group, part, algorithm)), 0);
            assert!(*part == sums(ranks, 199_001), "a part, {algorithm:?}");
            handle.deregister();
            handle.deregister();
            assert_eq!(handle.kinds(), []);
            memory.copy_from_slice(&values(group.rank(), COUNT));
            let copied = staged(group, || sum(group, &mut memory, algorithm));
            assert_eq!(copied > 0, needing.is_some(), "{algorithm:?}: {copied}");
            assert!(
                memory == sums(ranks, COUNT),
                "without a handle, {algorithm:?}"
            );
        }
    });
}

/// Ending a registration while its memory is sent does not affect the operation.
pub(crate) fn registration_may_end_while_its_memory_is_sent(setup: &Setup, ranks: u32) {
    const COUNT: usize = 2_000_003;
    Ranks::run(setup.clone(), ranks, |group| {
        for round in 0..10 {
            let mut memory = values(group.rank(), COUNT);
            let handle = register(group, &memory);
            let work = start(group, &mut memory, Some("ring"));
            // At another point of the sum each time.
            for _ in 0..round * 50 {
                std::thread::yield_now();
            }
            drop(handle);
            work.wait(None, &mut || false).unwrap();
            assert!(memory == sums(ranks, COUNT), "round {round}");
        }
    });
}

/// Messages and one-sided puts of registered memory are correct, and sent without copies.
pub(crate) fn messages_and_puts_are_sent_in_place(setup: &Setup) {
    const COUNT: usize = 300_007;
    const BYTES: u64 = 4 * COUNT as u64;
    let now = OneSidedOptions::default();
    Ranks::run(setup.clone(), 2, |group| {
        let (rank, other) = (group.rank(), 1 - group.rank());
        let memory = values(rank, COUNT);
        let _handle = register(group, &memory);
        let mut received = vec![0_f32; COUNT];
        let copied = staged(group, || {
            // SAFETY: both vectors live until both waits are over.
            let receive = unsafe {
                group.receive(
                    Some(other),
                    1,
                    received.as_mut_ptr().cast(),
                    BYTES,
                    None,
                    true,
                )
            };
            // SAFETY: as above.
            let send = unsafe { group.send(other, 1, memory.as_ptr().cast(), BYTES, None, true) };
            for work in [receive, send] {
                work.unwrap().wait(None, &mut || false).unwrap();
            }
        });
        assert_eq!(copied, 0, "a message");
        assert!(received == values(other, COUNT));
        let buffer = group.symmetric_with_signals(BYTES, 1, "").unwrap();
        let copied = staged(group, || {
            let come = SignalUpdate {
                signal: 0,
                op: CellOp::Add(1),
            };
            // SAFETY: the vector lives until the wait is over.
            let put =
                unsafe { buffer.put(other, 0, memory.as_ptr().cast(), BYTES, Some(come), now) };
            put.unwrap().wait(None, &mut || false).unwrap();
            let come = buffer.wait_signal(0, Compare::Equal, 1, now).unwrap();
            come.wait(None, &mut || false).unwrap();
        });
        assert_eq!(copied, 0, "a put");
        // SAFETY: the other rank has written it, and writes no more.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.base(), BYTES as usize) };
        let expected = values(other, COUNT);
        let expected: Vec<u8> = expected.iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert!(bytes == expected);
        // Neither rank leaves before the other has seen the end of its put.
        all_reduce(group).unwrap();
    });
}

/// Messages and one-sided puts of a device's memory, which no processor can read, are correct for
/// any length. If links cannot read it either, no operation begins.
pub(crate) fn devices_memory_is_sent_by_its_file(setup: &Setup) {
    const COUNT: usize = 300_007;
    const BYTES: u64 = 4 * COUNT as u64;
    let now = OneSidedOptions::default();
    let bytes_of = |rank| -> Vec<u8> {
        let values = values(rank, COUNT).into_iter();
        values.flat_map(f32::to_ne_bytes).collect()
    };
    Ranks::run(setup.clone(), 2, |group| {
        let (rank, other) = (group.rank(), 1 - group.rank());
        let expected = bytes_of(other);
        let device = DeviceMemory::new(&bytes_of(rank));
        let buffer = group.symmetric_with_signals(BYTES, 1, "").unwrap();
        // SAFETY: the memory lives longer than the handle.
        let handle = unsafe { group.register_device(device.at(0), BYTES, device.file()) };
        let handle = match handle {
            Ok(handle) => handle,
            Err(error) => {
                assert!(!must_take_device_memory(TransportKind::Rdma), "{error}");
                return;
            }
        };
        let reads = !handle.kinds().is_empty();
        let send = |to, start: usize, bytes| {
            // SAFETY: the memory lives until the wait is over.
            unsafe { group.send_from_device(to, 1, device.at(start), bytes, None, true) }.unwrap()
        };
        let put = |to, start: usize, bytes, come| {
            // SAFETY: as above.
            let put = unsafe {
                buffer.put_from_device(to, start as u64, device.at(start), bytes, come, now)
            };
            put.unwrap()
        };
        let come = SignalUpdate {
            signal: 0,
            op: CellOp::Add(1),
        };
        assert!(send(rank, 0, BYTES).is_none(), "to this rank itself");
        assert!(send(other, 0, 0).is_none(), "nothing");
        assert!(put(rank, 0, BYTES, Some(come)).is_none(), "into the own");
        let staged_before = group.staged_bytes();
        for (start, bytes) in [(0, BYTES), (5000, 3), (4093, 70_001)] {
            let mut received = vec![0_u8; bytes as usize];
            let into = received.as_mut_ptr();
            let sent = send(other, start, bytes);
            assert_eq!(sent.is_some(), reads, "{bytes} bytes from {start} on");
            let Some(sent) = sent else { continue };
            // SAFETY: the vector lives until the wait is over.
            let receive = unsafe { group.receive(Some(other), 1, into, bytes, None, true) };
            for work in [receive.unwrap(), sent] {
                work.wait(None, &mut || false).unwrap();
            }
            assert!(received == expected[start..start + bytes as usize]);
        }
        // The first byte, and the rest, which is visible once the second signal has arrived.
        let rest = put(other, 1, BYTES - 1, None);
        let first = put(other, 0, 1, Some(come));
        assert_eq!((rest.is_some(), first.is_some()), (reads, reads));
        for work in rest.into_iter().chain(first) {
            work.wait(None, &mut || false).unwrap();
        }
        if reads {
            let come = buffer.wait_signal(0, Compare::Equal, 1, now).unwrap();
            come.wait(None, &mut || false).unwrap();
            // SAFETY: the other rank has written it, and writes no more.
            let bytes = unsafe { std::slice::from_raw_parts(buffer.base(), BYTES as usize) };
            assert!(bytes == expected);
        }
        assert_eq!(group.staged_bytes(), staged_before);
        let reads_now = || group.reads_device(other, device.at(0), BYTES).unwrap();
        assert_eq!(reads_now(), reads);
        handle.deregister();
        assert!(!reads_now(), "after its end");
        assert!(send(other, 0, BYTES).is_none(), "after its end");
        // Neither rank leaves before the other has seen the end of its put.
        all_reduce(group).unwrap();
    });
}

/// A registration of a device's memory may end while the memory is sent.
pub(crate) fn device_registration_may_end_while_it_is_sent(setup: &Setup) {
    const LEN: usize = 20_000_003;
    let bytes: Vec<u8> = (0..LEN).map(|index| (index % 251) as u8).collect();
    let device = DeviceMemory::new(&bytes);
    let len = LEN as u64;
    Ranks::run(setup.clone(), 2, |group| {
        let (rank, other) = (group.rank(), 1 - group.rank());
        let start = device.at(0);
        // SAFETY: the memory lives longer than all handles.
        let register = || unsafe { group.register_device(start, len, device.file()) };
        if let Err(error) = register() {
            assert!(!must_take_device_memory(TransportKind::Rdma), "{error}");
            return;
        }
        let mut received = vec![0_u8; LEN];
        for round in 0..4 {
            if rank == round % 2 {
                let handle = register().unwrap();
                // SAFETY: the memory lives until the wait is over.
                let sent = unsafe { group.send_from_device(other, 1, start, len, None, true) };
                drop(handle);
                let sent = sent.unwrap().expect("the link reads it");
                sent.wait(None, &mut || false).unwrap();
                continue;
            }
            received.fill(0);
            let into = received.as_mut_ptr();
            // SAFETY: the vector lives until the wait is over.
            let receive = unsafe { group.receive(Some(other), 1, into, len, None, true) };
            receive.unwrap().wait(None, &mut || false).unwrap();
            assert!(received == bytes, "round {round}");
        }
    });
}

/// Zero bytes can be registered, and register nothing.
pub(crate) fn check_zero_bytes_registration(setup: &Setup) {
    Ranks::run(setup.clone(), 2, |group| {
        let handle = register(group, &[]);
        assert_eq!(handle.kinds(), []);
        sum(group, &mut [], None);
    });
}

/// Large memory is registered while it is sent, except for its ends, which are copied. Small memory
/// is copied.
pub(crate) fn large_sums_are_registered_while_they_are_sent(setup: &Setup, ranks: u32) {
    const COUNT: usize = 3_000_017;
    let setup = Setup {
        unregistered: Unregistered::Pipelined,
        ..setup.clone()
    };
    Ranks::run(setup, ranks, |group| {
        assert!(staged(group, || all_reduce(group).unwrap()) > 0);
        for algorithm in ["ring", "halving-doubling"] {
            let mut memory = values(group.rank(), COUNT);
            group.trace_stages(true);
            let copied = staged(group, || sum(group, &mut memory, Some(algorithm)));
            group.trace_stages(false);
            assert!(memory == sums(ranks, COUNT), "{algorithm}");
            assert!(copied < 4 * COUNT as u64 / 4, "{algorithm}: {copied} bytes");
            assert_eq!(group.registration_refusal(), None);
            let spans = group.take_stages();
            let bytes = |stage| -> u64 {
                let of_stage = spans.iter().filter(|span| span.stage == stage);
                of_stage.map(|span| span.of.bytes).sum()
            };
            let registered = bytes(Stage::Registration);
            assert!(
                registered > 4 * COUNT as u64 / 2,
                "{algorithm}: {registered} bytes"
            );
            assert!(bytes(Stage::Send) >= registered, "{algorithm}");
            // Among three ranks, halving-doubling leaves one out.
            let reduced = bytes(Stage::Reduction);
            assert!(reduced > 0 || algorithm != "ring", "{algorithm}");
        }
    });
}

/// Memory with a handle is sent by it, and not registered again.
pub(crate) fn handles_come_before_strips(setup: &Setup) {
    const COUNT: usize = 1_000_003;
    let setup = Setup {
        unregistered: Unregistered::Pipelined,
        ..setup.clone()
    };
    Ranks::run(setup, 2, |group| {
        let mut memory = values(group.rank(), COUNT);
        let _handle = register(group, &memory);
        group.trace_stages(true);
        assert_eq!(staged(group, || sum(group, &mut memory, Some("ring"))), 0);
        assert!(memory == sums(2, COUNT));
        let spans = group.take_stages();
        let registered = spans
            .iter()
            .filter(|span| span.stage == Stage::Registration);
        assert_eq!(registered.count(), 0);
    });
}
