//! A peer whose pool this process maps: puts are copies, signals are stores.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{io, ptr};

use crate::{LinkError, PeerBell, PeerMemory, Segment, Signal, fork};

/// A mapped peer: what the links of loopback and shared memory have in common.
#[derive(Debug)]
pub struct MappedPeer {
    pool: Arc<Segment>,
    bell: PeerBell,
    born: u64,
}

impl MappedPeer {
    /// The peer with this pool and this event descriptor of its bell.
    pub fn new(pool: Arc<Segment>, event: OwnedFd) -> io::Result<MappedPeer> {
        let bell = PeerBell::new(Arc::clone(&pool), event)?;
        Ok(MappedPeer {
            pool,
            bell,
            born: fork::generation(),
        })
    }

    /// Where the peer's pool lies in this address space.
    pub fn memory(&self) -> PeerMemory {
        PeerMemory {
            base: self.pool.base(),
            len: self.pool.len() as usize,
        }
    }

    /// An error if a put of `len` bytes with this signal would not lie within the peer's pool.
    pub fn check(&self, offset: u64, len: u64, signal: Option<Signal>) -> Result<(), LinkError> {
        let end = offset.checked_add(len).ok_or_else(outside)?;
        let signal_fits =
            signal.is_none_or(|signal| self.pool.checked_word(signal.offset).is_some());
        if self.pool.contains(&(offset..end)) && signal_fits {
            Ok(())
        } else {
            Err(outside())
        }
    }

    /// Copies the pieces, one behind the other, then stores the signal and rings.
    ///
    /// Nothing is written if any of it would lie outside the peer's pool.
    pub fn put(
        &self,
        offset: u64,
        pieces: &[&[u8]],
        signal: Option<Signal>,
    ) -> Result<(), LinkError> {
        self.check_generation()?;
        self.check(
            offset,
            pieces.iter().map(|piece| piece.len() as u64).sum(),
            signal,
        )?;
        let mut at = self.pool.base().as_ptr().wrapping_add(offset as usize);
        for piece in pieces {
            // SAFETY: `at` and the piece's length lie within the mapping, as checked above for the sum of the pieces. The
            // pieces are borrowed from this process, and nobody holds a reference into a peer's pool. Who else
            // writes there is ordered by signals, which is the caller's protocol.
            unsafe { ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len()) };
            at = at.wrapping_add(piece.len());
        }
        match signal {
            Some(signal) => self.signal(signal),
            None => Ok(()),
        }
    }

    /// Stores the signal and rings.
    #[inline]
    pub fn signal(&self, signal: Signal) -> Result<(), LinkError> {
        self.check_generation()?;
        let word = self.pool.checked_word(signal.offset).ok_or_else(outside)?;
        word.store(signal.value, Ordering::Release);
        self.bell.ring();
        Ok(())
    }

    /// Wakes the peer, if it sleeps.
    #[inline]
    pub fn ring(&self) {
        self.bell.ring();
    }

    /// Asks the peer to look at its messages.
    pub fn knock(&self) -> Result<(), LinkError> {
        self.check_generation()?;
        self.bell.knock();
        Ok(())
    }

    /// An error in a forked child, where the link of the parent must not be touched.
    #[inline]
    pub fn check_generation(&self) -> Result<(), LinkError> {
        if fork::generation() == self.born {
            return Ok(());
        }
        Err(LinkError::Gone(
            "this process was forked after the link was made".into(),
        ))
    }
}

fn outside() -> LinkError {
    LinkError::Io(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the write is outside the peer's pool, or the signal's offset is not a multiple of 8",
    ))
}
