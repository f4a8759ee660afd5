//! Public calls for one-sided operations on symmetric memory.
//!
//! If a rank's memory is mapped, they are loads, stores and atomic instructions of the calling
//! thread, without a lock. The engine executes all others: see the module `one_sided`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use weft_call::{Completion, TimeLimit};
use weft_channel::{CellOp, CellUpdate};
use weft_flight::{Entry, NO_RANK, OneSidedKind};
use weft_memory::{CELL_BYTES, access};
use weft_transport::{Presence, Segment, Signal};

use super::symmetric::Symmetric;
use super::window::{MappedRank, RankPart, Window};
use super::{Work, closed};
use crate::Error;
use crate::one_sided::{Compare, OperationDescription, RemotePut, SignalWait, apply, cell_of};
use crate::progress::{GroupState, NO_OPERATION};

/// Turns of a thread that waits for a signal between two checks of the clock and the peers.
const TURNS_PER_CHECK: u32 = 64;

/// A signal of the receiver, and its change once the data has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalUpdate {
    /// Its number.
    pub signal: u32,
    /// The change.
    pub op: CellOp,
}

/// Options of a one-sided operation.
#[derive(Clone, Copy, Default, Debug)]
pub struct OneSidedOptions {
    /// The timeout; the group's if `None`.
    pub timeout: Option<Duration>,
    /// Whether to wake the progress thread to drive it; if not, the caller must wait for it.
    pub background: bool,
}

/// An operation that fetches the previous value of a cell.
pub struct Fetched {
    /// The operation.
    pub work: Work,
    value: Arc<AtomicU64>,
}

impl Fetched {
    /// The previous value of the cell. Undefined until the operation has succeeded.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }
}

/// A mapping of a rank's part, which lasts until this is dropped.
pub struct MappedPart(Arc<Segment>);

impl MappedPart {
    /// Its first byte.
    pub fn base(&self) -> *mut u8 {
        self.0.base().as_ptr()
    }

    /// Its size, signals included, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len()
    }
}

impl Symmetric {
    /// Writes bytes to a rank's part, then changes a signal of that rank. The operation ends once
    /// `memory` may be changed again.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for invalid arguments or freed memory, or the error of a broken or closed
    /// group.
    ///
    /// # Safety
    ///
    /// Until the operation has ended, `memory` stays readable and unchanged for `bytes` bytes.
    pub unsafe fn put(
        &self,
        peer: u32,
        offset: u64,
        memory: *const u8,
        bytes: u64,
        signal: Option<SignalUpdate>,
        options: OneSidedOptions,
    ) -> Result<Work, Error> {
        self.counted(OneSidedKind::Put, bytes, |window| {
            let range = window.range("put", offset, bytes)?;
            let update = signal_update(window, signal)?;
            match window.part("put to", peer)? {
                RankPart::Own(segment) => {
                    // SAFETY: the range was checked, and the caller keeps the memory.
                    unsafe { self.write(segment, range.start, memory, bytes, update) }?;
                    self.engine.endpoint().doorbell().ring();
                }
                RankPart::Mapped(mapped) => {
                    let segment = &mapped.segment;
                    // SAFETY: as above.
                    unsafe { self.write(segment, range.start, memory, bytes, update) }?;
                    if update.is_some() {
                        self.wake(peer, mapped)?;
                    }
                }
                RankPart::Remote => {
                    let put = RemotePut {
                        piece: self.piece,
                        offset,
                        // SAFETY: the caller keeps the memory alive and unchanged.
                        source: unsafe { access::source(memory, bytes) },
                        of_device: false,
                        update,
                    };
                    let begun = self.put_remotely(window, peer, put, options)?;
                    return Ok(begun.expect("memory that can be copied"));
                }
            }
            Ok(self.over(window))
        })
    }

