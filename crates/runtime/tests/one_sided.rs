//! Tests of one-sided operations on symmetric memory: in mapped memory, over links, and with both.

mod ranks;

use std::sync::Barrier;
use std::time::{Duration, Instant};

use ranks::{Ranks, Setup};
use weft_runtime::{
    CellOp, Compare, Error, Group, OneSidedOptions, SignalUpdate, Symmetric, TransportChoice,
    Waited, Work,
};
use weft_transport_testing::strict;

const NOW: OneSidedOptions = OneSidedOptions {
    timeout: None,
    background: false,
};

/// Setups on one host, over every transport, and on several hosts.
fn setups() -> Vec<Setup> {
    vec![
        TransportChoice::Loopback.into(),
        TransportChoice::Shm.into(),
        TransportChoice::Tcp.into(),
        TransportChoice::Custom(strict).into(),
        Setup::on_hosts(&[0, 0, 1, 1]),
    ]
}

fn done(work: &Work) {
    assert_eq!(work.wait(None, &mut || false).unwrap(), Waited::Done);
}

fn put(buffer: &Symmetric, peer: u32, offset: u64, bytes: &[u8], signal: Option<SignalUpdate>) {
    let (start, len) = (bytes.as_ptr(), bytes.len() as u64);
    // SAFETY: the bytes are borrowed until the wait is over.
    done(&unsafe { buffer.put(peer, offset, start, len, signal, NOW) }.unwrap());
}

fn get(buffer: &Symmetric, peer: u32, offset: u64, bytes: usize) -> Vec<u8> {
    let mut into = vec![0; bytes];
    // SAFETY: the vector is kept until the wait is over.
    done(&unsafe { buffer.get(peer, offset, into.as_mut_ptr(), bytes as u64, NOW) }.unwrap());
    into
}

fn wait(buffer: &Symmetric, signal: u32, compare: Compare, value: u64) {
    done(&buffer.wait_signal(signal, compare, value, NOW).unwrap());
}

fn fetch(buffer: &Symmetric, peer: u32, offset: u64, op: CellOp) -> u64 {
    let fetched = buffer.update_cell(peer, offset, op, NOW).unwrap();
    done(&fetched.work);
    fetched.value()
}

fn add(signal: u32, value: u64) -> Option<SignalUpdate> {
    let op = CellOp::Add(value);
    Some(SignalUpdate { signal, op })
}

/// A pattern that identifies sender, receiver and place.
fn pattern(from: u32, to: u32, bytes: usize) -> Vec<u8> {
    let at = |place: usize| (place.wrapping_mul(31) as u32 + 7 * from + 3 * to) as u8;
    (0..bytes).map(at).collect()
}

/// This rank's own part, read as its owner does.
fn own(buffer: &Symmetric, offset: u64, bytes: usize) -> Vec<u8> {
    get(buffer, rank_of(buffer), offset, bytes)
}

/// The rank whose part has the address of the owner's memory.
fn rank_of(buffer: &Symmetric) -> u32 {
    let is_own = |rank: &u32| {
        let part = buffer.at(*rank).ok().flatten();
        part.is_some_and(|part| part.base() == buffer.base())
    };
    (0..64).find(is_own).expect("the own part is mapped")
}

#[test]
fn shared_memory_is_the_part_of_one_rank() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let shared = group.shared(4096, 1).unwrap();
            let part = shared.at(1).unwrap();
            assert!(group.rank() != 1 || part.is_some());
            // Not on other hosts than that of rank 1.
            let byte = |rank: u32| {
                let base = part.as_ref().map(|part| part.base());
                base.map(|base| base.wrapping_add(4092 + rank as usize))
            };
            if let Some(own) = byte(group.rank()) {
                // SAFETY: the part has 4096 bytes, of which each rank writes one.
                unsafe { own.write_volatile(group.rank() as u8 + 1) };
            }
            ranks::all_reduce(group).unwrap();
            for rank in [1, group.rank()] {
                if let Some(written) = byte(rank) {
                    // SAFETY: as above; all ranks have written.
                    assert_eq!(unsafe { written.read_volatile() }, rank as u8 + 1);
                }
            }
            ranks::all_reduce(group).unwrap();
        });
    }
}

