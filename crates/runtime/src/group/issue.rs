//! Issue of collective operations: the path from a call to an operation in flight.

use std::sync::{Arc, PoisonError};

use weft_call::{Call, Completion, Due};
use weft_channel::PartSet;

use super::{Group, Work, closed};
use crate::Error;
use crate::execution::{Attempt, Entered};
use crate::progress::Issued;

impl Group {
    /// Starts a collective operation.
    ///
    /// With `background`, the progress thread is woken to drive it; without, the caller is about to
    /// wait for it. Errors that depend on this rank's arguments alone are returned at once, all
    /// others by [`Work::wait`].
    ///
    /// # Safety
    /// Until the operation is over, `call.input` stays readable and unchanged and `call.output`
    /// stays writable, for the sizes that `call.collective` and `call.counts` say, and nobody else
    /// touches `call.output`.
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
        let call = call.for_schedules(self.rank).in_format_of(wire);
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
            let deadline = Due::within(allowed).deadline;
            for peer in peers {
                self.connect(peer, PartSet::NONE, deadline, &self.cancel)
                    .inspect_err(|error| self.give_up(error))?;
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

    /// Hands the engine an operation that got stuck on the calling thread.
    fn resume(&self, call: Call, entered: Entered) -> Result<Work, Error> {
        let completion = Completion::new();
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.resume(call, completion.clone(), entered, finished)
        })?;
        Ok(self.work(completion))
    }

    /// A rank that cannot take part in a call would keep the others waiting: the group is broken.
    pub(super) fn give_up(&self, error: &Error) {
        self.engine.with(|state, finished| {
            if let Some(group) = state.groups.get_mut(&self.id) {
                group.fail_and_tell(error, finished);
            }
        });
    }
}
