//! Symmetric memory: user-visible memory that the group's other ranks on this host map as well.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use weft_transport::Segment;

use super::{Group, closed};
use crate::Error;
use crate::channel::{Connections, ControlMessage};
use crate::memory::Region;
use crate::progress::Engine;

/// Memory that the group's ranks on this host reach directly. Dropping it lets go of it; it is
/// freed once all ranks have.
///
/// Operations on it must be over before it is dropped.
pub struct Symmetric {
    segment: Arc<Segment>,
    bytes: u64,
    piece: u64,
    group: u64,
    engine: Arc<Engine>,
}

impl Drop for Symmetric {
    fn drop(&mut self) {
        if self.engine.check_generation().is_err() {
            return;
        }
        self.engine.with(|state, _| {
            if let Some(group) = state.groups.get_mut(&self.group) {
                group.connections.tell_all(&ControlMessage::Released {
                    group: self.group,
                    id: self.piece,
                });
                (group.executor.symmetric).released(group.connections.rank, self.piece);
            }
        });
    }
}

impl Symmetric {
    /// The first byte of this rank's part.
    pub fn base(&self) -> *mut u8 {
        self.segment.base().as_ptr()
    }

    /// The size of each rank's part, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Group {
    /// Makes memory that the ranks on one host map together. Every rank calls it with the same
    /// size.
    pub fn symmetric(&self, bytes: u64) -> Result<Symmetric, Error> {
        self.check_usable()?;
        let order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let deadline = Instant::now() + self.options.timeout;
        let segment = symmetric_segment(bytes)?;
        for peer in (0..self.size()).filter(|peer| *peer != self.rank) {
            self.connect(peer, deadline, &self.cancel)?;
        }
        let piece = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            let (rank, ranks) = (self.rank, group.size());
            let region = state.endpoint.expose(&segment);
            let region = Arc::new(region.map_err(|error| refused(bytes, &error))?);
            let part = (&segment, &region);
            let piece = (group.executor.symmetric).announce(rank, ranks, part, bytes);
            announce(&group.connections, piece, bytes, &region)?;
            Ok(piece)
        })?;
        drop(order);
        self.await_symmetric(piece, bytes, deadline)?;
        let (group, engine) = (self.id, self.engine.clone());
        Ok(Symmetric {
            segment,
            bytes,
            piece,
            group,
            engine,
        })
    }

    /// How many operations have been carried out on symmetric memory as such, without staging,
    /// since the group was made.
    pub fn symmetric_operations(&self) -> u64 {
        self.engine.with(|state, _| {
            let group = state.groups.get(&self.id);
            group.map_or(0, |group| group.executor.symmetric_operations())
        })
    }

    fn await_symmetric(&self, piece: u64, bytes: u64, deadline: Instant) -> Result<(), Error> {
        loop {
            let (complete, other) = self.engine.with(|state, finished| {
                state.pass(finished);
                let group = state.groups.get(&self.id).ok_or_else(closed)?;
                group.check()?;
                Ok(group.executor.symmetric.progress_of(piece))
            })?;
            if let Some(other) = other {
                return Err(Error::Config(format!(
                    "symmetric memory: this rank asks for {bytes} bytes, another for {other}"
                )));
            }
            if complete {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    operation: "making symmetric memory".into(),
                    waiting_for: "the other ranks to make the same call".into(),
                    after: self.options.timeout,
                });
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Lets the other ranks reach this rank's part of a piece, and tells them.
fn announce(
    connections: &Connections,
    piece: u64,
    bytes: u64,
    region: &Region,
) -> Result<(), Error> {
    for (rank, link) in (0..).zip(&connections.links) {
        let key = link.as_ref().and_then(|link| region.key(link.kind()));
        let (Some(link), Some(key)) = (link, key) else {
            continue;
        };
        let message = ControlMessage::Symmetric {
            group: connections.group,
            id: piece,
            bytes,
            region: key.0,
        };
        let granted = link.grant(key, 0..bytes);
        let told = granted.and_then(|()| link.message(&message.encode()));
        told.map_err(|e| Error::from_link(e, Some(rank), connections.host_name(rank)))?;
    }
    Ok(())
}

fn symmetric_segment(bytes: u64) -> Result<Arc<Segment>, Error> {
    let refused = |error: std::io::Error| refused(bytes, &error);
    let segment = Segment::create("weft-symmetric", bytes.max(1)).map_err(refused)?;
    segment.reserve(0..segment.len()).map_err(refused)?;
    Ok(Arc::new(segment))
}

fn refused(bytes: u64, error: &dyn std::error::Error) -> Error {
    Error::Config(format!(
        "cannot make {bytes} bytes of symmetric memory: {error}"
    ))
}