/// Also if the parts of all ranks have equal lengths.
#[test]
fn different_requested_sizes_are_refused() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let (bytes, signals) = if group.rank() == 1 { (64, 8) } else { (128, 0) };
            let made = group.symmetric_with_signals(bytes, signals, "");
            let Err(Error::Config(text)) = made.map(drop) else {
                panic!("ranks have different memory");
            };
            let [one, others] = ["64 bytes and 8 signals", "128 bytes and 0 signals"];
            assert!(text.contains(one) && text.contains(others), "{text}");
            ranks::all_reduce(group).unwrap();
        });
    }
}

#[test]
fn put_data_is_visible_once_its_signal_is() {
    let sizes = [0_usize, 1, 8, 8192, 8193, 100_001, 1_500_000];
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let (rank, size) = (group.rank(), group.size());
            let room = 1_500_000_u64;
            let buffer = group
                .symmetric_with_signals(room * u64::from(size), sizes.len() as u32, "")
                .unwrap();
            for (signal, bytes) in (0..).zip(sizes) {
                for peer in 0..size {
                    let sent = pattern(rank, peer, bytes);
                    put(&buffer, peer, room * u64::from(rank), &sent, add(signal, 1));
                }
                wait(&buffer, signal, Compare::Equal, u64::from(size));
                for from in 0..size {
                    let there = own(&buffer, room * u64::from(from), bytes);
                    assert!(there == pattern(from, rank, bytes), "{bytes} of {from}");
                }
                // No rank writes the next one before all have checked.
                ranks::all_reduce(group).unwrap();
            }
        });
    }
}

#[test]
fn put_from_symmetric_memory_needs_no_copy() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let bytes = 300_000;
            let (rank, size) = (group.rank(), group.size());
            let buffer = group.symmetric_with_signals(2 * bytes, 1, "").unwrap();
            let sent = pattern(rank, 0, bytes as usize);
            put(&buffer, rank, 0, &sent, None);
            let next = (rank + 1) % size;
            // SAFETY: the memory belongs to this rank, and is kept.
            let work = unsafe { buffer.put(next, bytes, buffer.base(), bytes, add(0, 1), NOW) };
            done(&work.unwrap());
            wait(&buffer, 0, Compare::GreaterOrEqual, 1);
            let from = (rank + size - 1) % size;
            let there = own(&buffer, bytes, bytes as usize);
            assert!(there == pattern(from, 0, bytes as usize));
            ranks::all_reduce(group).unwrap();
        });
    }
}

#[test]
fn get_reads_data_put_before_quiet() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let (rank, size, bytes) = (group.rank(), group.size(), 700_000_usize);
            let buffer = group.symmetric_with_signals(bytes as u64, 1, "").unwrap();
            let next = (rank + 1) % size;
            put(&buffer, next, 0, &pattern(rank, next, bytes), None);
            done(&buffer.quiet(NOW).unwrap());
            ranks::all_reduce(group).unwrap();
            for peer in 0..size {
                let from = (peer + size - 1) % size;
                for (offset, length) in [(0, bytes), (5, 0), (bytes - 1, 1), (100_000, 70_000)] {
                    let got = get(&buffer, peer, offset as u64, length);
                    let all = pattern(from, peer, bytes);
                    assert!(got == all[offset..offset + length], "{length} of {peer}");
                }
            }
            ranks::all_reduce(group).unwrap();
        });
    }
}

