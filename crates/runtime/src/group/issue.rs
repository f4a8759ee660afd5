//! Issue of collective operations: the path from a call to an unfinished operation.

use std::sync::{Arc, PoisonError};

use weft_call::{Call, Completion, TimeLimit};
use weft_channel::PartSet;

use super::{Group, Work, closed};
use crate::Error;
use crate::execution::{Attempt, Entered};
use crate::progress::Issued;

impl Group {
    /// Starts a collective operation.
    ///
    /// With `background`, wakes the progress thread to drive it; without, the caller must wait for
    /// it.
    ///
    /// # Errors
    ///
    /// Errors that depend only on this rank's arguments, a broken or closed group, and failed
    /// connections. [`Work::wait`] returns all others.
    ///
    /// # Safety
    ///
    /// Until the operation has ended, `call.input` stays readable and unchanged and `call.output`
    /// stays writable, for the sizes that `call.collective` and `call.counts` determine, and
    /// nothing else uses `call.output`.
    pub unsafe fn issue(&self, call: Call, background: bool) -> Result<Work, Error> {
        let Some(counters) = self.counters.get() else {
            return self.begin(call, background);
        };
        let timer = counters.collective(&call, self.size());
        self.begin(call, background)
            .inspect(|work| timer.follow(work))
    }

    fn begin(&self, call: Call, background: bool) -> Result<Work, Error> {
        self.check_usable()?;
        call.check(self.rank, self.size())?;
        let wire = self.options.terms.policy.wire;
        let call = call.for_schedules(self.rank).with_wire_format(wire);
        if !background && let Some(path) = &self.calling_thread {
            let presence = self.engine.endpoint().doorbell().enter();
            match path.attempt(&call, self.engine.spin(), &presence) {
                Attempt::Done => return Ok(self.work(self.done.clone())),
                Attempt::Entered(entered) => return self.resume(call, entered),
                Attempt::NotNow => {}
            }
        }
        let order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let completion = Completion::new();
        let mut issued = self.enqueue(call, &completion)?;
        while let Issued::Unconnected(call, peers) = issued {
            let allowed = call.timeout.unwrap_or(self.options.timeout);
            let deadline = TimeLimit::within(allowed).deadline;
            for peer in peers {
                self.connect(peer, PartSet::NONE, deadline, &self.cancel)
                    .inspect_err(|error| self.break_with(error))?;
            }
            issued = self.enqueue(call, &completion)?;
        }
        drop(order);
        if background {
            self.engine.hand_over();
        }
        Ok(self.work(completion))
    }

    fn enqueue(&self, call: Call, completion: &Arc<Completion>) -> Result<Issued, Error> {
        self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.issue(call, completion)
        })
    }

    pub(super) fn work(&self, completion: Arc<Completion>) -> Work {
        let engine = self.engine.clone();
        Work { completion, engine }
    }

    /// Passes an operation that blocked on the calling thread to the engine.
    fn resume(&self, call: Call, entered: Entered) -> Result<Work, Error> {
        let completion = Completion::new();
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.resume(call, completion.clone(), entered, finished)
        })?;
        Ok(self.work(completion))
    }

    /// Breaks the group because this rank cannot take part in a call, for which the others would
    /// wait until the timeout.
    pub(super) fn break_with(&self, error: &Error) {
        self.engine.with(|state, finished| {
            if let Some(group) = state.groups.get_mut(&self.id) {
                group.break_group(error, finished);
            }
        });
    }
}