    /// As [`Symmetric::put`], for memory of a device that is
    /// [registered](super::Group::register_device), which the adapter reads in place. Returns
    /// `None`, and writes nothing, if there is no link to that rank or it cannot read the memory,
    /// or if `bytes` is 0.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    ///
    /// # Safety
    ///
    /// Until the operation has ended, the memory stays unchanged for `bytes` bytes.
    pub unsafe fn put_from_device(
        &self,
        peer: u32,
        offset: u64,
        memory: *const u8,
        bytes: u64,
        signal: Option<SignalUpdate>,
        options: OneSidedOptions,
    ) -> Result<Option<Work>, Error> {
        let window = self.window("put")?;
        window.range("put", offset, bytes)?;
        if bytes == 0 || !matches!(window.part("put to", peer)?, RankPart::Remote) {
            return Ok(None);
        }
        let put = RemotePut {
            piece: self.piece,
            offset,
            // SAFETY: the caller keeps the memory alive and unchanged.
            source: unsafe { access::source(memory, bytes) },
            of_device: true,
            update: signal_update(window, signal)?,
        };
        let counters = window.counters.get();
        let timer = counters.map(|counters| counters.one_sided(OneSidedKind::Put, bytes));
        let begun = self.put_remotely(window, peer, put, options)?;
        if let (Some(timer), Some(work)) = (timer, &begun) {
            timer.follow(work);
        }
        Ok(begun)
    }

    fn put_remotely(
        &self,
        window: &Window,
        peer: u32,
        put: RemotePut,
        options: OneSidedOptions,
    ) -> Result<Option<Work>, Error> {
        let bytes = put.source.len() as u64;
        let operation = format!("put of {bytes} bytes to {}", window.name);
        let described = window.described(operation, Some(peer), options);
        let entry = Entry::one_sided(OneSidedKind::Put, peer, self.piece, bytes);
        self.begin_if(options, &entry, |group| {
            let (connections, pieces) = (&group.connections, &group.executor.symmetric);
            Ok((group.one_sided).put((connections, pieces), peer, put, described))
        })
    }

    /// Reads bytes from a rank's part.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    ///
    /// # Safety
    ///
    /// Until the operation has ended, `memory` stays writable for `bytes` bytes, and nothing else
    /// uses it.
    pub unsafe fn get(
        &self,
        peer: u32,
        offset: u64,
        memory: *mut u8,
        bytes: u64,
        options: OneSidedOptions,
    ) -> Result<Work, Error> {
        self.counted(OneSidedKind::Get, bytes, |window| {
            let range = window.range("get", offset, bytes)?;
            match window.part("get from", peer)? {
                RankPart::Own(segment) | RankPart::Mapped(MappedRank { segment, .. }) => {
                    let start = segment.base().as_ptr().wrapping_add(range.start as usize);
                    // SAFETY: the range is in the segment, and the caller has room for it.
                    unsafe { access::copy(&[memory], start, bytes) };
                    Ok(self.over(window))
                }
                RankPart::Remote => {
                    let operation = format!("get of {bytes} bytes from {}", window.name);
                    let described = window.described(operation, Some(peer), options);
                    // SAFETY: the caller does not use the memory until the get has ended.
                    let target = unsafe { access::target(memory, bytes) };
                    let place = (self.piece, offset);
                    let entry = Entry::one_sided(OneSidedKind::Get, peer, self.piece, bytes);
                    self.begin(options, &entry, |group| {
                        Ok(group.one_sided.get(peer, place, target, described))
                    })
                }
            }
        })
    }

