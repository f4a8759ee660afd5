//! Point-to-point messages, as users call them. See `mailbox.rs` for how they travel.

use std::sync::Arc;
use std::time::Duration;

use super::{Group, Work, closed};
use crate::Error;
use crate::call::{Completion, Due};
use crate::channel::{ENVELOPE_BYTES, Message};
use crate::memory::access;
use crate::point_to_point::{Posted, Source, Target};
use crate::progress::GroupState;

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
        let allowed = timeout.unwrap_or(self.options.timeout);
        let envelope = Envelope { to, tag, allowed };
        let started = match self.start(&envelope, memory, bytes)? {
            Some(completion) => Some(completion),
            None => {
                self.connect(to, Due::within(allowed).deadline, &self.cancel)?;
                self.start(&envelope, memory, bytes)?
            }
        };
        if background {
            self.engine.hand_over();
        }
        Ok(Work {
            completion: started.ok_or_else(closed)?,
            engine: self.engine.clone(),
        })
    }

    /// Sends a message, or makes it known. `None`: there is no link yet.
    fn start(
        &self,
        envelope: &Envelope,
        memory: *const u8,
        bytes: u64,
    ) -> Result<Option<Arc<Completion>>, Error> {
        let Envelope { to, tag, allowed } = *envelope;
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            if to == self.rank {
                let bytes = access::bytes(memory, bytes);
                group.mailbox.whole((self.id, to), tag, bytes, finished);
                return Ok(Some(Completion::done()));
            }
            if !group.connections.is_linked(to) {
                return Ok(None);
            }
            let id = self.id;
            if group.mailbox.may_be_eager(to, bytes) {
                let message = Message::Eager { group: id, tag };
                mail(group, to, &message, access::bytes(memory, bytes))?;
                return Ok(Some(Completion::done()));
            }
            let completion = Completion::new();
            let source = Source {
                memory,
                bytes,
                completion: completion.clone(),
                due: Due::within(allowed),
            };
            let offer = Message::Offer {
                group: id,
                tag,
                id: group.mailbox.offer(to, source),
                bytes,
            };
            mail(group, to, &offer, &[])?;
            Ok(Some(completion))
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
            group.check()?;
            match group.mailbox.post(self.id, posted, finished) {
                Some((rank, Message::Unfit { .. })) if rank == self.rank => Ok(()),
                Some((rank, answer @ Message::Unfit { .. })) => {
                    // A sender that has left need not know.
                    let _ = mail(group, rank, &answer, &[]);
                    Ok(())
                }
                Some((rank, answer)) => mail(group, rank, &answer, &[]),
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

/// What is said about a message besides where it lies.
struct Envelope {
    to: u32,
    tag: u64,
    allowed: Duration,
}

/// Sends a message that a rank waits for, or will ask for.
fn mail(group: &GroupState, rank: u32, message: &Message, payload: &[u8]) -> Result<(), Error> {
    let connections = &group.connections;
    let Some(link) = &connections.links[rank as usize] else {
        return Err(Error::Internal(format!("no link to rank {rank}")));
    };
    let mut buffer = [0; ENVELOPE_BYTES];
    link.mail(&[message.envelope(&mut buffer), payload])
        .map_err(|error| Error::from_link(error, Some(rank), connections.host_name(rank)))
        .map_err(|error| group.mailbox.explained(&error))
}
