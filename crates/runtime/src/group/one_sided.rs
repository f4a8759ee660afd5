//! Public calls for one-sided operations on symmetric memory.
//!
//! Where a rank's memory is mapped they are loads, stores and atomic instructions of the calling
//! thread, which takes no lock. Everything else is the engine's: see the module `one_sided`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use weft_call::{Completion, Due};
use weft_channel::{CellOp, CellUpdate};
use weft_flight::{Entry, NOBODY, OneSidedKind};
use weft_memory::{CELL_BYTES, access};
use weft_transport::{Presence, Segment, Signal};

use super::symmetric::Symmetric;
use super::window::{Mapped, RankPart, Window};
use super::{Work, closed};
use crate::Error;
use crate::one_sided::{Compare, Described, RemotePut, Wait, apply, cell_of};
use crate::progress::GroupState;

/// A thread that waits for a signal looks at the clock, and at the peers, once in so many turns.
const TURNS_PER_LOOK: u32 = 64;

/// A signal of the receiver's, and how it changes once the bytes are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignalUpdate {
    /// Its number.
    pub signal: u32,
    /// The change.
    pub op: CellOp,
}

/// How a one-sided operation is carried out.
#[derive(Clone, Copy, Default, Debug)]
pub struct HowLong {
    /// What it may take; as operations of the group if nothing.
    pub timeout: Option<Duration>,
    /// The progress thread is woken to drive it; without, the caller is about to wait for it.
    pub background: bool,
}

/// An operation that brings what a cell held.
pub struct Fetched {
    /// The operation.
    pub work: Work,
    value: Arc<AtomicU64>,
}

impl Fetched {
    /// What the cell held before. Means nothing until the operation is done.
    pub fn value(&self) -> u64 {
        self.value.load(Ordering::Acquire)
    }
}

