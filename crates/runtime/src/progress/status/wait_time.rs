//! The time that threads of this rank wait for operations, counted once somebody watches.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The time during which at least one thread waits.
#[derive(Default, Debug)]
pub(crate) struct WaitTime {
    counts: AtomicBool,
    state: Mutex<Waiting>,
}

#[derive(Default, Debug)]
struct Waiting {
    threads: usize,
    since: Option<Instant>,
    total: Duration,
}

impl WaitTime {
    /// Counts from now on.
    pub(crate) fn begin_counting(&self) {
        self.counts.store(true, Ordering::Relaxed);
    }

    /// Counts until the returned value is dropped.
    pub(crate) fn enter(&self) -> Option<WaitingThread<'_>> {
        if !self.counts.load(Ordering::Relaxed) {
            return None;
        }
        self.change(|waiting| {
            waiting.threads += 1;
            waiting.since.get_or_insert_with(Instant::now);
        });
        Some(WaitingThread(self))
    }

    /// The time so far, with that of waits that have not ended.
    pub(crate) fn total(&self) -> Duration {
        self.change(|waiting| {
            let current = waiting
                .since
                .map_or(Duration::ZERO, |since| since.elapsed());
            waiting.total + current
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Waiting) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A thread that waits.
pub(crate) struct WaitingThread<'a>(&'a WaitTime);

impl Drop for WaitingThread<'_> {
    fn drop(&mut self) {
        self.0.change(|waiting| {
            waiting.threads -= 1;
            if waiting.threads == 0 {
                waiting.total += waiting.since.take().map_or(Duration::ZERO, |s| s.elapsed());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_waits_count_once() {
        let time = WaitTime::default();
        assert!(time.enter().is_none());
        time.begin_counting();
        let started = Instant::now();
        let (first, second) = (time.enter(), time.enter());
        std::thread::sleep(Duration::from_millis(5));
        drop(first);
        assert!(time.total() >= Duration::from_millis(5));
        drop(second);
        let total = time.total();
        assert!(total >= Duration::from_millis(5) && total <= started.elapsed());
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(time.total(), total);
    }
}
