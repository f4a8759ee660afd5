//! Public calls for point-to-point messages. The module `point_to_point` has their matching and
//! flow.

use std::sync::Arc;
use std::time::Duration;

use weft_call::{Completion, TimeLimit};
use weft_channel::{ControlMessage, ENVELOPE_BYTES, PartSet};
use weft_flight::{Entry, Kind, NO_RANK};
use weft_memory::{RegisteredMemory, access};
use weft_transport::Iovec;

use super::counters::Timer;
use super::{Group, Work, closed};
use crate::Error;
use crate::point_to_point::{Posted, ReceiveTarget, SendSource};
use crate::progress::GroupState;

impl Group {
    /// Sends bytes to a rank, which receives them by the same tag.
    ///
    /// With `background`, wakes the progress thread to drive it; without, the caller must wait for
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid rank, the error of a broken or closed group, or that of a
    /// failed connection.
    ///
    /// # Safety
    ///
    /// Until the operation has ended, `memory` stays readable and unchanged for `bytes` bytes.
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
        let timer = self.counters.get().map(|counters| counters.send(bytes));
        let allowed = timeout.unwrap_or(self.options.timeout);
        let envelope = Envelope { to, tag, allowed };
        // SAFETY: as this function requires.
        let started = match unsafe { self.start(&envelope, memory, bytes) }? {
            Some(completion) => Some(completion),
            None => {
                let deadline = TimeLimit::within(allowed).deadline;
                self.connect(to, PartSet::NONE, deadline, &self.cancel)?;
                // SAFETY: as above.
                unsafe { self.start(&envelope, memory, bytes) }?
            }
        };
        Ok(self.begun(started.ok_or_else(closed)?, timer, background))
    }

    /// As [`Group::send`], for memory of a device that is [registered](Group::register_device),
    /// which the adapter reads in place. Returns `None`, and sends nothing, if the link to that
    /// rank cannot read it, or `bytes` is 0.
    ///
    /// # Errors
    ///
    /// As [`Group::send`].
    ///
    /// # Safety
    ///
    /// Until the operation has ended, the memory stays unchanged for `bytes` bytes.
    pub unsafe fn send_from_device(
        &self,
        to: u32,
        tag: u64,
        memory: *const u8,
        bytes: u64,
        timeout: Option<Duration>,
        background: bool,
    ) -> Result<Option<Work>, Error> {
        self.check_usable()?;
        self.check_rank("send to", to)?;
        if to == self.rank || bytes == 0 {
            return Ok(None);
        }
        let timer = self.counters.get().map(|counters| counters.send(bytes));
        let allowed = timeout.unwrap_or(self.options.timeout);
        let deadline = TimeLimit::within(allowed).deadline;
        self.connect(to, PartSet::NONE, deadline, &self.cancel)?;
        let envelope = Envelope { to, tag, allowed };
        let offered = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            // SAFETY: `Group::send` requires that the message stays alive and unchanged.
            let memory = unsafe { access::source(memory, bytes) };
            let Some(registered) = registered_device(group, to, memory) else {
                return Ok(None);
            };
            offer(group, self.id, &envelope, memory, Some(registered)).map(Some)
        })?;
        Ok(offered.map(|completion| self.begun(completion, timer, background)))
    }

    /// Whether [`Group::send_from_device`] would send memory to a rank now: there is a link that
    /// reads it in place.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an invalid rank, or the error of a broken or closed group.
    pub fn reads_device(&self, to: u32, memory: *const u8, bytes: u64) -> Result<bool, Error> {
        self.check_rank("send to", to)?;
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id).ok_or_else(closed)?;
            let address = std::ptr::without_provenance(memory.addr());
            // SAFETY: it is only looked up by its address.
            let memory = unsafe { access::source(address, bytes) };
            Ok(bytes > 0 && registered_device(group, to, memory).is_some())
        })
    }

    fn begun(
        &self,
        completion: Arc<Completion>,
        timer: Option<Timer<'_>>,
        background: bool,
    ) -> Work {
        if background {
            self.engine.hand_over();
        }
        let work = self.work(completion);
        if let Some(timer) = timer {
            timer.follow(&work);
        }
        work
    }

    /// Sends a short message, or offers a long one. Returns `None` if there is no link yet.
    ///
    /// # Safety
    /// As for [`Group::send`].
    unsafe fn start(
        &self,
        envelope: &Envelope,
        memory: *const u8,
        bytes: u64,
    ) -> Result<Option<Arc<Completion>>, Error> {
        let Envelope { to, tag, .. } = *envelope;
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            let entry = || Entry::message(Kind::SEND, to, tag, bytes);
            if to == self.rank {
                // SAFETY: `Group::send` requires that the message stays alive and unchanged.
                let bytes = unsafe { access::bytes(memory, bytes) };
                group.flight.immediate(&entry());
                group.matching.whole((self.id, to), tag, bytes, finished);
                return Ok(Some(Completion::done()));
            }
            if !group.connections.is_linked(to) {
                return Ok(None);
            }
            let id = self.id;
            if group.matching.may_be_eager(to, bytes) {
                let message = ControlMessage::Eager { group: id, tag };
                group.flight.immediate(&entry());
                // SAFETY: as above.
                let bytes = unsafe { access::bytes(memory, bytes) };
                polled_message(group, to, &message, bytes)?;
                return Ok(Some(Completion::done()));
            }
            // SAFETY: as above.
            let memory = unsafe { access::source(memory, bytes) };
            offer(group, id, envelope, memory, None).map(Some)
        })
    }

    /// Receives bytes from a rank, or from any rank, by tag. The sender must send exactly `bytes`
    /// bytes. `background` is as for [`Group::send`].
    ///
    /// # Errors
    ///
    /// As [`Group::send`].
    ///
    /// # Safety
    ///
    /// Until the operation has ended, `memory` stays writable for `bytes` bytes, and nothing else
    /// uses it.
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
        let timer = self.counters.get().map(|counters| counters.receive(bytes));
        let due = TimeLimit::within(timeout.unwrap_or(self.options.timeout));
        let completion = Completion::new();
        let entry = Entry::message(Kind::RECEIVE, from.unwrap_or(NO_RANK), tag, bytes);
        let target = ReceiveTarget {
            memory,
            bytes,
            completion: completion.clone(),
            due,
        };
        let posted = Posted { from, tag, target };
        self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            completion.set_record(group.flight.recorded(group.flight.issue(&entry, false)));
            match group.matching.post(self.id, posted, finished) {
                Some((rank, ControlMessage::Unfit { .. })) if rank == self.rank => Ok(()),
                Some((rank, answer @ ControlMessage::Unfit { .. })) => {
                    // A sender that has left does not need the answer.
                    let _ = polled_message(group, rank, &answer, &[]);
                    Ok(())
                }
                Some((rank, answer)) => polled_message(group, rank, &answer, &[]),
                None => Ok(()),
            }
        })?;
        if background {
            self.engine.hand_over();
        }
        let work = self.work(completion);
        if let Some(timer) = timer {
            timer.follow(&work);
        }
        Ok(work)
    }
}

