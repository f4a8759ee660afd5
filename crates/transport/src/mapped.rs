//! A peer whose regions are mapped by this process: puts and gets are copies, signals are stores,
//! and atomics are the processor's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{io, ptr};

use crate::fork::{self, Descriptor};
use crate::regions::outside;
use crate::{
    AtomicOp, Capabilities, INJECT_BYTES_MAX, Iovec, IovecMut, LinkError, PeerDoorbell, Presence,
    RegionKey, Regions, Segment, Signal,
};

/// A mapped peer: the common part of the links of loopback and shared memory.
#[derive(Debug)]
pub struct MappedPeer {
    pool: Arc<Segment>,
    regions: Arc<Regions>,
    doorbell: PeerDoorbell,
    born: u64,
}

impl MappedPeer {
    /// The capabilities of links to mapped peers.
    pub const CAPABILITIES: Capabilities = Capabilities {
        maps: true,
        needs_registration: false,
        manual_progress: false,
    };

    /// The peer with these regions, of which `pool` is the pool, and this event descriptor of its
    /// doorbell.
    ///
    /// # Errors
    /// If the pool has no header.
    pub fn new(pool: Arc<Segment>, regions: Arc<Regions>, event: Descriptor) -> io::Result<Self> {
        let doorbell = PeerDoorbell::new(Arc::clone(&pool), event)?;
        Ok(MappedPeer {
            pool,
            regions,
            doorbell,
            born: fork::generation(),
        })
    }

    /// The peer's presence.
    pub fn presence(&self) -> Presence {
        self.doorbell.presence()
    }

    /// The peer's regions, as mapped here.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Checks that a write of `len` bytes with this signal would be within the peer's memory.
    ///
    /// # Errors
    /// If any of it would be outside.
    pub fn check(
        &self,
        region: RegionKey,
        offset: u64,
        len: u64,
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        let signal_fits =
            signal.is_none_or(|signal| self.pool.checked_word(signal.offset).is_some());
        let place = self.place(region, offset, len, |_| ());
        place.and_then(|()| if signal_fits { Ok(()) } else { Err(outside()) })
    }

    /// Copies the pieces, one behind the other, then stores the signal and rings.
    ///
    /// Writes nothing if any of it would be outside the peer's memory.
    ///
    /// # Errors
    /// As for [`MappedPeer::check`], and in a forked child.
    pub fn put(
        &self,
        region: RegionKey,
        offset: u64,
        pieces: &[Iovec],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        let len = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.write(region, offset, len, signal, |mut at| {
            for piece in pieces {
                // SAFETY: `at` and the piece's length are within the mapping, as `write` has
                // checked for the sum of the pieces. The piece's maker has promised that it can be
                // read; no reference into a peer's region exists. Other writers there are ordered
                // by signals, which is the caller's protocol.
                unsafe { ptr::copy(piece.start(), at, piece.len()) };
                at = at.wrapping_add(piece.len());
            }
        })
    }

    /// Like [`MappedPeer::put`], for a few bytes.
    ///
    /// # Errors
    /// As for [`MappedPeer::put`], and for more than [`INJECT_BYTES_MAX`] bytes.
    #[inline]
    pub fn inject(
        &self,
        region: RegionKey,
        offset: u64,
        bytes: &[u8],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        check_inject(bytes)?;
        self.write(region, offset, bytes.len() as u64, signal, |at| {
            // SAFETY: as in `put`; the bytes are borrowed.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) }
        })
    }

    /// Copies from a region of the peer.
    ///
    /// # Errors
    /// If the range is outside the region, or in a forked child.
    pub fn get(&self, region: RegionKey, offset: u64, into: IovecMut) -> Result<(), LinkError> {
        self.check_generation()?;
        self.place(region, offset, into.len() as u64, |at| {
            // SAFETY: the range is within the mapping, and the target's maker has promised that it
            // can be written.
            unsafe { ptr::copy(at.cast_const(), into.start(), into.len()) }
        })
    }

