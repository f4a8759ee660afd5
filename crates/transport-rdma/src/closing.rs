//! Goodbyes: what was sent before gets to the peer, and then the peer is told.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weft_transport::LinkError;

use crate::lock::lock;

/// How long a goodbye may wait for the peer to take what is before it.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an adapter may take for what it has begun.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often to look without sleeping.
const LOOKS: u32 = 100;

/// The goodbyes of one endpoint that are not said yet.
#[derive(Default)]
pub(crate) struct Goodbyes {
    open: Mutex<usize>,
    changed: Condvar,
}

impl Goodbyes {
    /// Waits until all are said, for so long at most.
    pub(crate) fn wait(&self, timeout: Duration) {
        let open = lock(&self.open);
        let waited = (self.changed).wait_timeout_while(open, timeout, |open| *open > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A link that ends with a goodbye.
pub(crate) trait Closing: Send + Sync + 'static {
    /// Whether what it had sent is done.
    fn is_done(&self) -> Result<bool, LinkError>;

    /// Sends the goodbye.
    fn say_goodbye(&self);
}

/// Ends a link that is closed, once what it had sent is done: now, or on a thread of its own.
pub(crate) fn say_goodbye(goodbyes: &Arc<Goodbyes>, link: Arc<impl Closing>) {
    if !matches!(link.is_done(), Ok(false)) {
        return link.say_goodbye();
    }
    *lock(&goodbyes.open) += 1;
    let (counted, closing) = (Arc::clone(goodbyes), Arc::clone(&link));
    let spawned = thread::Builder::new()
        .name("weft-rdma-close".into())
        .spawn(move || {
            let mut patience = Patience::of(GOODBYE_TIMEOUT);
            while let Ok(false) = closing.is_done() {
                if !patience.wait() {
                    break;
                }
            }
            closing.say_goodbye();
            *lock(&counted.open) -= 1;
            counted.changed.notify_all();
        });
    if spawned.is_err() {
        // Without a thread what waits is lost, and the goodbye is not.
        link.say_goodbye();
        *lock(&goodbyes.open) -= 1;
    }
}

/// Waits in small steps, for some time.
pub(crate) struct Patience {
    until: Instant,
    looks: u32,
}

impl Patience {
    /// For an adapter.
    pub(crate) fn new() -> Patience {
        Patience::of(PATIENCE)
    }

    fn of(time: Duration) -> Patience {
        Patience {
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
