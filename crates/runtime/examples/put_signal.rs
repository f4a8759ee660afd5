//! Latency of a put of 8 bytes with a signal between two ranks of this process, compared with that
//! of a bare flag, without Python: `cargo run --release --example put_signal -p weft-runtime
//! [CALLS]`.
//!
//! Both are half a round trip, measured in turns. Prints the median of the rounds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use weft_runtime::{
    CellOp, Compare, Endpoint, EndpointOptions, Group, GroupOptions, MemoryStore, OneSidedOptions,
    SignalUpdate, Symmetric, TransportChoice,
};

const ROUNDS: usize = 15;

/// A flag in a separate cache line.
#[repr(align(128))]
struct Flag(AtomicU64);

fn main() {
    let calls = std::env::args().nth(1).and_then(|calls| calls.parse().ok());
    let calls: u64 = calls.unwrap_or(20_000);
    let store = MemoryStore::new();
    let flags = [0, 1].map(|_| Flag(AtomicU64::new(0)));
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let (store, flags) = (&store, &flags);
            scope.spawn(move || {
                let options = EndpointOptions {
                    transport: TransportChoice::Shm,
                    ..Default::default()
                };
                let endpoint = Endpoint::new(options).expect("an endpoint");
                let cancel = AtomicBool::new(false);
                let group =
                    Group::create(endpoint, store, rank, 2, GroupOptions::default(), &cancel);
                measure(&group.expect("a group"), flags, calls);
            });
        }
    });
}

fn measure(group: &Group, flags: &[Flag; 2], calls: u64) {
    let buffer = group.symmetric_with_signals(8, 1, "").expect("memory");
    let (mut bare, mut put) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let numbers = round * calls + 1..(round + 1) * calls + 1;
        let half = |began: Instant| began.elapsed().as_nanos() as f64 / (2 * calls) as f64;
        let began = Instant::now();
        for number in numbers.clone() {
            flag_turn(group.rank() as usize, flags, number);
        }
        bare.push(half(began));
        let began = Instant::now();
        for number in numbers {
            put_turn(group.rank(), &buffer, number);
        }
        put.push(half(began));
    }
    if group.rank() == 0 {
        let (bare, put) = (median(bare), median(put));
        println!("bare flag: {bare:.0} ns, put of 8 bytes and signal: {put:.0} ns");
        println!("ratio: {:.2}", put / bare);
    }
}

/// Rank 0 sets the other's flag first, and waits for its own.
fn flag_turn(rank: usize, flags: &[Flag; 2], number: u64) {
    let set = || flags[1 - rank].0.store(number, Ordering::Release);
    if rank == 0 {
        set();
    }
    let mut turns = 0_u32;
    while flags[rank].0.load(Ordering::Acquire) < number {
        std::hint::spin_loop();
        turns += 1;
        if turns.is_multiple_of(1 << 14) {
            // For machines with fewer cores than ranks.
            std::thread::yield_now();
        }
    }
    if rank == 1 {
        set();
    }
}

fn put_turn(rank: u32, buffer: &Symmetric, number: u64) {
    let how = OneSidedOptions::default();
    let put = || {
        let op = CellOp::Set(number);
        let signal = Some(SignalUpdate { signal: 0, op });
        let bytes = number.to_ne_bytes();
        // SAFETY: the bytes live until the wait has ended.
        let work = unsafe { buffer.put(1 - rank, 0, bytes.as_ptr(), 8, signal, how) };
        let work = work.expect("a put");
        work.wait(None, &mut || false).expect("a put");
    };
    if rank == 0 {
        put();
    }
    let waited = buffer.wait_signal(0, Compare::GreaterOrEqual, number, how);
    let work = waited.expect("a wait");
    work.wait(None, &mut || false).expect("a signal");
    if rank == 1 {
        put();
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