    /// Changes a cell of the peer.
    ///
    /// # Errors
    /// If the cell is outside the region or misaligned, `into` does not have eight bytes, or in a
    /// forked child.
    pub fn atomic(
        &self,
        region: RegionKey,
        offset: u64,
        op: AtomicOp,
        into: IovecMut,
    ) -> Result<(), LinkError> {
        self.check_generation()?;
        let before = self.regions.with(region, |segment| {
            let cell = segment.checked_word(offset)?;
            Some(match op {
                AtomicOp::FetchAdd(value) => cell.fetch_add(value, Ordering::AcqRel),
                AtomicOp::CompareSwap { expected, new } => cell
                    .compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire)
                    .unwrap_or_else(|before| before),
            })
        });
        let before = before.flatten().filter(|_| into.len() == 8);
        let before = before.ok_or_else(outside)?.to_ne_bytes();
        // SAFETY: the target's maker has promised that its bytes, which are eight, can be written.
        unsafe { ptr::copy_nonoverlapping(before.as_ptr(), into.start(), before.len()) };
        Ok(())
    }

    /// Stores the signal and rings.
    ///
    /// # Errors
    /// If the offset is not an aligned word of the pool, or in a forked child.
    #[inline]
    pub fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.check_generation()?;
        let word = self.pool.checked_word(signal.offset).ok_or_else(outside)?;
        word.store(signal.value, Ordering::Release);
        self.doorbell.ring();
        Ok(())
    }

    /// Wakes the peer, if it sleeps.
    #[inline]
    pub fn ring(&self) {
        self.doorbell.ring();
    }

    /// Notifies the peer, so that it checks its messages.
    ///
    /// # Errors
    /// In a forked child.
    pub fn notify(&self) -> Result<(), LinkError> {
        self.check_generation()?;
        self.doorbell.notify();
        Ok(())
    }

    /// Fails in a forked child, where the link of the parent must not be used.
    ///
    /// # Errors
    /// [`LinkError::Gone`] in a forked child.
    #[inline]
    pub fn check_generation(&self) -> Result<(), LinkError> {
        if fork::generation() == self.born {
            return Ok(());
        }
        Err(LinkError::Gone(
            "this process was forked after the link was made".into(),
        ))
    }

    #[inline]
    fn write(
        &self,
        region: RegionKey,
        offset: u64,
        len: u64,
        signal: Option<Signal>,
        copy: impl FnOnce(*mut u8),
    ) -> Result<(), LinkError> {
        self.check_generation()?;
        // Looked up before anything is written.
        let word = signal.map(|signal| self.pool.checked_word(signal.offset).ok_or_else(outside));
        let word = word.transpose()?;
        self.place(region, offset, len, copy)?;
        if let (Some(word), Some(signal)) = (word, signal) {
            word.store(signal.value, Ordering::Release);
            self.doorbell.ring();
        }
        Ok(())
    }

    /// Calls `act` with the address of a range of a region, if the range is within the region.
    #[inline]
    fn place<T>(
        &self,
        region: RegionKey,
        offset: u64,
        len: u64,
        act: impl FnOnce(*mut u8) -> T,
    ) -> Result<T, LinkError> {
        let end = offset.checked_add(len).ok_or_else(outside)?;
        let at = |segment: &Segment| Some(act(segment.at(&(offset..end))?.as_ptr()));
        let done = match region {
            RegionKey::POOL => at(&self.pool),
            _ => self.regions.with(region, |segment| at(segment)).flatten(),
        };
        done.ok_or_else(outside)
    }
}

/// Rejects more bytes than can be injected.
#[inline]
pub(crate) fn check_inject(bytes: &[u8]) -> Result<(), LinkError> {
    if bytes.len() <= INJECT_BYTES_MAX {
        return Ok(());
    }
    let what = "more bytes than can be injected (256)";
    Err(io::Error::new(io::ErrorKind::InvalidInput, what).into())
}
