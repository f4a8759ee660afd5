//! Point-to-point messages, as users call them. See `mailbox.rs` for how they travel.

use std::time::Duration;

use crate::Error;
use crate::group::{Group, closed};
use crate::mailbox::{Due, Posted, Source, Target};
use crate::memory;
use crate::message::Message;
use crate::work::{Completion, Work};

impl Group {
    /// Sends bytes to a rank, which receives them by the same tag.
    ///
    /// With `background`, the progress thread is woken to drive it; without, the caller is about to wait for it.
    ///
    /// # Safety
    /// Until the operation is over, `memory` stays readable and unchanged for `bytes` bytes.
    pub unsafe fn send(
        &self,
        to: u32,
        tag: u64,
        memory: *const u8,
        bytes: u64,
        timeout: Option<Duration>,
        background: bool,
    ) -> Result<Work, Error> {
        self.check_usable()?;
        self.check_rank("send to", to)?;
        let due = Due::within(timeout.unwrap_or(self.options.timeout));
        if to != self.rank {
            self.connect(to, due.deadline, &self.cancel)?;
        }
        let completion = Completion::new();
        let source = Source {
            memory,
            bytes,
            completion: completion.clone(),
            due,
        };
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            if to == self.rank {
                group
                    .mailbox
                    .whole(to, tag, memory::copy_out(&source), finished);
                finished.push((source.completion, Ok(())));
                return Ok(());
            }
            let message = if group.mailbox.may_be_eager(to, bytes) {
                let message = Message::Eager {
                    group: self.id,
                    tag,
                    bytes: memory::copy_out(&source),
                };
                finished.push((source.completion, Ok(())));
                message
            } else {
                let id = group.mailbox.offer(to, source);
                Message::Offer {
                    group: self.id,
                    tag,
                    id,
                    bytes,
                }
            };
            group.tell(to, &message)
        })?;
        if background {
            self.engine.hand_over();
        }
        Ok(Work {
            completion,
            engine: self.engine.clone(),
        })
    }

    /// Receives bytes from a rank, or from any, by tag. The sender must send exactly `bytes` bytes. `background` is as for
    /// [`Group::send`].
    ///
    /// # Safety
    /// Until the operation is over, `memory` stays writable for `bytes` bytes and nobody else touches it.
    pub unsafe fn receive(
        &self,
        from: Option<u32>,
        tag: u64,
        memory: *mut u8,
        bytes: u64,
        timeout: Option<Duration>,
        background: bool,
    ) -> Result<Work, Error> {
        self.check_usable()?;
        if let Some(from) = from {
            self.check_rank("receive from", from)?;
        }
        let due = Due::within(timeout.unwrap_or(self.options.timeout));
        let completion = Completion::new();
        let target = Target {
            memory,
            bytes,
            completion: completion.clone(),
            due,
        };
        let posted = Posted { from, tag, target };
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            if let Some(error) = &group.broken {
                return Err(error.clone());
            }
            match group.mailbox.post(self.id, posted, finished) {
                Some((rank, answer)) => group.tell(rank, &answer),
                None => Ok(()),
            }
        })?;
        if background {
            self.engine.hand_over();
        }
        Ok(Work {
            completion,
            engine: self.engine.clone(),
        })
    }
}
