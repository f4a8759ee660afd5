//! Control block of the processes that measure one library: start barrier and times.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::TimedOperation;
use crate::mapping::Mapping;
use crate::processor::{self, ProcessorCost, ProcessorMoment};

/// The most calls of one turn.
pub const SAMPLES_MAX: usize = 16384;

/// The distance of flags: processors fetch pairs of cache lines.
pub(crate) const FLAG_BYTES: usize = 128;

/// Polls of a flag before the thread yields its core: another rank may have lost its own.
pub(crate) const POLLS: u32 = 1 << 13;

/// The time from the last arrival to the start, if every rank has a core: all ranks see the last
/// one's flag within it.
const LEAD_NS: u64 = 2000;

/// The interval of checks of a rank that sleeps while it waits.
const NAP: Duration = Duration::from_micros(200);

/// A rank's view of the page. Every word has one writer.
///
/// [Note: Start] The last rank to arrive at a barrier leaves it first, as its flag takes time to
/// reach the others. That time is longer than the smallest operations, and would be added to every
/// sample. So every rank also publishes its arrival time, by the clock that all processes of a host
/// share, and all ranks start a fixed time after the last arrival. If there are more ranks than
/// cores, they cannot run at the same moment, and start when they leave the barrier.
pub struct ControlBlock {
    mapping: Mapping,
    rank: usize,
    ranks: usize,
    spin: bool,
    barriers: AtomicU64,
}

/// The rewriting of a rank's whole input before every call, as a training step does.
pub struct Rewrite {
    /// The first byte of the input.
    pub start: *mut u8,
    /// The length of the input, in bytes.
    pub bytes: usize,
    /// The bytes that are written there repeatedly.
    pub pattern: Vec<u8>,
}

impl Rewrite {
    /// Writes the input.
    ///
    /// # Safety
    ///
    /// The input can be written, and nothing else uses it meanwhile.
    unsafe fn write(&self) {
        let mut done = 0;
        while done < self.bytes {
            let piece = self.pattern.len().min(self.bytes - done);
            let to = self.start.wrapping_add(done);
            // SAFETY: as this function requires; the piece is within the input, which does not
            // overlap the pattern.
            unsafe { to.copy_from_nonoverlapping(self.pattern.as_ptr(), piece) };
            done += piece;
        }
    }
}

impl ControlBlock {
    /// Opens the page in a file. `spin`: there is a core for every rank, so that waiting ranks do
    /// not have to yield.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or mapped.
    pub fn open(path: &Path, rank: usize, ranks: usize, spin: bool) -> io::Result<Self> {
        let mapping = Mapping::open(path, times_at(0, ranks) + ranks * SAMPLES_MAX * 8)?;
        Ok(Self {
            mapping,
            rank,
            ranks,
            spin,
            barriers: AtomicU64::new(0),
        })
    }

    /// Times calls, each after a rewrite and a start barrier. Returns the seconds of the slowest
    /// rank for every call.
    ///
    /// Every rank calls it with the same number of calls, at most [`SAMPLES_MAX`].
    ///
    /// # Errors
    ///
    /// The error of the operation. The other ranks then wait forever, and the process that started
    /// them must end them.
    ///
    /// # Panics
    ///
    /// If there are too many calls, or the pattern is empty.
    ///
    /// # Safety
    ///
    /// Nothing else uses the rewritten memory meanwhile.
    pub unsafe fn time(
        &self,
        operation: &mut dyn TimedOperation,
        rewrite: &Rewrite,
        calls: usize,
    ) -> Result<Vec<f64>, String> {
        assert!(calls <= SAMPLES_MAX && !rewrite.pattern.is_empty());
        for call in 0..calls {
            // SAFETY: as this function requires.
            unsafe { rewrite.write() };
            self.start();
            let begin = Instant::now();
            operation.call()?;
            self.note(call, operation.counted(begin.elapsed()));
        }
        self.barrier();
        let slowest = (0..calls).map(|call| self.slowest(call)).collect();
        self.barrier();
        Ok(slowest)
    }

