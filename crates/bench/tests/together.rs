//! Tests of the control block, the prototype and the floors, between threads instead of processes.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use weft_bench::{
    Add, ControlBlock, Copy, LibraryCall, OneStream, Prototype, Rewrite, Streams, TcpRoundTrip,
    TimedOperation,
};
use weft_kernels::DType;

/// A unique file name; the file is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-bench-{}-{name}", std::process::id()));
        assert!(!path.exists());
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A test that fails earlier has not created it.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An operation that fails unless all ranks have made the same number of calls.
struct Counted<'a> {
    arrived: &'a AtomicUsize,
    ranks: usize,
    calls: usize,
}

impl TimedOperation for Counted<'_> {
    fn call(&mut self) -> Result<(), String> {
        self.calls += 1;
        let arrived = self.arrived.fetch_add(1, Ordering::SeqCst) + 1;
        let early = (self.calls - 1) * self.ranks;
        let late = self.calls * self.ranks;
        match (early + 1..=late).contains(&arrived) {
            true => Ok(()),
            false => Err(format!("arrival {arrived} in call {}", self.calls)),
        }
    }
}

fn rewrite(memory: &mut [f32], value: f32) -> Rewrite {
    Rewrite {
        start: memory.as_mut_ptr().cast(),
        bytes: size_of_val(memory),
        pattern: value.to_ne_bytes().repeat(3),
    }
}

