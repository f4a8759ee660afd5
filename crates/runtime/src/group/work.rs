//! Handle of an unfinished operation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_call::Completion;

use crate::Error;
use crate::progress::{Engine, Waited};

/// The handle of an operation. Dropping it does not stop the operation.
#[derive(Clone)]
pub struct Work {
    pub(crate) completion: Arc<Completion>,
    pub(crate) engine: Arc<Engine>,
}

impl Work {
    /// Waits until the operation has ended.
    ///
    /// The calling thread drives the operation itself if no other thread does. `interrupted` is
    /// called about every 50 ms.
    ///
    /// # Errors
    ///
    /// The error of an operation that failed.
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

    /// Whether the operation has ended, successfully or not.
    pub fn is_done(&self) -> bool {
        self.completion.is_over()
    }

    /// The operation's error, if it failed.
    pub fn error(&self) -> Option<Error> {
        self.completion.result().and_then(Result::err)
    }

    /// The sender of a received message, once the operation has succeeded.
    pub fn source(&self) -> Option<u32> {
        self.completion.source()
    }

    /// Calls back when the operation ends; immediately if it has ended.
    ///
    /// The callback runs on the thread that ends the operation, often the progress thread: it must
    /// be short and must not wait.
    pub fn on_done(&self, callback: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        self.completion.on_done(callback);
    }
}
