//! The queue of accepted callers that wait for their handshake, by a bounded number of threads.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_transport::fork::Descriptor;

/// The most threads that run handshakes.
const THREADS_MAX: usize = 16;
/// The most callers that wait for a thread. Further ones are dropped.
const WAITING_MAX: usize = 1024;

/// Runs the handshake with a caller.
pub(crate) type Handshake = dyn Fn(Descriptor) + Send + Sync;

/// The accept queue: see the module.
#[derive(Clone, Default)]
pub(crate) struct AcceptQueue(Arc<Mutex<WaitingCallers>>);

#[derive(Default)]
struct WaitingCallers {
    waiting: VecDeque<Descriptor>,
    threads: usize,
}

impl AcceptQueue {
    /// Queues a caller for its handshake, and starts a thread if needed, within bounds. Threads end
    /// when no caller waits.
    pub(crate) fn add(&self, caller: Descriptor, answer: &Arc<Handshake>) {
        let mut queue = self.locked();
        if queue.waiting.len() < WAITING_MAX {
            queue.waiting.push_back(caller);
        }
        if queue.threads >= THREADS_MAX {
            return;
        }
        queue.threads += 1;
        let (own, answer) = (self.clone(), Arc::clone(answer));
        let thread = std::thread::Builder::new().name("weft-shm-answer".into());
        if thread.spawn(move || own.serve(&*answer)).is_err() {
            queue.threads -= 1;
            // Without any thread no caller would be served: they see the end, as a refusal.
            if queue.threads == 0 {
                queue.waiting.clear();
            }
        }
    }

    fn serve(&self, answer: &Handshake) {
        while let Some(caller) = self.next() {
            answer(caller);
        }
    }

    /// The next caller. Without one, the thread is not counted any more.
    fn next(&self) -> Option<Descriptor> {
        let mut queue = self.locked();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            queue.threads -= 1;
        }
        next
    }

    fn locked(&self) -> MutexGuard<'_, WaitingCallers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    #[test]
    fn few_threads_serve_many_callers() {
        const CALLERS: usize = 100;
        // The number of callers in their handshake, the most at a time, and how many are done.
        let counts = Arc::new((Mutex::new((0, 0, 0)), Condvar::new()));
        let counted = Arc::clone(&counts);
        let answer: Arc<Handshake> = Arc::new(move |_| {
            let (lock, changed) = &*counted;
            let mut counts = lock.lock().unwrap();
            counts.0 += 1;
            counts.1 = counts.1.max(counts.0);
            // No handshake ends before the maximum of threads is reached.
            while counts.1 < THREADS_MAX {
                changed.notify_all();
                counts = changed.wait(counts).unwrap();
            }
            drop(counts);
            std::thread::sleep(Duration::from_millis(1));
            let mut counts = lock.lock().unwrap();
            counts.0 -= 1;
            counts.2 += 1;
            changed.notify_all();
        });
        let queue = AcceptQueue::default();
        for _ in 0..CALLERS {
            let (caller, _) = UnixStream::pair().unwrap();
            queue.add(Descriptor::make(|| Ok(caller.into())).unwrap(), &answer);
        }
        let (lock, changed) = &*counts;
        let mut counts = lock.lock().unwrap();
        while counts.2 < CALLERS {
            let (waited, timeout) = changed
                .wait_timeout(counts, Duration::from_secs(20))
                .unwrap();
            assert!(!timeout.timed_out(), "{waited:?}");
            counts = waited;
        }
        assert_eq!(counts.1, THREADS_MAX);
    }
}