#[test]
fn many_gets_and_puts_in_the_background_end() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let (rank, size) = (group.rank(), group.size());
            let buffer = group.symmetric_with_signals(64 << 10, 2, "").unwrap();
            let how = OneSidedOptions {
                background: true,
                ..NOW
            };
            let sent = pattern(rank, 0, 64 << 10);
            let mut works = Vec::new();
            put(&buffer, rank, 0, &sent, None);
            ranks::all_reduce(group).unwrap();
            let mut targets = vec![vec![0_u8; 64 << 10]; 40];
            for (number, target) in targets.iter_mut().enumerate() {
                let peer = number as u32 % size;
                let start = target.as_mut_ptr();
                // SAFETY: the targets are kept until all waits are over.
                works.push(unsafe { buffer.get(peer, 0, start, 64 << 10, how) }.unwrap());
            }
            works.iter().for_each(done);
            for (number, target) in targets.iter().enumerate() {
                assert!(*target == pattern(number as u32 % size, 0, 64 << 10));
            }
            ranks::all_reduce(group).unwrap();
            let next = (rank + 1) % size;
            let waited = buffer.wait_signal(0, Compare::Equal, 40, how).unwrap();
            let work = |_| {
                // SAFETY: the bytes are kept until all waits are over.
                unsafe { buffer.put(next, 0, sent.as_ptr(), sent.len() as u64, add(0, 1), how) }
            };
            let works: Vec<Work> = (0..40).map(work).map(Result::unwrap).collect();
            works.iter().for_each(done);
            done(&waited);
            done(&buffer.quiet(how).unwrap());
            assert_eq!(buffer.signal_value(0).unwrap(), 40);
            ranks::all_reduce(group).unwrap();
        });
    }
}

#[test]
fn atomics_of_eight_ranks_lose_no_update() {
    let setups = [
        TransportChoice::Shm.into(),
        TransportChoice::Tcp.into(),
        TransportChoice::Custom(strict).into(),
        Setup::on_hosts(&[0, 0, 0, 1, 1, 1, 2, 2]),
    ];
    for setup in setups {
        const TIMES: u64 = 150;
        let sums = Ranks::run(setup, 8, |group| {
            let (rank, size) = (u64::from(group.rank()), u64::from(group.size()));
            let buffer = group.symmetric_with_signals(64, 1, "").unwrap();
            let mut before = Vec::new();
            for _ in 0..TIMES {
                before.push(fetch(&buffer, 1, 8, CellOp::Add(rank + 1)));
            }
            // A lock on rank 2, under which a cell of rank 3 is read and written.
            for _ in 0..TIMES / 10 {
                let swap = |expected, new| CellOp::CompareSwap { expected, new };
                while fetch(&buffer, 2, 0, swap(0, rank + 1)) != 0 {
                    std::thread::yield_now();
                }
                let count = u64::from_ne_bytes(get(&buffer, 3, 16, 8).try_into().unwrap());
                put(&buffer, 3, 16, &(count + 1).to_ne_bytes(), None);
                done(&buffer.quiet(NOW).unwrap());
                assert_eq!(fetch(&buffer, 2, 0, swap(rank + 1, 0)), rank + 1);
            }
            ranks::all_reduce(group).unwrap();
            assert_eq!(
                fetch(&buffer, 1, 8, CellOp::Add(0)),
                TIMES * size * (size + 1) / 2
            );
            assert_eq!(fetch(&buffer, 3, 16, CellOp::Add(0)), size * (TIMES / 10));
            ranks::all_reduce(group).unwrap();
            before
        });
        // No two additions have fetched the same value.
        let mut all: Vec<u64> = sums.into_iter().flatten().collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len() as u64, TIMES * 8);
    }
}

#[test]
fn puts_arrive_in_order_after_a_fence() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let (rank, size) = (group.rank(), group.size());
            let buffer = group.symmetric_with_signals(40_000, 2, "").unwrap();
            let (next, rounds) = ((rank + 1) % size, 30_u64);
            for round in 1..=rounds {
                let sent = vec![round as u8; 40_000];
                put(&buffer, next, 0, &sent, None);
                buffer.fence().unwrap();
                let op = CellOp::Set(round);
                done(
                    &buffer
                        .signal(next, SignalUpdate { signal: 0, op }, NOW)
                        .unwrap(),
                );
                wait(&buffer, 0, Compare::GreaterOrEqual, round);
                assert!(
                    own(&buffer, 0, 40_000)
                        .iter()
                        .all(|byte| *byte == round as u8)
                );
                let back = (rank + size - 1) % size;
                done(
                    &buffer
                        .signal(back, SignalUpdate { signal: 1, op }, NOW)
                        .unwrap(),
                );
                wait(&buffer, 1, Compare::Equal, round);
            }
        });
    }
}