/// A rank's part, as it is mapped here, for as long as this is kept.
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
    /// Writes bytes to a place in a rank's part, then changes a signal of that rank's. Over once
    /// `memory` may be changed again.
    ///
    /// # Safety
    /// Until the operation is over, `memory` stays readable and unchanged for `bytes` bytes.
    pub unsafe fn put(
        &self,
        peer: u32,
        offset: u64,
        memory: *const u8,
        bytes: u64,
        signal: Option<SignalUpdate>,
        how: HowLong,
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
                    let begun = self.put_remotely(window, peer, put, how)?;
                    return Ok(begun.expect("memory that can be copied"));
                }
            }
            Ok(self.over(window))
        })
    }

    /// As [`Symmetric::put`], for memory of a device that is
    /// [registered](super::Group::register_device): the adapter reads it where it lies. `None`
    /// where the link to that rank does not, or there is none, or nothing to read: nothing has been
    /// written then.
    ///
    /// # Safety
    /// Until the operation is over, the memory stays unchanged for `bytes` bytes.
    pub unsafe fn put_from_device(
        &self,
        peer: u32,
        offset: u64,
        memory: *const u8,
        bytes: u64,
        signal: Option<SignalUpdate>,
        how: HowLong,
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
        let begun = self.put_remotely(window, peer, put, how)?;
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
        how: HowLong,
    ) -> Result<Option<Work>, Error> {
        let bytes = put.source.len() as u64;
        let what = format!("put of {bytes} bytes to {}", window.name);
        let described = window.described(what, Some(peer), how);
        let entry = Entry::one_sided(OneSidedKind::Put, peer, self.piece, bytes);
        self.begin_if(how, &entry, |group| {
            let (connections, pieces) = (&group.connections, &group.executor.symmetric);
            Ok((group.one_sided).put((connections, pieces), peer, put, described))
        })
    }

    /// Reads bytes from a place in a rank's part.
    ///
    /// # Safety
    /// Until the operation is over, `memory` stays writable for `bytes` bytes, and nobody else
    /// touches it.
    pub unsafe fn get(
        &self,
        peer: u32,
        offset: u64,
        memory: *mut u8,
        bytes: u64,
        how: HowLong,
    ) -> Result<Work, Error> {
        self.counted(OneSidedKind::Get, bytes, |window| {
            let range = window.range("get", offset, bytes)?;
            match window.part("get from", peer)? {
                RankPart::Own(segment) | RankPart::Mapped(Mapped { segment, .. }) => {
                    let start = segment.base().as_ptr().wrapping_add(range.start as usize);
                    // SAFETY: the range lies in the segment, and the caller has room for it.
                    unsafe { access::copy(&[memory], start, bytes) };
                    Ok(self.over(window))
                }
                RankPart::Remote => {
                    let what = format!("get of {bytes} bytes from {}", window.name);
                    let described = window.described(what, Some(peer), how);
                    // SAFETY: the caller leaves the memory alone until the get is over.
                    let target = unsafe { access::target(memory, bytes) };
                    let place = (self.piece, offset);
                    let entry = Entry::one_sided(OneSidedKind::Get, peer, self.piece, bytes);
                    self.begin(how, &entry, |group| {
                        Ok(group.one_sided.get(peer, place, target, described))
                    })
                }
            }
        })
    }

    /// Changes a 64-bit cell of the data in a rank's part atomically; brings what it held before.
    /// `offset` is in bytes, a multiple of 8.
    pub fn update_cell(
        &self,
        peer: u32,
        offset: u64,
        op: CellOp,
        how: HowLong,
    ) -> Result<Fetched, Error> {
        let cell = self.window("atomic")?.cell("atomic", offset)?;
        self.update(peer, CellUpdate { offset: cell, op }, true, how)
    }

    /// Changes a signal of a rank's, behind everything that this rank has written there.
    pub fn signal(&self, peer: u32, signal: SignalUpdate, how: HowLong) -> Result<Work, Error> {
        let offset = self.window("signal")?.signal("signal", signal.signal)?;
        let op = signal.op;
        let updated = self.update(peer, CellUpdate { offset, op }, false, how)?;
        Ok(updated.work)
    }

    /// Changes a signal, as [`Symmetric::update_cell`] does a cell of the data.
    pub fn update_signal(
        &self,
        peer: u32,
        signal: SignalUpdate,
        how: HowLong,
    ) -> Result<Fetched, Error> {
        let offset = self.window("atomic")?.signal("atomic", signal.signal)?;
        let op = signal.op;
        self.update(peer, CellUpdate { offset, op }, true, how)
    }

    fn update(
        &self,
        peer: u32,
        update: CellUpdate,
        fetches: bool,
        how: HowLong,
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
        let at_once = |before| Fetched {
            work: self.over(window),
            value: Arc::new(AtomicU64::new(before)),
        };
        let fetched = match window.part("atomic on", peer)? {
            RankPart::Own(segment) => {
                let before = changed(segment)?;
                self.engine.endpoint().doorbell().ring();
                at_once(before)
            }
            RankPart::Mapped(mapped) => {
                let before = changed(&mapped.segment)?;
                self.wake(peer, mapped)?;
                at_once(before)
            }
            RankPart::Remote => {
                let value = Arc::new(AtomicU64::new(0));
                let what = format!("atomic operation on {}", window.name);
                let described = window.described(what, Some(peer), how);
                let (place, into) = ((self.piece, update), fetches.then(|| value.clone()));
                let entry = Entry::one_sided(kind, peer, self.piece, CELL_BYTES);
                let work = self.begin(how, &entry, |group| {
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

    /// Waits until a signal of this rank's compares with a value as it shall. What was put before
    /// the change that ends the wait is there then.
    pub fn wait_signal(
        &self,
        signal: u32,
        compare: Compare,
        value: u64,
        how: HowLong,
    ) -> Result<Work, Error> {
        self.counted(OneSidedKind::WaitSignal, 0, |window| {
            let wait = Wait {
                part: self.segment.clone(),
                offset: window.signal("wait", signal)?,
                compare,
                value,
            };
            let may_spin = !how.background && window.all_mapped;
            if wait.is_over() || (may_spin && self.spin(window, &wait)) {
                return Ok(self.over(window));
            }
            let what = format!(
                "wait for signal {signal} of {} to be {compare} {value}",
                window.name
            );
            let described = window.described(what, None, how);
            let entry = Entry::one_sided(OneSidedKind::WaitSignal, NOBODY, self.piece, 0);
            self.begin(how, &entry, |group| {
                Ok(group.one_sided.wait(wait, described))
            })
        })
    }

    /// Polls for a signal, for as long as that promises to be quick. True if it came.
    fn spin(&self, window: &Window, wait: &Wait) -> bool {
        let presence = self.engine.endpoint().doorbell().enter();
        let mut spin = self.engine.spin().begin(TURNS_PER_LOOK, &presence);
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

    /// What a signal of this rank's is now.
    pub fn signal_value(&self, signal: u32) -> Result<u64, Error> {
        let window = self.window("signal")?;
        let offset = window.signal("signal", signal)?;
        let cell = cell_of(&self.segment, offset).ok_or_else(|| self.missing())?;
        Ok(cell.load(Ordering::Acquire))
    }

    /// Orders what this rank has written to each rank before what it writes there afterwards. Links
    /// keep that order by themselves.
    pub fn fence(&self) -> Result<(), Error> {
        self.window("fence")?;
        fence(Ordering::SeqCst);
        Ok(())
    }

    /// Over once everything that this rank has written to any symmetric memory of the group is
    /// there, for all to see.
    pub fn quiet(&self, how: HowLong) -> Result<Work, Error> {
        self.counted(OneSidedKind::Quiet, 0, |window| {
            fence(Ordering::SeqCst);
            if window.all_mapped {
                return Ok(self.over(window));
            }
            let described = window.described(format!("quiet on {}", window.name), None, how);
            let entry = Entry::one_sided(OneSidedKind::Quiet, NOBODY, self.piece, 0);
            self.begin(how, &entry, |group| Ok(group.one_sided.quiet(described)))
        })
    }

    /// A rank's part, where it is mapped here: data, and behind them its signals.
    pub fn at(&self, peer: u32) -> Result<Option<MappedPart>, Error> {
        let window = self.window("view")?;
        Ok(match window.part("view of", peer)? {
            RankPart::Own(segment) | RankPart::Mapped(Mapped { segment, .. }) => {
                Some(MappedPart(segment.clone()))
            }
            RankPart::Remote => None,
        })
    }

    /// The number of signals, and where they begin in each part, in bytes.
    pub fn signals(&self) -> (u32, u64) {
        let signals = self.window.as_ref().map_or(0, Window::signals);
        (signals, self.size.signals_at())
    }

    /// What errors call it.
    pub fn name(&self) -> &str {
        self.window
            .as_ref()
            .map_or("symmetric buffer", |window| &window.name)
    }

    /// What operations need, unless the memory was freed, or the group has ended.
    #[inline]
    fn window(&self, what: &str) -> Result<&Window, Error> {
        self.engine.check_generation()?;
        let Some(window) = &self.window else {
            let text = "one-sided operations on memory that was only offered";
            return Err(Error::Unsupported(text.into()));
        };
        if self.freed.load(Ordering::Relaxed) {
            return Err(window.freed(what, "this rank has freed it"));
        }
        if window.over.load(Ordering::Relaxed) {
            return Err(self.ended());
        }
        Ok(window)
    }

    /// Why the group has ended.
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
    /// The range lies in the segment. The memory is readable, and nobody changes it meanwhile.
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

    /// Wakes a rank that may wait for what was written.
    #[inline]
    fn wake(&self, peer: u32, mapped: &Mapped) -> Result<(), Error> {
        let signal = Signal {
            offset: mapped.bell,
            value: 1,
        };
        let woken = mapped.link.signal(signal);
        // Whoever is lost has broken the group, or soon will have.
        woken.map_err(|error| Error::from_link(error, Some(peer), &mapped.host))
    }

    /// Carries out an operation, which is counted if the group's are.
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

    /// Begins an operation of the engine's. The flight recorder keeps it: it may wait for somebody,
    /// unlike what is carried out in mapped memory by the call itself.
    fn begin(
        &self,
        how: HowLong,
        entry: &Entry,
        begin: impl FnOnce(&mut GroupState) -> Result<Arc<Completion>, Error>,
    ) -> Result<Work, Error> {
        let begun = self.begin_if(how, entry, |group| begin(group).map(Some))?;
        Ok(begun.expect("it has begun"))
    }

    /// The same for an operation that need not begin.
    fn begin_if(
        &self,
        how: HowLong,
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
                true => group.flight.at_once(entry),
                false => {
                    let record = group.flight.issue(entry, true);
                    completion.set_record(group.flight.recorded(record));
                }
            }
            if let Err(failure) = group.advance_one_sided(finished) {
                state.fail(self.group, u64::MAX, failure, finished);
            }
            Ok(Some(completion))
        })?;
        let Some(completion) = completion else {
            return Ok(None);
        };
        if how.background {
            self.engine.hand_over();
        }
        let engine = self.engine.clone();
        Ok(Some(Work { completion, engine }))
    }

    /// An operation that is done.
    #[inline]
    fn over(&self, window: &Window) -> Work {
        Work {
            completion: window.done.clone(),
            engine: self.engine.clone(),
        }
    }
}

/// The cell that a put's signal is.
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
    fn described(&self, what: String, peer: Option<u32>, how: HowLong) -> Described {
        Described {
            what,
            peer,
            due: Due::within(how.timeout.unwrap_or(self.timeout)),
        }
    }

    /// Where the rank is that will soonest go on, of those that are mapped.
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