/// The description of a message without its memory.
struct Envelope {
    to: u32,
    tag: u64,
    allowed: Duration,
}

/// The registration by which the link to a rank reads a device's memory, if it does.
fn registered_device(group: &GroupState, to: u32, memory: Iovec) -> Option<Arc<RegisteredMemory>> {
    let connections = &group.connections;
    let kind = connections.links[to as usize].as_ref()?.kind();
    let (_, registered) = connections.registrations.find_device(kind, memory)?;
    Some(registered)
}

/// Offers a long message, or one from a device's memory.
fn offer(
    group: &mut GroupState,
    id: u64,
    &Envelope { to, tag, allowed }: &Envelope,
    memory: Iovec,
    device: Option<Arc<RegisteredMemory>>,
) -> Result<Arc<Completion>, Error> {
    let completion = Completion::new();
    let entry = Entry::message(Kind::SEND, to, tag, memory.len() as u64);
    completion.set_record(group.flight.recorded(group.flight.issue(&entry, false)));
    let source = SendSource {
        memory: memory.start(),
        bytes: memory.len() as u64,
        device,
        completion: completion.clone(),
        due: TimeLimit::within(allowed),
    };
    if let Some(offer) = group.matching.offer((id, to), tag, source) {
        polled_message(group, to, &offer, &[])?;
    }
    Ok(completion)
}

/// Sends a control message that the receiver polls for.
fn polled_message(
    group: &GroupState,
    rank: u32,
    message: &ControlMessage,
    payload: &[u8],
) -> Result<(), Error> {
    let connections = &group.connections;
    let Some(link) = &connections.links[rank as usize] else {
        return Err(Error::Internal(format!("no link to rank {rank}")));
    };
    let mut buffer = [0; ENVELOPE_BYTES];
    link.polled_message(&[message.envelope(&mut buffer), payload])
        .map_err(|error| Error::from_link(error, Some(rank), connections.host_name(rank)))
        .map_err(|error| group.matching.explained(&error))
}