fn refused(result: Result<Work, Error>, parts: &[&str]) {
    let error = result.map(|_| ()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::Config(_)), "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn invalid_arguments_name_the_buffer_and_keep_the_group() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let buffer = group.symmetric_with_signals(100, 2, "halo").unwrap();
            let bytes = [0_u8; 200];
            let put = |peer, offset, len, signal| {
                // SAFETY: the bytes are kept, and never read.
                unsafe { buffer.put(peer, offset, bytes.as_ptr(), len, signal, NOW) }
            };
            refused(
                put(1, 90, 11, None),
                &["\"halo\"", "11 bytes at byte 90", "100 bytes"],
            );
            refused(put(1, u64::MAX, 8, None), &["\"halo\"", "out of range"]);
            refused(put(4, 0, 1, None), &["\"halo\"", "4 ranks"]);
            refused(
                put(1, 0, 1, add(2, 1)),
                &["\"halo\"", "signal 2", "2 signals"],
            );
            let cell = |offset| {
                let fetched = buffer.update_cell(1, offset, CellOp::Add(1), NOW);
                fetched.map(|fetched| fetched.work)
            };
            refused(cell(4), &["\"halo\"", "multiple of 8"]);
            refused(cell(96), &["\"halo\"", "out of range"]);
            refused(
                buffer.wait_signal(9, Compare::Equal, 0, NOW),
                &["\"halo\"", "signal 9"],
            );
            ranks::all_reduce(group).unwrap();
            if group.rank() == 1 {
                buffer.free();
                refused(buffer.quiet(NOW), &["\"halo\"", "this rank has freed it"]);
            } else {
                // Until the free is known, puts to it do no harm.
                let until = Instant::now() + Duration::from_secs(20);
                let error = loop {
                    assert!(Instant::now() < until, "the free was not received");
                    let fetched = buffer.update_cell(1, 0, CellOp::Add(1), NOW);
                    match fetched.and_then(|f| f.work.wait(None, &mut || false)) {
                        Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                        Err(error) => break error,
                    }
                };
                assert!(error.to_string().contains("freed"), "{error}");
            }
            ranks::all_reduce(group).unwrap();
        });
    }
}

#[test]
fn wait_for_a_signal_ends_at_its_deadline() {
    for setup in setups() {
        Ranks::run(setup, 4, |group| {
            let buffer = group.symmetric_with_signals(8, 1, "late").unwrap();
            let how = OneSidedOptions {
                timeout: Some(Duration::from_millis(200)),
                background: false,
            };
            let work = buffer.wait_signal(0, Compare::Greater, 3, how);
            let error = work
                .and_then(|work| work.wait(None, &mut || false))
                .unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, Error::Timeout { .. }), "{text}");
            assert!(
                text.contains("signal 0 of symmetric buffer \"late\" to be > 3"),
                "{text}"
            );
        });
    }
}

#[test]
fn abort_and_departure_end_a_wait() {
    for setup in setups() {
        let (made, aborted) = (Barrier::new(4), Barrier::new(4));
        Ranks::run(setup, 4, |group: &Group| {
            let buffer = group.symmetric_with_signals(8, 1, "").unwrap();
            let smaller = group.split(&[0, 1], "pair", Default::default()).unwrap();
            let of_two = smaller
                .as_ref()
                .map(|pair| pair.symmetric_with_signals(8, 1, "").unwrap());
            made.wait();
            if let (Some(pair), Some(of_two)) = (smaller, of_two) {
                if group.rank() == 0 {
                    let work = of_two.wait_signal(0, Compare::Equal, 1, NOW);
                    let error = work
                        .and_then(|work| work.wait(None, &mut || false))
                        .unwrap_err();
                    assert!(matches!(error, Error::PeerLost { .. }), "{error}");
                } else {
                    drop(of_two);
                    pair.close();
                }
            }
            if group.rank() == 3 {
                group.abort("enough");
            } else {
                let work = buffer.wait_signal(0, Compare::Equal, 1, NOW);
                let error = work
                    .and_then(|work| work.wait(None, &mut || false))
                    .unwrap_err();
                assert!(matches!(error, Error::Aborted { .. }), "{error}");
                let again = buffer.quiet(NOW).map(|_| ()).unwrap_err();
                assert!(matches!(again, Error::Aborted { .. }), "{again}");
            }
            aborted.wait();
        });
    }
}
