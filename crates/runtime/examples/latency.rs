//! Latency of one small all-reduce between two ranks of this process, without Python:
//! `cargo run --release --example latency -p weft-runtime [shm|tcp|loopback]`.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use weft_kernels::DType;
use weft_runtime::{
    Call, Counts, Endpoint, EndpointOptions, Group, GroupOptions, MemoryStore, Op, TransportChoice,
};
use weft_schedule::Collective;

const CALLS: u32 = 50_000;

fn main() {
    let transport = match std::env::args().nth(1).as_deref() {
        Some("tcp") => TransportChoice::Tcp,
        Some("loopback") => TransportChoice::Loopback,
        _ => TransportChoice::Shm,
    };
    let store = MemoryStore::new();
    std::thread::scope(|scope| {
        for rank in 0..2 {
            let store = &store;
            scope.spawn(move || {
                let options = EndpointOptions {
                    transport,
                    ..Default::default()
                };
                let endpoint = Endpoint::new(options).expect("an endpoint");
                let cancel = AtomicBool::new(false);
                let group =
                    Group::create(endpoint, store, rank, 2, GroupOptions::default(), &cancel);
                measure(&group.expect("a group"));
            });
        }
    });
}

fn measure(group: &Group) {
    for elements in [1, 16, 256, 1024] {
        let mut vector = vec![1.0_f32; elements];
        let began = Instant::now();
        for _ in 0..CALLS {
            all_reduce(group, &mut vector);
        }
        let each = began.elapsed() / CALLS;
        if group.rank() == 0 {
            println!("{:>6} bytes: {each:?}", 4 * elements);
        }
    }
}

fn all_reduce(group: &Group, vector: &mut [f32]) {
    let call = Call {
        collective: Collective::AllReduce,
        dtype: DType::F32,
        op: Op::Max,
        input: vector.as_ptr().cast(),
        output: vector.as_mut_ptr().cast(),
        counts: Counts::Equal(vector.len() as u64),
        priority: 0,
        timeout: None,
        algorithm: None,
        tiling: Default::default(),
        wire: None,
    };
    // SAFETY: the vector outlives the wait, and nothing else uses it.
    let work = unsafe { group.issue(call, false) }.expect("a valid call");
    work.wait(None, &mut || false).expect("an all-reduce");
}
