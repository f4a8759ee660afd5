//! Window: access to every rank's part of a piece of symmetric memory, with checks of ranges.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weft_call::Completion;
use weft_memory::{CELL_BYTES, PieceSize};
use weft_transport::{Link, Segment};

use super::counters::Counters;
use super::{Group, closed};
use crate::Error;

/// The state for one-sided operations on a piece of which all ranks have a part.
pub(super) struct Window {
    pub(super) name: String,
    /// The default timeout of operations.
    pub(super) timeout: Duration,
    pub(super) parts: Vec<RankPart>,
    size: PieceSize,
    /// The ranks that have freed the piece.
    released: Arc<[AtomicBool]>,
    /// Set once the group is broken or closed.
    pub(super) over: Arc<AtomicBool>,
    /// The completion of operations that end within their call.
    pub(super) done: Arc<Completion>,
    /// Whether all other ranks' memory is mapped.
    pub(super) all_mapped: bool,
    /// The group's counters, once they are used.
    pub(super) counters: Arc<OnceLock<Arc<Counters>>>,
}

/// Access to a rank's part.
pub(super) enum RankPart {
    /// The part of this rank.
    Own(Arc<Segment>),
    /// Mapped memory.
    Mapped(MappedRank),
    /// Over the link.
    Remote,
}

/// A mapped part of a rank, and its bell, which wakes that rank.
pub(super) struct MappedRank {
    pub(super) segment: Arc<Segment>,
    pub(super) link: Arc<dyn Link>,
    /// The host of that rank, for messages.
    pub(super) host: String,
    /// See `ChannelLayout::bell`.
    pub(super) bell: u64,
}

impl Window {
    /// Opens the window on parts that have all been announced.
    pub(super) fn open(
        group: &Group,
        piece: u64,
        size: PieceSize,
        name: &str,
    ) -> Result<Window, Error> {
        group.engine.with(|state, _| {
            let state = state.groups.get(&group.id).ok_or_else(closed)?;
            let connections = &state.connections;
            let reached = state.executor.symmetric.parts(piece).ok_or_else(closed)?;
            let bell = connections.layout.bell();
            let part = |(rank, segment): (u32, Option<Arc<Segment>>)| {
                let link = connections.links[rank as usize].clone();
                match (segment, link, connections.remote(rank)) {
                    (Some(segment), _, _) if rank == group.rank => RankPart::Own(segment),
                    (Some(segment), Some(link), Some(remote)) => RankPart::Mapped(MappedRank {
                        segment,
                        link,
                        host: connections.host_name(rank).into(),
                        bell: remote.words() + bell,
                    }),
                    _ => RankPart::Remote,
                }
            };
            let parts: Vec<RankPart> = (0..).zip(reached.mapped).map(part).collect();
            let name = match name {
                "" => format!("symmetric buffer {piece}"),
                name => format!("symmetric buffer {name:?}"),
            };
            Ok(Window {
                name,
                timeout: group.options.timeout,
                all_mapped: !parts.iter().any(|part| matches!(part, RankPart::Remote)),
                parts,
                size,
                released: reached.released,
                over: state.one_sided.over(),
                done: Completion::done(),
                counters: group.counters.clone(),
            })
        })
    }

    /// Enters a range of the other ranks' parts into this process's page tables. Otherwise page
    /// faults would double the time of the first reduction there.
    pub(super) fn enter(&self, range: &Range<u64>) {
        for part in &self.parts {
            if let RankPart::Mapped(mapped) = part {
                mapped.segment.enter(range);
            }
        }
    }

    pub(super) fn signals(&self) -> u32 {
        self.size.signals
    }

    /// The bytes of a range, checked to be in the data.
    pub(super) fn range(
        &self,
        operation: &str,
        offset: u64,
        bytes: u64,
    ) -> Result<Range<u64>, Error> {
        let end = offset
            .checked_add(bytes)
            .filter(|end| *end <= self.size.bytes);
        let outside = || {
            Error::Config(format!(
                "{operation}: {bytes} bytes at byte {offset} are out of range: {} has {} bytes",
                self.name, self.size.bytes
            ))
        };
        end.map(|end| offset..end).ok_or_else(outside)
    }

    /// The offset of a cell of the data, checked to be valid.
    pub(super) fn cell(&self, operation: &str, offset: u64) -> Result<u64, Error> {
        self.range(operation, offset, CELL_BYTES)?;
        match offset.is_multiple_of(CELL_BYTES) {
            true => Ok(offset),
            false => Err(Error::Config(format!(
                "{operation}: byte {offset} of {} is not a multiple of 8, the size of a cell",
                self.name
            ))),
        }
    }

    /// The offset of a signal.
    pub(super) fn signal(&self, operation: &str, signal: u32) -> Result<u64, Error> {
        if signal < self.size.signals {
            return Ok(self.size.signals_at() + CELL_BYTES * u64::from(signal));
        }
        Err(Error::Config(format!(
            "{operation}: signal {signal} is out of range: {} has {} signals",
            self.name, self.size.signals
        )))
    }

    /// A rank's part, unless that rank has freed it.
    #[inline]
    pub(super) fn part(&self, operation: &str, rank: u32) -> Result<&RankPart, Error> {
        let Some(part) = self.parts.get(rank as usize) else {
            return Err(Error::Config(format!(
                "{operation} rank {rank}: {} belongs to a group of {} ranks",
                self.name,
                self.parts.len()
            )));
        };
        match self.released[rank as usize].load(Ordering::Acquire) {
            false => Ok(part),
            true => Err(self.freed(operation, &format!("rank {rank} has freed it"))),
        }
    }

    pub(super) fn freed(&self, operation: &str, reason: &str) -> Error {
        Error::Config(format!(
            "{operation}: {} cannot be used: {reason}",
            self.name
        ))
    }
}
