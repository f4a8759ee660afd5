//! Processor time of this process and of the whole machine.

use std::io;
use std::time::{Duration, Instant};

/// The cost of consecutive calls.
#[derive(Debug, Clone, Copy)]
pub struct ProcessorCost {
    /// Elapsed time.
    pub wall: Duration,
    /// User and system time of all threads of this process.
    pub process: Duration,
    /// Time that the machine's cores spent neither idle nor on other machines: for all processes,
    /// the kernel's threads and interrupts, regardless of their accounting. The kernel reports it
    /// in steps of about 10 ms per core.
    pub busy: Duration,
}

/// The clocks at one moment.
pub(crate) struct ProcessorMoment {
    now: Instant,
    process: Duration,
    unused: Duration,
}

impl ProcessorMoment {
    /// Reads the clocks.
    ///
    /// # Errors
    ///
    /// If `/proc/stat` cannot be read, or has an unknown format.
    pub(crate) fn now() -> io::Result<Self> {
        Ok(Self {
            unused: unused(&std::fs::read_to_string("/proc/stat")?)?,
            process: clock(libc::CLOCK_PROCESS_CPUTIME_ID),
            now: Instant::now(),
        })
    }

    /// The processor time of this process since then, before it waits for others.
    pub(crate) fn process_since(&self) -> Duration {
        clock(libc::CLOCK_PROCESS_CPUTIME_ID) - self.process
    }

    /// The cost since then.
    ///
    /// # Errors
    ///
    /// As for [`ProcessorMoment::now`].
    pub(crate) fn since(&self, process: Duration) -> io::Result<ProcessorCost> {
        let unused = unused(&std::fs::read_to_string("/proc/stat")?)?;
        let wall = self.now.elapsed();
        Ok(ProcessorCost {
            wall,
            process,
            // The kernel may decrease the time of waiting for a disk.
            busy: (wall * cores()).saturating_sub(unused.saturating_sub(self.unused)),
        })
    }
}

/// The unused time of all cores: idle, waiting for a disk, taken by the hypervisor.
fn unused(stat: &str) -> io::Result<Duration> {
    // cpu user nice system idle iowait irq softirq steal ...
    const FIELDS: [usize; 3] = [4, 5, 8];
    let total = stat.lines().next().unwrap_or_default();
    let words: Vec<&str> = total.split_ascii_whitespace().collect();
    let ticks = FIELDS.map(|field| words.get(field).and_then(|word| word.parse::<u64>().ok()));
    let ticks = ticks.iter().copied().sum::<Option<u64>>();
    let ticks = ticks.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat"))?;
    Ok(Duration::from_secs(ticks) / ticks_per_second())
}

fn ticks_per_second() -> u32 {
    // SAFETY: reads a constant of the system.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) as u32 }
}

/// The cores that `/proc/stat` counts.
fn cores() -> u32 {
    // SAFETY: reads a number of the system.
    unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) as u32 }
}

/// The time of a clock of the system.
pub(crate) fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call only writes `time`. The requested clocks always exist.
    unsafe { libc::clock_gettime(which, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_time_is_idle_waiting_and_stolen_time() {
        let found = unused("cpu  1 2 3 400 50 6 7 8 9 10\ncpu0 0 0 0 0\n").unwrap();
        assert_eq!(found, Duration::from_secs(458) / ticks_per_second());
        assert!(unused("cpu 1 2").is_err());
    }

    #[test]
    fn busy_thread_costs_its_running_time() {
        let begin = ProcessorMoment::now().unwrap();
        while begin.now.elapsed() < Duration::from_millis(50) {}
        let cost = begin.since(begin.process_since()).unwrap();
        assert!(cost.process > Duration::ZERO && cost.wall >= Duration::from_millis(50));
        assert!(cost.busy <= cost.wall * cores());
    }
}
