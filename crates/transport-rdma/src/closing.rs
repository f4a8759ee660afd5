//! Goodbyes: earlier data is delivered to the peer first, then the goodbye.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::LinkError;

use crate::lock::lock;

/// How long a goodbye may wait for the peer to receive the data before it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an adapter may take for requests that it has begun.
const ADAPTER_TIMEOUT: Duration = Duration::from_secs(2);
/// The number of checks before sleeping.
const LOOKS: u32 = 100;

/// The goodbyes of one endpoint that are not sent yet.
#[derive(Default)]
pub(crate) struct Goodbyes {
    open: Mutex<usize>,
    changed: Condvar,
}

impl Goodbyes {
    /// Waits until all are sent, at most for the timeout.
    pub(crate) fn wait(&self, timeout: Duration) {
        let open = lock(&self.open);
        let waited = (self.changed).wait_timeout_while(open, timeout, |open| *open > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A link that ends with a goodbye.
pub(crate) trait ClosingLink: Send + Sync + 'static {
    /// Whether everything that it sent is done.
    fn is_done(&self) -> Result<bool, LinkError>;

    /// Sends the goodbye.
    fn say_goodbye(&self);
}

/// Ends a closed link once everything that it sent is done: immediately, or on a new thread.
pub(crate) fn say_goodbye(goodbyes: &Arc<Goodbyes>, link: Arc<impl ClosingLink>) {
    if !matches!(link.is_done(), Ok(false)) {
        return link.say_goodbye();
    }
    *lock(&goodbyes.open) += 1;
    let (counted, closing) = (Arc::clone(goodbyes), Arc::clone(&link));
    let spawned = thread::Builder::new()
        .name("weft-rdma-close".into())
        .spawn(move || {
            let mut polling = PollingWait::of(GOODBYE_TIMEOUT);
            while let Ok(false) = closing.is_done() {
                if !polling.wait() {
                    break;
                }
            }
            closing.say_goodbye();
            *lock(&counted.open) -= 1;
            counted.changed.notify_all();
        });
    if spawned.is_err() {
        // Without a thread, queued data is lost, but the goodbye is sent.
        link.say_goodbye();
        *lock(&goodbyes.open) -= 1;
    }
}

/// Waits in small steps, for a limited time.
pub(crate) struct PollingWait {
    until: Instant,
    looks: u32,
}

impl PollingWait {
    /// With the time limit for adapters.
    pub(crate) fn new() -> PollingWait {
        PollingWait::of(ADAPTER_TIMEOUT)
    }

    fn of(time: Duration) -> PollingWait {
        PollingWait {
            until: Instant::now() + time,
            looks: 0,
        }
    }

    /// Waits a little. False once the time is over.
    pub(crate) fn wait(&mut self) -> bool {
        self.looks += 1;
        match self.looks < LOOKS {
            true => thread::yield_now(),
            false => thread::sleep(Duration::from_micros(200)),
        }
        Instant::now() < self.until
    }
}
