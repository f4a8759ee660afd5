//! The send queue of one end of a strict link, and its effects at the peer.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};

use weft_transport::loopback::{MessageQueue, QueueEnd};
use weft_transport::{
    AtomicOp, Doorbell, Grants, Iovec, IovecMut, LinkError, RegionKey, Signal, Submission, Ticket,
};

use super::adapter::{self, WorkQueue};
use super::lock::locked;
use super::registrations::StrictRegistrations;

/// The number of operations with tickets that can be under way: small, so that callers meet a full
/// queue.
const DEPTH: usize = 6;

/// One entry of a queue.
pub(super) enum WorkRequest {
    Write {
        region: RegionKey,
        range: Range<u64>,
        bytes: Payload,
        signal: Option<Signal>,
    },
    Read {
        region: RegionKey,
        range: Range<u64>,
        into: IovecMut,
    },
    Atomic {
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    },
    Message(Vec<u8>),
    Goodbye,
}

/// The source of a write.
pub(super) enum Payload {
    Copied(Vec<u8>),
    /// Read when the write is executed.
    Registered(Vec<Iovec>),
}

impl WorkRequest {
    pub(super) fn write(
        region: RegionKey,
        offset: u64,
        bytes: Payload,
        signal: Option<Signal>,
    ) -> Result<WorkRequest, LinkError> {
        let len = match &bytes {
            Payload::Copied(bytes) => bytes.len() as u64,
            Payload::Registered(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
        };
        let aligned = signal.is_none_or(|s| s.offset.is_multiple_of(8) && s.offset <= u64::MAX - 8);
        let end = offset.checked_add(len).filter(|_| aligned);
        Ok(WorkRequest::Write {
            region,
            range: offset..end.ok_or_else(invalid)?,
            bytes,
            signal,
        })
    }
}

/// The send queue of one end.
pub(super) struct SendQueue {
    /// This endpoint's, and the peer's.
    doorbells: [Arc<Doorbell>; 2],
    /// Memory that this endpoint has registered separately.
    registrations: Arc<StrictRegistrations>,
    /// The ranges that this end may access at the peer.
    grants: Arc<Mutex<Grants>>,
    outgoing: Arc<MessageQueue>,
    state: Mutex<QueueState>,
}

#[derive(Default)]
struct QueueState {
    work: VecDeque<(WorkRequest, Option<Ticket>)>,
    /// Executed, but not reported as complete yet.
    late: Vec<Ticket>,
    tickets: u64,
    /// Whether the adapter has this queue in its list.
    active: bool,
    closed: bool,
}

impl QueueState {
    fn under_way(&self) -> impl Iterator<Item = Ticket> {
        let posted = self.work.iter().filter_map(|(_, ticket)| *ticket);
        posted.chain(self.late.iter().copied())
    }
}

impl WorkQueue for SendQueue {
    fn advance(&self, work: usize, pick: Option<usize>) -> bool {
        let mut state = self.state();
        for _ in 0..work {
            let Some((work, ticket)) = state.work.pop_front() else {
                break;
            };
            if let Err(error) = self.execute(work) {
                self.outgoing.break_off(error.to_string());
                self.doorbells.iter().for_each(|doorbell| doorbell.notify());
                state.work.clear();
            }
            state.late.extend(ticket);
        }
        if let Some(pick) = pick
            && !state.late.is_empty()
        {
            let at = pick % state.late.len();
            state.late.swap_remove(at);
            self.doorbells[0].ring();
        }
        state.active = !(state.work.is_empty() && state.late.is_empty());
        state.active
    }
}

impl SendQueue {
    pub(super) fn new(
        doorbells: [Arc<Doorbell>; 2],
        registrations: Arc<StrictRegistrations>,
        grants: Arc<Mutex<Grants>>,
        outgoing: Arc<MessageQueue>,
    ) -> Arc<SendQueue> {
        Arc::new(SendQueue {
            doorbells,
            registrations,
            grants,
            outgoing,
            state: Mutex::default(),
        })
    }