#[test]
fn calls_start_together_and_report_the_slowest_rank() {
    let file = Scratch::new("control-block");
    let arrived = AtomicUsize::new(0);
    let ranks = 3;
    let times = thread::scope(|scope| {
        let rank = |rank| {
            let (file, arrived) = (&file.0, &arrived);
            scope.spawn(move || {
                let control_block = ControlBlock::open(file, rank, ranks, false).unwrap();
                let mut memory = vec![0.0; 100];
                let rewrite = rewrite(&mut memory, rank as f32);
                let mut operation = Counted {
                    arrived,
                    ranks,
                    calls: 0,
                };
                // SAFETY: only this thread uses the memory.
                let times = unsafe { control_block.time(&mut operation, &rewrite, 200) }.unwrap();
                assert!(memory.iter().all(|value| *value == rank as f32));
                times
            })
        };
        let threads: Vec<_> = (0..ranks).map(rank).collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert_eq!(times[0].len(), 200);
    assert!(times[0].iter().all(|time| *time > 0.0));
    assert_eq!(times[0], times[1]);
    assert_eq!(times[0], times[2]);
}

#[test]
fn round_trips_take_time() {
    let file = Scratch::new("flags");
    thread::scope(|scope| {
        for rank in 0..2 {
            let file = &file.0;
            scope.spawn(move || {
                let control_block = ControlBlock::open(file, rank, 2, false).unwrap();
                assert!(control_block.round_trip(100) > 0.0);
                assert!(control_block.round_trip(100) > 0.0);
            });
        }
    });
}

#[test]
fn the_prototype_adds() {
    // One file, one pair after another.
    let (file, start) = (Scratch::new("prototype"), Scratch::new("start"));
    for elements in [1, 2, 5, 10_007] {
        thread::scope(|scope| {
            for rank in 0..2 {
                let (file, start) = (&file.0, &start.0);
                scope.spawn(move || adds(file, start, rank, elements));
            }
        });
        std::fs::remove_file(&start.0).unwrap();
    }
    assert!(Prototype::open(&file.0, 2, DType::F32, 1).is_err());
}

fn adds(file: &Path, start: &Path, rank: usize, elements: usize) {
    let control_block = ControlBlock::open(start, rank, 2, false).unwrap();
    let mut prototype = Prototype::open(file, rank, DType::F32, elements).unwrap();
    let buffer = prototype.buffer();
    let rewrite = Rewrite {
        start: buffer,
        bytes: elements * 4,
        pattern: (1.0 + rank as f32).to_ne_bytes().into(),
    };
    // SAFETY: only this rank uses the buffer.
    unsafe { control_block.time(&mut prototype, &rewrite, 20) }.unwrap();
    // SAFETY: the buffer has this many elements, and nothing writes to it any more.
    let sums = unsafe { std::slice::from_raw_parts(buffer.cast::<f32>(), elements) };
    assert!(sums.iter().all(|sum| *sum == 3.0));
}

#[test]
fn floors_copy_and_add_correctly() {
    let (mut a, mut b, mut c) = (vec![1.0_f32; 100], vec![2.0_f32; 100], vec![0.0_f32; 100]);
    let vectors = vec![a.as_mut_ptr().cast(), b.as_mut_ptr().cast()];
    // SAFETY: the vectors do not overlap, and only this thread uses them.
    let mut add = unsafe { Add::new(vectors, DType::F32, 100) };
    add.call().unwrap();
    // SAFETY: as above.
    let mut copy = unsafe { Copy::new(c.as_mut_ptr().cast(), a.as_ptr().cast(), 400) };
    copy.call().unwrap();
    assert_eq!([&a, &b, &c].map(|v| v.iter().sum::<f32>()), [300.0; 3]);
}

extern "C" fn doubled(input: *const u8, output: *mut u8, count: usize) -> i32 {
    for index in 0..count {
        // SAFETY: the test's vectors have this length.
        let value = unsafe { *input.wrapping_add(index) };
        // SAFETY: as above.
        unsafe { *output.wrapping_add(index) = 2 * value };
    }
    i32::from(count == 0)
}

#[test]
fn library_functions_are_called_and_their_errors_returned() {
    let (input, mut output) = ([1, 2, 3], [0; 3]);
    // SAFETY: the arrays have three elements and outlive the call.
    let mut call = unsafe { LibraryCall::new(doubled, input.as_ptr(), output.as_mut_ptr(), 3) };
    call.call().unwrap();
    assert_eq!(output, [2, 4, 6]);
    // SAFETY: as above.
    let mut none = unsafe { LibraryCall::new(doubled, input.as_ptr(), output.as_mut_ptr(), 0) };
    assert_eq!(none.call(), Err("the library returned 1".into()));
}

/// Both ends of a connection over the loopback interface.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (one, listener.accept().unwrap().0)
}

#[test]
fn counted_calls_are_consecutive() {
    let file = Scratch::new("cost");
    let control_block = ControlBlock::open(&file.0, 0, 1, true).unwrap();
    let arrived = AtomicUsize::new(0);
    let mut operation = Counted {
        arrived: &arrived,
        ranks: 1,
        calls: 0,
    };
    let cost = control_block.cost(&mut operation, 500).unwrap();
    assert_eq!(arrived.load(Ordering::SeqCst), 500);
    assert!(cost.wall > Duration::ZERO);
    operation.calls = 0;
    assert!(control_block.cost(&mut operation, 1).is_err());
}

#[test]
fn bare_streams_add_all_contributions() {
    for (ranks, elements) in [(2, 1), (2, 300_001), (3, 2), (4, 100_003)] {
        let mut streams: Vec<Vec<TcpStream>> = (0..ranks).map(|_| Vec::new()).collect();
        for high in 0..ranks {
            for low in 0..high {
                let (one, other) = connection();
                streams[low].push(one);
                streams[high].push(other);
            }
        }
        thread::scope(|scope| {
            for (rank, streams) in streams.into_iter().enumerate() {
                scope.spawn(move || {
                    let mut memory = vec![0.0_f32; elements];
                    let buffer = memory.as_mut_ptr();
                    // SAFETY: the memory outlives the operation, and only this thread uses it.
                    let made =
                        unsafe { Streams::new(streams, rank, buffer.cast(), DType::F32, elements) };
                    let mut operation = made.unwrap();
                    for call in 1..4 {
                        let own = |place| ((place % 7 + rank) * call) as f32;
                        memory
                            .iter_mut()
                            .enumerate()
                            .for_each(|(place, value)| *value = own(place));
                        operation.call().unwrap();
                        let sum = |place| {
                            (0..ranks)
                                .map(|rank| (place % 7 + rank) * call)
                                .sum::<usize>() as f32
                        };
                        assert!(
                            memory
                                .iter()
                                .enumerate()
                                .all(|(place, value)| *value == sum(place))
                        );
                    }
                });
            }
        });
    }
}

#[test]
fn byte_returns_over_blocking_and_polled_sockets() {
    for polling in [false, true] {
        let (one, other) = connection();
        thread::scope(|scope| {
            for (stream, first) in [(one, true), (other, false)] {
                scope.spawn(move || {
                    let mut operation = TcpRoundTrip::new(Some(stream), first, polling).unwrap();
                    (0..10).for_each(|_| operation.call().unwrap());
                });
            }
        });
    }
    TcpRoundTrip::new(None, false, true)
        .unwrap()
        .call()
        .unwrap();
}

#[test]
fn only_receivers_counted_time_of_a_stream_counts() {
    let (one, other) = connection();
    let whole = Duration::from_secs(1000);
    let counted = thread::scope(|scope| {
        let ends = [(one, true), (other, false)].map(|(stream, sends)| {
            scope.spawn(move || {
                let mut operation = OneStream::new(Some(stream), sends, 1000, 1 << 20).unwrap();
                (0..3).for_each(|_| operation.call().unwrap());
                operation.counted(whole)
            })
        });
        ends.map(|end| end.join().unwrap())
    });
    assert_eq!(counted[0], Duration::ZERO);
    assert!(Duration::ZERO < counted[1] && counted[1] < whole);
}
