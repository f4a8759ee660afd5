//! The handle of an operation in flight.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_call::Completion;

use crate::Error;
use crate::progress::{Engine, Waited};

/// An operation under way. Dropping the handle does not stop the operation.
#[derive(Clone)]
pub struct Work {
    pub(crate) completion: Arc<Completion>,
    pub(crate) engine: Arc<Engine>,
}

impl Work {
    /// Waits until the operation is done.
    ///
    /// The calling thread drives the operation itself where no other thread does. `interrupted` is
    /// asked about every 50 ms.
    pub fn wait(
        &self,
        timeout: Option<Duration>,
        interrupted: &mut dyn FnMut() -> bool,
    ) -> Result<Waited, Error> {
        self.engine.check_generation()?;
        let deadline = timeout.and_then(|time| Instant::now().checked_add(time));
        let waited = self.engine.wait(&self.completion, deadline, interrupted);
        match self.completion.result() {
            Some(result) => result.map(|()| Waited::Done),
            None => Ok(waited),
        }
    }

    /// Whether the operation is over, be it done or failed.
    pub fn is_done(&self) -> bool {
        self.completion.is_over()
    }

    /// Why the operation failed, if it did.
    pub fn error(&self) -> Option<Error> {
        self.completion.result().and_then(Result::err)
    }

    /// The rank that a received message came from, once it is done.
    pub fn source(&self) -> Option<u32> {
        self.completion.source()
    }

    /// Calls back when the operation is over; at once if it is already.
    ///
    /// Runs on whichever thread ends the operation, often the progress thread: it must be short and
    /// must not wait.
    pub fn on_done(&self, callback: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        self.completion.on_done(callback);
    }
}
