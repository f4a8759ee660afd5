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
                let_go(&group.connections, self.piece);
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

    /// This rank's part itself.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }
}

impl Group {
    /// Makes memory that the ranks on one host map together. Every rank calls it with the same
    /// size.
    pub fn symmetric(&self, bytes: u64) -> Result<Symmetric, Error> {
        let deadline = Instant::now() + self.options.timeout;
        let make = || symmetric_segment(bytes).map(Some);
        let made = self.announce_symmetric(bytes, deadline, true, make)?;
        let made = made.expect("there is a segment");
        self.await_symmetric(made.piece, bytes, deadline)?;
        Ok(made)
    }

    /// As [`Group::symmetric`], but without waiting for the other ranks, and without failing where
    /// a rank has no memory: then that rank has nothing in return.
    ///
    /// Operations on it run as on any other memory until all ranks have learnt of all parts, and
    /// for good if a rank has none, or has dropped its own.
    pub fn offer_symmetric(&self, bytes: u64) -> Result<Option<Symmetric>, Error> {
        let deadline = Instant::now() + self.options.timeout;
        self.announce_symmetric(bytes, deadline, false, || Ok(symmetric_segment(bytes).ok()))
    }

    /// Makes this rank's part of a piece, or none, and tells the other ranks: all of them, or those
    /// that are still there.
    fn announce_symmetric(
        &self,
        bytes: u64,
        deadline: Instant,
        all: bool,
        make: impl FnOnce() -> Result<Option<Arc<Segment>>, Error>,
    ) -> Result<Option<Symmetric>, Error> {
        self.check_usable()?;
        let _order = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let segment = make()?;
        for peer in (0..self.size()).filter(|peer| *peer != self.rank) {
            let connected = self.connect(peer, deadline, &self.cancel);
            connected.or_else(|error| if all { Err(error) } else { Ok(()) })?;
        }
        let (piece, exposed) = self.engine.with(|state, _| {
            let group = state.groups.get_mut(&self.id).ok_or_else(closed)?;
            group.check()?;
            let (rank, ranks) = (self.rank, group.size());
            let expose = |segment: Arc<Segment>| {
                let region = state.endpoint.expose(&segment);
                let region = region.map_err(|error| refused(bytes, &error))?;
                Ok((segment, Arc::new(region)))
            };
            let part = segment.map(expose).transpose()?;
            let pieces = &group.executor.symmetric;
            let piece = pieces.announce(rank, ranks, part.as_ref(), bytes);
            let region = part.as_ref().map(|(_, region)| &**region);
            let told = announce(&group.connections, piece, bytes, region);
            told.or_else(|error| if all { Err(error) } else { Ok(()) })?;
            if part.is_none() {
                let_go(&group.connections, piece);
                pieces.released(rank, piece);
            }
            Ok((piece, part))
        })?;
        Ok(exposed.map(|(segment, _)| Symmetric {
            segment,
            bytes,
            piece,
            group: self.id,
            engine: self.engine.clone(),
        }))
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

/// Lets the other ranks reach this rank's part of a piece, if it has one, and tells them; the first
/// error, if any cannot be told.
fn announce(
    connections: &Connections,
    piece: u64,
    bytes: u64,
    region: Option<&Region>,
) -> Result<(), Error> {
    let mut outcome = Ok(());
    for (rank, link) in (0..).zip(&connections.links) {
        let Some(link) = link else { continue };
        let key = region.and_then(|region| region.key(link.kind()));
        let message = ControlMessage::Symmetric {
            group: connections.group,
            id: piece,
            bytes,
            region: key.map(|key| key.0),
        };
        let granted = key.map_or(Ok(()), |key| link.grant(key, 0..bytes));
        let told = granted.and_then(|()| link.message(&message.encode()));
        let told = told.map_err(|e| Error::from_link(e, Some(rank), connections.host_name(rank)));
        outcome = outcome.and(told);
    }
    outcome
}

/// Tells the other ranks that this one has let go of a piece.
fn let_go(connections: &Connections, piece: u64) {
    connections.tell_all(&ControlMessage::Released {
        group: connections.group,
        id: piece,
    });
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