    /// Measures the cost of consecutive calls, without barriers and rewriting, which would be added
    /// to the processor time. `wall` and `busy` last until the slowest rank has ended; ranks that
    /// wait for it sleep.
    ///
    /// Every rank calls it with the same number of calls.
    ///
    /// # Errors
    ///
    /// The error of the operation, as for [`ControlBlock::time`], or of reading the times.
    pub fn cost(
        &self,
        operation: &mut dyn TimedOperation,
        calls: u64,
    ) -> Result<ProcessorCost, String> {
        self.barrier_asleep();
        let begin = ProcessorMoment::now().map_err(|error| error.to_string())?;
        for _ in 0..calls {
            operation.call()?;
        }
        let process = begin.process_since();
        self.barrier_asleep();
        begin.since(process).map_err(|error| error.to_string())
    }

    /// The mean time in seconds of `count` round trips between ranks 0 and 1, over one flag for
    /// each direction.
    pub fn round_trip(&self, count: u64) -> f64 {
        let flags = [0, 1].map(|rank| self.mapping.word(ping_at(rank)));
        self.barrier();
        let first = flags[0].load(Ordering::Relaxed);
        self.barrier();
        let begin = Instant::now();
        for number in first + 1..=first + count {
            match self.rank {
                0 => {
                    flags[0].store(number, Ordering::Release);
                    self.await_flag(flags[1], number);
                }
                1 => {
                    self.await_flag(flags[0], number);
                    flags[1].store(number, Ordering::Release);
                }
                _ => break,
            }
        }
        let seconds = begin.elapsed().as_secs_f64() / count as f64;
        self.barrier();
        seconds
    }

    /// Returns on every rank at the same moment, if there is a core for each. See [Note: Start].
    fn start(&self) {
        let came = |rank| self.mapping.word(arrival_at(rank) + 8);
        came(self.rank).store(now_ns(), Ordering::Relaxed);
        self.barrier();
        if self.spin {
            let last = (0..self.ranks).map(|rank| came(rank).load(Ordering::Relaxed));
            let start = last.max().unwrap_or(0) + LEAD_NS;
            while now_ns() < start {}
        }
    }

    /// Returns once every rank has called it.
    fn barrier(&self) {
        self.meet(|flag, number| self.await_flag(flag, number));
    }

    /// As `barrier`, without using processor time while waiting.
    fn barrier_asleep(&self) {
        self.meet(|flag, number| {
            while flag.load(Ordering::Acquire) < number {
                std::thread::sleep(NAP);
            }
        });
    }

    fn meet(&self, wait: impl Fn(&AtomicU64, u64)) {
        let number = self.barriers.fetch_add(1, Ordering::Relaxed) + 1;
        self.mapping
            .word(arrival_at(self.rank))
            .store(number, Ordering::Release);
        for rank in 0..self.ranks {
            wait(self.mapping.word(arrival_at(rank)), number);
        }
    }

    fn await_flag(&self, flag: &AtomicU64, number: u64) {
        await_flag(flag, number, if self.spin { POLLS } else { 0 });
    }

    fn note(&self, call: usize, time: Duration) {
        let place = times_at(self.rank, self.ranks) + call * 8;
        let bits = time.as_secs_f64().to_bits();
        self.mapping.word(place).store(bits, Ordering::Relaxed);
    }

    fn slowest(&self, call: usize) -> f64 {
        let time = |rank| {
            let place = times_at(rank, self.ranks) + call * 8;
            f64::from_bits(self.mapping.word(place).load(Ordering::Relaxed))
        };
        (0..self.ranks).map(time).fold(0.0, f64::max)
    }
}

/// Polls a flag until it has reached a number.
pub(crate) fn await_flag(flag: &AtomicU64, number: u64, polls: u32) {
    let mut looked = 0;
    while flag.load(Ordering::Acquire) < number {
        match looked < polls {
            true => looked += 1,
            false => std::thread::yield_now(),
        }
    }
}

/// Nanoseconds of the clock that all processes of the host share.
fn now_ns() -> u64 {
    processor::clock(libc::CLOCK_MONOTONIC).as_nanos() as u64
}

fn arrival_at(rank: usize) -> usize {
    (2 + rank) * FLAG_BYTES
}

fn ping_at(rank: usize) -> usize {
    rank * FLAG_BYTES
}

fn times_at(rank: usize, ranks: usize) -> usize {
    (2 + ranks) * FLAG_BYTES + rank * SAMPLES_MAX * 8
}
