//! Throughput of each kernel on this machine, for tuning:
//! `cargo run --release --example throughput -p weft-kernels [BYTES]`.
//!
//! Rates count the bytes of one destination, so that 10 GB/s of a sum of four read 40 and write 10.
//! The default of 64 KiB per vector stays in the second-level cache.

use std::time::{Duration, Instant};

use weft_kernels::{DType, Finish, IsaLevel, ReduceOp, copy};

/// The duration of each kernel's measurement.
const PATIENCE: Duration = Duration::from_millis(10);

/// Vectors of the same length.
struct Vectors {
    memory: Vec<Vec<u8>>,
    bytes: usize,
}

impl Vectors {
    fn new(count: usize, bytes: usize) -> Vectors {
        Vectors {
            memory: vec![vec![0; bytes]; count],
            bytes,
        }
    }

    fn pointers(&mut self) -> Vec<*mut u8> {
        self.memory
            .iter_mut()
            .map(|vector| vector.as_mut_ptr())
            .collect()
    }

    /// Sums the first `srcs` vectors into the last `dsts` ones.
    fn sum(
        &mut self,
        level: IsaLevel,
        dtype: DType,
        op: ReduceOp,
        srcs: usize,
        dsts: usize,
    ) -> f64 {
        let pointers = self.pointers();
        let sources: Vec<*const u8> = pointers[..srcs]
            .iter()
            .map(|pointer| pointer.cast_const())
            .collect();
        let destinations = &pointers[pointers.len() - dsts..];
        let elements = self.bytes / dtype.size();
        let finish = Finish::Keep;
        // SAFETY: vectors of as many elements, a destination is a source or separate, and the level
        // is available.
        self.rate(|| unsafe { level.reduce(dtype, op, destinations, &sources, elements, finish) })
    }

    fn convert(&mut self, level: IsaLevel, from: DType, to: DType) -> f64 {
        let pointers = self.pointers();
        let elements = self.bytes / from.size().max(to.size());
        // SAFETY: the vectors have room for as many elements, and the level is available.
        self.rate(|| unsafe { level.convert(from, to, &pointers[1..2], pointers[0], elements) })
    }

    fn scale(&mut self, level: IsaLevel, dtype: DType) -> f64 {
        let pointers = self.pointers();
        let elements = self.bytes / dtype.size();
        // SAFETY: vectors of as many elements, and the level is available.
        self.rate(|| unsafe { level.scale(dtype, pointers[1], pointers[0], elements, 0.5) })
    }

    fn copy(&mut self, dsts: usize) -> f64 {
        let pointers = self.pointers();
        // SAFETY: vectors of as many bytes.
        self.rate(|| unsafe { copy(&pointers[1..=dsts], pointers[0], self.bytes) })
    }

    /// The best rate seen, in GB/s.
    fn rate(&self, work: impl Fn()) -> f64 {
        let calls = (1 << 18) / self.bytes.max(1) + 1;
        let begin = Instant::now();
        let mut best = f64::INFINITY;
        while begin.elapsed() < PATIENCE {
            let start = Instant::now();
            (0..calls).for_each(|_| work());
            best = best.min(start.elapsed().as_secs_f64() / calls as f64);
        }
        self.bytes as f64 / best / 1e9
    }
}

fn row(name: &str, rate: impl FnMut(&IsaLevel) -> f64) {
    let rates: String = IsaLevel::available()
        .iter()
        .map(rate)
        .map(|rate| format!("{rate:>10.2}"))
        .collect();
    println!("{name:<34}{rates}");
}

fn main() {
    let bytes = std::env::args()
        .nth(1)
        .map_or(64 * 1024, |text| text.parse().expect("a number of bytes"));
    let mut vectors = Vectors::new(9, bytes);
    let levels: String = IsaLevel::available()
        .iter()
        .map(|level| format!("{:>10}", level.name()))
        .collect();
    println!("{:<34}{levels}", format!("GB/s, vectors of {bytes} bytes"));
    for dtype in DType::ALL {
        for op in [ReduceOp::Sum, ReduceOp::Product, ReduceOp::Max] {
            row(&format!("{op} {dtype} 2 -> 1"), |level| {
                vectors.sum(*level, dtype, op, 2, 1)
            });
        }
    }
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        for (srcs, dsts) in [(2, 2), (3, 1), (4, 1), (4, 4), (8, 1), (8, 8)] {
            let name = format!("sum {dtype} {srcs} -> {dsts}");
            row(&name, |level| {
                vectors.sum(*level, dtype, ReduceOp::Sum, srcs, dsts)
            });
        }
    }
    let floats = [DType::F64, DType::F32, DType::F16, DType::Bf16];
    for (from, to) in floats
        .iter()
        .flat_map(|from| floats.iter().map(move |to| (*from, *to)))
        .filter(|(a, b)| a != b)
    {
        row(&format!("convert {from} to {to}"), |level| {
            vectors.convert(*level, from, to)
        });
    }
    for dtype in floats {
        row(&format!("scale {dtype}"), |level| {
            vectors.scale(*level, dtype)
        });
    }
    for dsts in [1, 2, 4, 8] {
        println!(
            "{:<34}{:>10.2}",
            format!("copy 1 -> {dsts}"),
            vectors.copy(dsts)
        );
    }
}