    /// An error if this end has closed the link, or violated the protocol.
    pub(super) fn check(&self) -> Result<(), LinkError> {
        if self.state().closed {
            return Err(LinkError::Left);
        }
        self.outgoing.check()
    }

    /// Adds work that reads or writes memory of this endpoint, if there is room.
    pub(super) fn post(self: &Arc<Self>, work: WorkRequest) -> Submission {
        let mut state = self.state();
        if state.closed || state.under_way().count() >= DEPTH {
            return Submission::Full;
        }
        state.tickets += 1;
        let ticket = Ticket(state.tickets);
        state.work.push_back((work, Some(ticket)));
        self.activate(state);
        Submission::UnderWay(ticket)
    }

    /// Adds other work.
    pub(super) fn push(self: &Arc<Self>, work: WorkRequest) {
        let mut state = self.state();
        if !state.closed {
            state.work.push_back((work, None));
            self.activate(state);
        }
    }

    /// Whether an operation is complete. Once the link has `ended`, late completions are reported,
    /// and operations that were not executed are cancelled.
    pub(super) fn progress(&self, ticket: Ticket, ended: bool) -> bool {
        let mut state = self.state();
        if ended {
            state.late.retain(|other| *other != ticket);
        }
        let complete = !state.under_way().any(|other| other == ticket);
        if ended {
            state.work.retain(|(_, other)| *other != Some(ticket));
        }
        complete
    }

    /// Whether all work has been executed.
    pub(super) fn is_idle(&self) -> bool {
        self.state().work.is_empty()
    }

    /// Cancels an operation: its memory is not accessed after this returns.
    pub(super) fn cancel(&self, ticket: Ticket) {
        let mut state = self.state();
        state.work.retain(|(_, other)| *other != Some(ticket));
        state.late.retain(|other| *other != ticket);
    }

    /// Sends a goodbye behind the queued work, and drops queued operations on local memory.
    pub(super) fn close(self: &Arc<Self>) {
        let mut state = self.state();
        if state.closed {
            return;
        }
        state.closed = true;
        state.work.retain(|(_, ticket)| ticket.is_none());
        state.late.clear();
        state.work.push_back((WorkRequest::Goodbye, None));
        self.activate(state);
    }

    /// Ends it immediately, unless it was closed.
    pub(super) fn abandon(&self, end: QueueEnd) {
        let mut state = self.state();
        if !state.closed {
            state.closed = true;
            state.work.clear();
            self.outgoing.end(end);
            self.doorbells[1].notify();
        }
    }

    fn execute(&self, work: WorkRequest) -> Result<(), LinkError> {
        let [_, peer] = &self.doorbells;
        match work {
            WorkRequest::Write {
                region,
                range,
                bytes,
                signal,
            } => {
                self.check_registered(&bytes)?;
                let grants = locked(&self.grants);
                if !range.is_empty() && grants.allow(region, &range)? {
                    copy((&grants, &self.registrations), region, &range, &bytes);
                }
                if let Some(signal) = signal {
                    store(&grants, signal)?;
                    drop(grants);
                    peer.ring();
                }
            }
            WorkRequest::Read {
                region,
                range,
                into,
            } => {
                let grants = locked(&self.grants);
                if !range.is_empty() && grants.allow(region, &range)? {
                    grants.regions().with(region, |segment| {
                        let from = segment
                            .at(&range)
                            .expect("granted ranges are in the region");
                        // SAFETY: the range is within the mapped region; the target's maker has
                        // promised that it can be written until the operation is complete or
                        // cancelled, for which this queue's lock is needed.
                        unsafe { from.as_ptr().copy_to(into.start(), into.len()) };
                    });
                }
            }
            WorkRequest::Atomic {
                region,
                offset,
                op,
                into,
            } => {
                let grants = locked(&self.grants);
                if grants.allow(region, &(offset..offset + 8))? {
                    let before = change(&grants, region, offset, op).to_ne_bytes();
                    // SAFETY: as for a read; the target was checked to have eight bytes.
                    unsafe { before.as_ptr().copy_to(into.start(), before.len()) };
                }
            }
            WorkRequest::Message(bytes) => {
                self.outgoing.push(bytes);
                peer.notify();
            }
            WorkRequest::Goodbye => {
                self.outgoing.end(QueueEnd::Left);
                peer.notify();
            }
        }
        Ok(())
    }

