//! Symmetric memory: memory of the user that the group's other ranks on this host also map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use weft_channel::{ChannelPart, Connections, ControlMessage};
use weft_memory::{PieceProgress, PieceSize, Region};
use weft_transport::Segment;

use super::interruption::Interruption;
use super::window::Window;
use super::{Group, closed};
use crate::Error;
use crate::progress::{Engine, GroupState};

/// Memory that the group's ranks on this host access directly. It is freed once all ranks have
/// dropped it.
///
/// Operations on it must have ended before it is dropped.
pub struct Symmetric {
    pub(super) segment: Arc<Segment>,
    pub(super) size: PieceSize,
    pub(super) piece: u64,
    pub(super) group: u64,
    pub(super) engine: Arc<Engine>,
    /// Whether this rank has freed it.
    pub(super) freed: AtomicBool,
    /// The state for one-sided operations, once all ranks have a part.
    pub(super) window: Option<Window>,
}

impl Drop for Symmetric {
    fn drop(&mut self) {
        self.free();
    }
}

impl Symmetric {
    /// The first byte of this rank's part.
    pub fn base(&self) -> *mut u8 {
        self.segment.base().as_ptr()
    }

    /// The size of each rank's part, in bytes.
    pub fn bytes(&self) -> u64 {
        self.size.bytes
    }

    /// Frees it: later one-sided operations on it fail on all ranks. The memory stays readable here
    /// until all ranks have freed it. Idempotent.
    pub fn free(&self) {
        if self.engine.check_generation().is_err() || self.freed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.engine.with(|state, _| {
            if let Some(group) = state.groups.get_mut(&self.group) {
                announce_free(&group.connections, self.piece);
                (group.executor.symmetric).released(group.connections.rank, self.piece);
            }
        });
    }
}

impl Group {
    /// Makes symmetric memory, which the ranks on one host map. Every rank calls it with the same
    /// size.
    ///
    /// # Errors
    ///
    /// If a rank cannot make its part, or times out, the call fails on all ranks with that rank's
    /// error, and the group stays usable. If the ranks cannot connect, the group breaks.
    pub fn symmetric(&self, bytes: u64) -> Result<Symmetric, Error> {
        self.symmetric_with_signals(bytes, 0, "")
    }

    /// As [`Group::symmetric`], with `signals` signals after the data: 64-bit cells for
    /// [`Symmetric::put`] and [`Symmetric::wait_signal`], which are initially 0. Error messages of
    /// one-sided operations use `name`, or its number if that is empty.
    ///
    /// # Errors
    ///
    /// As [`Group::symmetric`].
    pub fn symmetric_with_signals(
        &self,
        bytes: u64,
        signals: u32,
        name: &str,
    ) -> Result<Symmetric, Error> {
        let made = self.make_symmetric(PieceSize { bytes, signals }, name, None)?;
        // This rank's share of every part, which it reads and writes in reductions.
        let share = bytes.div_ceil(u64::from(self.size()));
        let start = share * u64::from(self.rank);
        if let Some(window) = &made.window {
            window.enter(&(start..start + share));
        }
        Ok(made)
    }

    /// Makes memory that all ranks share, which is the part of rank `holder`: [`Symmetric::at`] has
    /// it on the holder's host. The other ranks' parts have no memory, and must not be used. Every
    /// rank calls it with the same arguments.
    ///
    /// When the group breaks, every rank keeps its present contents, and later changes are its own.
    ///
    /// # Errors
    ///
    /// As [`Group::symmetric`].
    pub fn shared(&self, bytes: u64, holder: u32) -> Result<Symmetric, Error> {
        let size = PieceSize { bytes, signals: 0 };
        self.make_symmetric(size, "", Some(holder))
    }

    fn make_symmetric(
        &self,
        size: PieceSize,
        name: &str,
        holder: Option<u32>,
    ) -> Result<Symmetric, Error> {
        let deadline = Instant::now() + self.options.timeout;
        let mut made = self.announce_symmetric(size, holder, deadline)?;
        self.await_symmetric(made.piece, size, deadline)?;
        made.window = Some(Window::open(self, made.piece, size, name)?);
        Ok(made)
    }

