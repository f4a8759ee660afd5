//! Control block of the measuring processes of one library: start barrier and times.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::TimedOperation;
use crate::mapping::Mapping;
use crate::processor::{self, ProcessorCost, ProcessorMoment};

/// The most calls of one turn.
pub const SAMPLES_MAX: usize = 16384;

/// Flags lie this far apart: processors fetch pairs of cache lines.
pub(crate) const FLAG_BYTES: usize = 128;

/// How often a flag is looked at before the core is offered to others: somebody has been taken off
/// its own.
pub(crate) const LOOKS: u32 = 1 << 13;

/// How long after the last arrival the ranks start, if all of them have a core: until then the last
/// one's flag has been seen by everybody.
const LEAD_NS: u64 = 2000;

/// How often who waits asleep looks.
const NAP: Duration = Duration::from_micros(200);

/// One rank's view of the page. Every word has one writer.
///
/// [Note: Start] Whoever comes last to a barrier leaves it first, by the time that its flag takes
/// to the others. That time, which is longer than the smallest operations, would be added to every
/// sample. So every rank also tells when it came, by the clock that all processes of a host share,
/// and all start when some time has passed since the last one did. Where ranks outnumber cores they
/// cannot run at the same moment, and start as they leave the barrier.
pub struct ControlBlock {
    mapping: Mapping,
    rank: usize,
    ranks: usize,
    spin: bool,
    barriers: AtomicU64,
}

/// What every rank writes before every call: its whole input, as a training step does.
pub struct Rewrite {
    /// Where the input begins.
    pub start: *mut u8,
    /// Its length.
    pub bytes: usize,
    /// What is written there, again and again.
    pub pattern: Vec<u8>,
}

impl Rewrite {
    /// Writes it.
    ///
    /// # Safety
    /// The input can be written, and nobody else touches it meanwhile.
    unsafe fn write(&self) {
        let mut done = 0;
        while done < self.bytes {
            let piece = self.pattern.len().min(self.bytes - done);
            let to = self.start.wrapping_add(done);
            // SAFETY: the caller's promise; the piece lies within the input, which is apart from
            // the pattern.
            unsafe { to.copy_from_nonoverlapping(self.pattern.as_ptr(), piece) };
            done += piece;
        }
    }
}

impl ControlBlock {
    /// Opens the page in a file. `spin`: there is a core for every rank, so that waiting ranks need
    /// not step aside.
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

    /// Times calls, each after a rewrite and a start barrier: for every call the seconds of the
    /// slowest rank.
    ///
    /// Every rank calls it with the same number of calls, at most [`SAMPLES_MAX`].
    ///
    /// # Errors
    /// What the operation says; the other ranks then wait for ever, and whoever started them has to
    /// end them.
    ///
    /// # Panics
    /// If there are too many calls, or the pattern is empty.
    ///
    /// # Safety
    /// Nobody else touches what is rewritten meanwhile.
    pub unsafe fn time(
        &self,
        operation: &mut dyn TimedOperation,
        rewrite: &Rewrite,
        calls: usize,
    ) -> Result<Vec<f64>, String> {
        assert!(calls <= SAMPLES_MAX && !rewrite.pattern.is_empty());
        for call in 0..calls {
            // SAFETY: the caller's promise.
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

    /// What calls cost that are made one behind another, with nothing between them: no barrier and
    /// no rewriting, which would be added to the processor time. `wall` and `busy` last until the
    /// slowest rank has ended; who waits for it sleeps.
    ///
    /// Every rank calls it with the same number of calls.
    ///
    /// # Errors
    /// What the operation says, as for [`ControlBlock::time`]; or the times cannot be read.
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

    /// Seconds of a round trip from rank 0 to rank 1 and back, over one flag for each way: the mean
    /// of `count`.
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

    /// As `barrier`, where waiting must not take processor time.
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
        await_flag(flag, number, if self.spin { LOOKS } else { 0 });
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

/// Looks at a flag until it has come to a number.
pub(crate) fn await_flag(flag: &AtomicU64, number: u64, looks: u32) {
    let mut looked = 0;
    while flag.load(Ordering::Acquire) < number {
        match looked < looks {
            true => looked += 1,
            false => std::thread::yield_now(),
        }
    }
}

/// Nanoseconds of the clock that all processes of the host read alike.
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