    /// An error if a source is not registered any more: an adapter would break the link then.
    fn check_registered(&self, bytes: &Payload) -> Result<(), LinkError> {
        let Payload::Registered(pieces) = bytes else {
            return Ok(());
        };
        let ended = |piece: &&Iovec| {
            let key = piece.registration();
            key.is_some_and(|key| !self.registrations.covers(key, **piece))
        };
        match pieces.iter().find(ended) {
            None => Ok(()),
            Some(_) => Err(LinkError::Gone("a put names deregistered memory".into())),
        }
    }

    fn activate(self: &Arc<Self>, mut state: MutexGuard<'_, QueueState>) {
        let idle = !std::mem::replace(&mut state.active, true);
        drop(state);
        if idle {
            adapter::add(Arc::clone(self) as Arc<dyn WorkQueue>);
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        locked(&self.state)
    }
}

fn copy(
    (grants, registrations): (&Grants, &StrictRegistrations),
    region: RegionKey,
    range: &Range<u64>,
    bytes: &Payload,
) {
    grants.regions().with(region, |segment| {
        let at = segment.at(range).expect("granted ranges are in the region");
        let mut at = at.as_ptr();
        let mut copy = |from: *const u8, len: usize| {
            // SAFETY: the range is within the mapped region and is as long as all bytes together.
            // They are copied, or the piece's maker has promised that it can be read until the put
            // is complete or cancelled, for which the queue's lock is needed.
            unsafe { from.copy_to(at, len) };
            at = at.wrapping_add(len);
        };
        match bytes {
            // Adapters write whole words, and readers may access the range: each word is old or
            // new.
            Payload::Copied(bytes)
                if range.start.is_multiple_of(8) && bytes.len().is_multiple_of(8) =>
            {
                for (offset, word) in (range.start..).step_by(8).zip(bytes.chunks_exact(8)) {
                    let word = word.try_into().expect("a chunk of 8 bytes");
                    let word = u64::from_ne_bytes(word);
                    segment.word(offset).store(word, Ordering::Relaxed);
                }
            }
            Payload::Copied(bytes) => copy(bytes.as_ptr(), bytes.len()),
            Payload::Registered(pieces) => pieces.iter().for_each(|piece| {
                registrations.read(*piece, |start| copy(start, piece.len()));
            }),
        }
    });
}

fn store(grants: &Grants, signal: Signal) -> Result<(), LinkError> {
    if grants.allow(RegionKey::POOL, &(signal.offset..signal.offset + 8))? {
        grants.regions().with(RegionKey::POOL, |pool| {
            let word = pool.word(signal.offset);
            word.store(signal.value, Ordering::Release);
        });
    }
    Ok(())
}

/// Atomic only among the atomics of strict links, like an adapter's: a load and a store by the one
/// thread.
fn change(grants: &Grants, region: RegionKey, offset: u64, op: AtomicOp) -> u64 {
    let before = grants.regions().with(region, |segment| {
        let cell = segment.word(offset);
        let before = cell.load(Ordering::Acquire);
        match op {
            AtomicOp::FetchAdd(value) => cell.store(before.wrapping_add(value), Ordering::Release),
            AtomicOp::CompareSwap { expected, new } if before == expected => {
                cell.store(new, Ordering::Release);
            }
            AtomicOp::CompareSwap { .. } => {}
        }
        before
    });
    before.unwrap_or_default()
}

/// An error for arguments that no link takes.
pub(super) fn invalid() -> LinkError {
    LinkError::Io(io::ErrorKind::InvalidInput.into())
}