    /// Changes a 64-bit cell of the data in a rank's part atomically, and fetches its previous
    /// value. `offset` is in bytes, a multiple of 8.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn update_cell(
        &self,
        peer: u32,
        offset: u64,
        op: CellOp,
        options: OneSidedOptions,
    ) -> Result<Fetched, Error> {
        let cell = self.window("atomic")?.cell("atomic", offset)?;
        self.update(peer, CellUpdate { offset: cell, op }, true, options)
    }

    /// Changes a signal of a rank, after everything that this rank has written there.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn signal(
        &self,
        peer: u32,
        signal: SignalUpdate,
        options: OneSidedOptions,
    ) -> Result<Work, Error> {
        let offset = self.window("signal")?.signal("signal", signal.signal)?;
        let op = signal.op;
        let updated = self.update(peer, CellUpdate { offset, op }, false, options)?;
        Ok(updated.work)
    }

    /// Changes a signal as [`Symmetric::update_cell`] changes a cell of the data.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn update_signal(
        &self,
        peer: u32,
        signal: SignalUpdate,
        options: OneSidedOptions,
    ) -> Result<Fetched, Error> {
        let offset = self.window("atomic")?.signal("atomic", signal.signal)?;
        let op = signal.op;
        self.update(peer, CellUpdate { offset, op }, true, options)
    }

    fn update(
        &self,
        peer: u32,
        update: CellUpdate,
        fetches: bool,
        options: OneSidedOptions,
    ) -> Result<Fetched, Error> {
        let window = self.window("atomic")?;
        let kind = match fetches {
            true => OneSidedKind::Atomic,
            false => OneSidedKind::Signal,
        };
        let counters = window.counters.get();
        let timer = counters.map(|counters| counters.one_sided(kind, CELL_BYTES));
        let changed = |segment: &Segment| {
            let cell = cell_of(segment, update.offset).ok_or_else(|| self.missing())?;
            Ok(apply(cell, update.op))
        };
        let immediate = |before| Fetched {
            work: self.over(window),
            value: Arc::new(AtomicU64::new(before)),
        };
        let fetched = match window.part("atomic on", peer)? {
            RankPart::Own(segment) => {
                let before = changed(segment)?;
                self.engine.endpoint().doorbell().ring();
                immediate(before)
            }
            RankPart::Mapped(mapped) => {
                let before = changed(&mapped.segment)?;
                self.wake(peer, mapped)?;
                immediate(before)
            }
            RankPart::Remote => {
                let value = Arc::new(AtomicU64::new(0));
                let operation = format!("atomic operation on {}", window.name);
                let described = window.described(operation, Some(peer), options);
                let (place, into) = ((self.piece, update), fetches.then(|| value.clone()));
                let entry = Entry::one_sided(kind, peer, self.piece, CELL_BYTES);
                let work = self.begin(options, &entry, |group| {
                    Ok(group.one_sided.update(peer, place, into, described))
                })?;
                Fetched { work, value }
            }
        };
        if let Some(timer) = timer {
            timer.follow(&fetched.work);
        }
        Ok(fetched)
    }

    /// Waits until a signal of this rank meets a condition. Data that was put before the change
    /// that ends the wait has arrived then.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn wait_signal(
        &self,
        signal: u32,
        compare: Compare,
        value: u64,
        options: OneSidedOptions,
    ) -> Result<Work, Error> {
        self.counted(OneSidedKind::WaitSignal, 0, |window| {
            let wait = SignalWait {
                part: self.segment.clone(),
                offset: window.signal("wait", signal)?,
                compare,
                value,
            };
            let may_spin = !options.background && window.all_mapped;
            if wait.is_over() || (may_spin && self.spin(window, &wait)) {
                return Ok(self.over(window));
            }
            let operation = format!(
                "wait for signal {signal} of {} to be {compare} {value}",
                window.name
            );
            let described = window.described(operation, None, options);
            let entry = Entry::one_sided(OneSidedKind::WaitSignal, NO_RANK, self.piece, 0);
            self.begin(options, &entry, |group| {
                Ok(group.one_sided.wait(wait, described))
            })
        })
    }

    /// Polls for a signal while it is likely to arrive soon. True if it has arrived.
    fn spin(&self, window: &Window, wait: &SignalWait) -> bool {
        let presence = self.engine.endpoint().doorbell().enter();
        let mut spin = self.engine.spin().begin(TURNS_PER_CHECK, &presence);
        while !window.over.load(Ordering::Relaxed) {
            if wait.is_over() {
                return true;
            }
            if !spin.pause(|| window.nearest()) {
                break;
            }
        }
        false
    }

    /// The current value of a signal of this rank.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn signal_value(&self, signal: u32) -> Result<u64, Error> {
        let window = self.window("signal")?;
        let offset = window.signal("signal", signal)?;
        let cell = cell_of(&self.segment, offset).ok_or_else(|| self.missing())?;
        Ok(cell.load(Ordering::Acquire))
    }

    /// Orders this rank's earlier writes to each rank before its later ones. Links keep that order
    /// without a fence.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn fence(&self) -> Result<(), Error> {
        self.window("fence")?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Starts an operation that ends once all writes of this rank to symmetric memory of the group
    /// are complete and visible to all ranks.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn quiet(&self, options: OneSidedOptions) -> Result<Work, Error> {
        self.counted(OneSidedKind::Quiet, 0, |window| {
            fence(Ordering::SeqCst);
            if window.all_mapped {
                return Ok(self.over(window));
            }
            let described = window.described(format!("quiet on {}", window.name), None, options);
            let entry = Entry::one_sided(OneSidedKind::Quiet, NO_RANK, self.piece, 0);
            self.begin(options, &entry, |group| {
                Ok(group.one_sided.quiet(described))
            })
        })
    }

    /// A rank's part if it is mapped here: data, followed by its signals.
    ///
    /// # Errors
    ///
    /// As [`Symmetric::put`].
    pub fn at(&self, peer: u32) -> Result<Option<MappedPart>, Error> {
        let window = self.window("view")?;
        Ok(match window.part("view of", peer)? {
            RankPart::Own(segment) | RankPart::Mapped(MappedRank { segment, .. }) => {
                Some(MappedPart(segment.clone()))
            }
            RankPart::Remote => None,
        })
    }

    /// The number of signals, and their offset in each part, in bytes.
    pub fn signals(&self) -> (u32, u64) {
        let signals = self.window.as_ref().map_or(0, Window::signals);
        (signals, self.size.signals_at())
    }

    /// The name in error messages.
    pub fn name(&self) -> &str {
        self.window
            .as_ref()
            .map_or("symmetric buffer", |window| &window.name)
    }

    /// The window, unless the memory was freed or the group has ended.
    #[inline]
    fn window(&self, operation: &str) -> Result<&Window, Error> {
        self.engine.check_generation()?;
        let Some(window) = &self.window else {
            let text = "one-sided operations on symmetric memory whose creation has failed";
            return Err(Error::Unsupported(text.into()));
        };
        if self.freed.load(Ordering::Relaxed) {
            return Err(window.freed(operation, "this rank has freed it"));
        }
        if window.over.load(Ordering::Relaxed) {
            return Err(self.ended());
        }
        Ok(window)
    }

    /// The error of a group that has ended.
    fn ended(&self) -> Error {
        let broken = self.engine.with(|state, _| {
            let group = state.groups.get(&self.group);
            group.and_then(|group| group.broken.clone())
        });
        broken.unwrap_or_else(closed)
    }

    /// Writes to mapped memory, then changes a cell there.
    ///
    /// # Safety
    /// The range is in the segment. The memory is readable, and nothing changes it meanwhile.
    #[inline]
    unsafe fn write(
        &self,
        segment: &Segment,
        offset: u64,
        memory: *const u8,
        bytes: u64,
        update: Option<CellUpdate>,
    ) -> Result<(), Error> {
        let start = segment.base().as_ptr().wrapping_add(offset as usize);
        // SAFETY: the caller's promise.
        unsafe { access::copy(&[start], memory, bytes) };
        if let Some(CellUpdate { offset, op }) = update {
            apply(cell_of(segment, offset).ok_or_else(|| self.missing())?, op);
        }
        Ok(())
    }

    fn missing(&self) -> Error {
        Error::Internal(format!("{} has no such cell", self.name()))
    }

    /// Wakes a rank that may wait for the written data.
    #[inline]
    fn wake(&self, peer: u32, mapped: &MappedRank) -> Result<(), Error> {
        let signal = Signal {
            offset: mapped.bell,
            value: 1,
        };
        let woken = mapped.link.signal(signal);
        // The loss of the rank breaks the group, now or soon.
        woken.map_err(|error| Error::from_link(error, Some(peer), &mapped.host))
    }

    /// Executes an operation, and counts it if the group's operations are counted.
    #[inline]
    fn counted(
        &self,
        kind: OneSidedKind,
        bytes: u64,
        carry_out: impl FnOnce(&Window) -> Result<Work, Error>,
    ) -> Result<Work, Error> {
        let window = self.window(kind.name())?;
        let counters = window.counters.get();
        let timer = counters.map(|counters| counters.one_sided(kind, bytes));
        let work = carry_out(window)?;
        if let Some(timer) = timer {
            timer.follow(&work);
        }
        Ok(work)
    }

    /// Begins an operation of the engine. The flight recorder records it, as it may wait for
    /// another rank, unlike operations in mapped memory.
    fn begin(
        &self,
        options: OneSidedOptions,
        entry: &Entry,
        begin: impl FnOnce(&mut GroupState) -> Result<Arc<Completion>, Error>,
    ) -> Result<Work, Error> {
        let begun = self.begin_if(options, entry, |group| begin(group).map(Some))?;
        Ok(begun.expect("it has begun"))
    }

    /// As `begin`, for an operation that may not begin.
    fn begin_if(
        &self,
        options: OneSidedOptions,
        entry: &Entry,
        begin: impl FnOnce(&mut GroupState) -> Result<Option<Arc<Completion>>, Error>,
    ) -> Result<Option<Work>, Error> {
        let completion = self.engine.with(|state, finished| {
            let group = state.groups.get_mut(&self.group).ok_or_else(closed)?;
            group.check()?;
            let Some(completion) = begin(group)? else {
                return Ok(None);
            };
            match completion.is_over() {
                true => group.flight.immediate(entry),
                false => {
                    let record = group.flight.issue(entry, true);
                    completion.set_record(group.flight.recorded(record));
                }
            }
            if let Err(failure) = group.advance_one_sided(finished) {
                state.on_operation_failure(self.group, NO_OPERATION, failure, finished);
            }
            Ok(Some(completion))
        })?;
        let Some(completion) = completion else {
            return Ok(None);
        };
        if options.background {
            self.engine.hand_over();
        }
        let engine = self.engine.clone();
        Ok(Some(Work { completion, engine }))
    }

    /// An operation that has succeeded.
    #[inline]
    fn over(&self, window: &Window) -> Work {
        Work {
            completion: window.done.clone(),
            engine: self.engine.clone(),
        }
    }
}

/// The cell of a put's signal.
fn signal_update(
    window: &Window,
    signal: Option<SignalUpdate>,
) -> Result<Option<CellUpdate>, Error> {
    let update = |SignalUpdate { signal, op }| {
        let offset = window.signal("put", signal)?;
        Ok(CellUpdate { offset, op })
    };
    signal.map(update).transpose()
}

impl Window {
    fn described(
        &self,
        operation: String,
        peer: Option<u32>,
        options: OneSidedOptions,
    ) -> OperationDescription {
        OperationDescription {
            operation,
            peer,
            due: TimeLimit::within(options.timeout.unwrap_or(self.timeout)),
        }
    }

    /// The presence of the mapped rank that will probably continue first.
    fn nearest(&self) -> Presence {
        let presences = self.parts.iter().filter_map(|part| match part {
            RankPart::Mapped(mapped) => Some(mapped.link.presence()),
            _ => None,
        });
        let inside = |presence: &Presence| u8::from(matches!(presence, Presence::Inside { .. }));
        let away = Presence::Away { core: None };
        presences.max_by_key(inside).unwrap_or(away)
    }
}