    /// Makes this rank's part of a piece, and announces it to the other ranks.
    fn announce_symmetric(
        &self,
        size: PieceSize,
        holder: Option<u32>,
        deadline: Instant,
    ) -> Result<Symmetric, Error> {
        let bytes = size.total().ok_or_else(|| too_long(size.bytes))?;
        self.check_usable()?;
        let _order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let segment = symmetric_segment(bytes, holder.is_none_or(|holder| holder == self.rank));
        for peer in (0..self.size()).filter(|peer| *peer != self.rank) {
            // For the bell, which is granted before the piece is announced.
            if let Err(error) =
                self.connect(peer, ChannelPart::FIRST.into(), deadline, &self.cancel)
            {
                // Ranks without links to this one learn it only if the group breaks.
                let error = segment.err().unwrap_or(error);
                self.break_with(&error);
                return Err(error);
            }
        }
        let (piece, segment) = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            let (rank, ranks) = (self.rank, group.size());
            let part = segment.and_then(|segment| {
                let region = state.endpoint.expose(&segment);
                let region = region.map_err(|error| refused(bytes, &error))?;
                Ok((segment, Arc::new(region)))
            });
            let pieces = &group.executor.symmetric;
            let piece = pieces.announce(rank, ranks, part.as_ref().ok(), size);
            if let Some(holder) = holder {
                pieces.held_by(piece, holder);
            }
            let (segment, region) = part.inspect_err(|error| {
                report_failure(group, piece, size, error);
                announce_free(&group.connections, piece);
                pieces.released(rank, piece);
            })?;
            announce(&group.connections, piece, (size, bytes), &region)?;
            Ok((piece, segment))
        })?;
        Ok(Symmetric {
            segment,
            size,
            piece,
            group: self.id,
            engine: self.engine.clone(),
            freed: AtomicBool::new(false),
            window: None,
        })
    }

    /// The number of operations that worked directly on symmetric memory since the group was made.
    pub fn symmetric_operations(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.executor.symmetric_operations())
        })
    }

    /// Waits until all ranks have announced their parts.
    fn await_symmetric(&self, piece: u64, size: PieceSize, deadline: Instant) -> Result<(), Error> {
        let mut interruption = Interruption::of_this_call();
        loop {
            let progress = self.engine.with(|state, finished| {
                state.pass(finished);
                let group = state.groups.get(&self.id).ok_or_else(closed)?;
                group.check()?;
                Ok(group.executor.symmetric.progress_of(piece))
            })?;
            let waited = match progress {
                PieceProgress::Complete => return Ok(()),
                PieceProgress::Failed(error) => return Err(error),
                PieceProgress::OtherSize(other) => {
                    return Err(Error::Config(format!(
                        "symmetric memory: this rank requests {size}, another rank {other}"
                    )));
                }
                PieceProgress::Waiting(missing) if Instant::now() >= deadline => {
                    Err(self.late_symmetric(&missing)?)
                }
                PieceProgress::Waiting(_) => interruption.check(),
            };
            if let Err(error) = waited {
                self.engine.with(|state, _| {
                    if let Some(group) = state.groups.get(&self.id) {
                        report_failure(group, piece, size, &error);
                    }
                });
                return Err(error);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    fn late_symmetric(&self, missing: &[u32]) -> Result<Error, Error> {
        Ok(Error::Timeout {
            operation: "making symmetric memory".into(),
            waiting_for: self.with_state(|group| group.describe_all(missing.iter().copied()))?,
            after: self.options.timeout,
        })
    }
}

/// Reports to the other ranks that this one has no part of a piece, so that their calls fail.
fn report_failure(group: &GroupState, piece: u64, size: PieceSize, error: &Error) {
    let rank = group.name.rank(group.connections.rank);
    let reported = match error {
        Error::Timeout { .. } | Error::PeerLost { .. } => error.reported_by(rank),
        // Not an abort on other ranks, since the group is not broken.
        Error::Aborted { reason } => {
            Error::Config(format!("making symmetric memory: rank {rank}: {reason}"))
        }
        other => Error::Config(format!("making symmetric memory: rank {rank}: {other}")),
    };
    group
        .connections
        .send_to_all(&ControlMessage::SymmetricFailed {
            group: group.id,
            id: piece,
            bytes: size.bytes,
            signals: size.signals,
            error: reported,
        });
}

/// Grants the other ranks access to this rank's part of a piece, and announces it.
fn announce(
    connections: &Connections,
    piece: u64,
    (size, total): (PieceSize, u64),
    region: &Region,
) -> Result<(), Error> {
    for (rank, link) in (0..).zip(&connections.links) {
        let Some(link) = link else { continue };
        let key = region.key(link.kind());
        let message = ControlMessage::Symmetric {
            group: connections.group,
            id: piece,
            bytes: size.bytes,
            signals: size.signals,
            region: key.map(|key| key.0),
        };
        let granted = key.map_or(Ok(()), |key| link.grant(key, 0..total));
        let sent = granted.and_then(|()| link.message(&message.encode()));
        sent.map_err(|e| Error::from_link(e, Some(rank), connections.host_name(rank)))?;
    }
    Ok(())
}

/// Notifies the other ranks that this one has freed a piece.
fn announce_free(connections: &Connections, piece: u64) {
    connections.send_to_all(&ControlMessage::Released {
        group: connections.group,
        id: piece,
    });
}

/// `reserved`: whether it has its memory from the start, so that no use of it can fail.
fn symmetric_segment(bytes: u64, reserved: bool) -> Result<Arc<Segment>, Error> {
    let refused = |error: std::io::Error| refused(bytes, &error);
    let segment = Segment::create("weft-symmetric", bytes.max(1)).map_err(refused)?;
    if reserved {
        segment.reserve(0..segment.len()).map_err(refused)?;
    }
    Ok(Arc::new(segment))
}

fn too_long(bytes: u64) -> Error {
    Error::Config(format!(
        "cannot make {bytes} bytes of symmetric memory: more than an address space has"
    ))
}

fn refused(bytes: u64, error: &dyn std::error::Error) -> Error {
    Error::Config(format!(
        "cannot make {bytes} bytes of symmetric memory: {error}"
    ))
}
