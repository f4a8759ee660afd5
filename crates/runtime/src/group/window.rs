//! The way to every rank's part of a piece of symmetric memory, and checks of what lies there.

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

/// What one-sided operations need of a piece that all ranks have a part of.
pub(super) struct Window {
    pub(super) name: String,
    /// What an operation may take, unless it says otherwise.
    pub(super) timeout: Duration,
    pub(super) parts: Vec<RankPart>,
    size: PieceSize,
    /// The ranks that have let go.
    released: Arc<[AtomicBool]>,
    /// Set once the group is broken or closed.
    pub(super) over: Arc<AtomicBool>,
    /// Stands for all operations that were done at once.
    pub(super) done: Arc<Completion>,
    /// All other ranks' memory is mapped.
    pub(super) all_mapped: bool,
    /// The group's, once they are asked for.
    pub(super) counters: Arc<OnceLock<Arc<Counters>>>,
}

/// How a rank's part is reached.
pub(super) enum RankPart {
    /// It is this rank's own.
    Own(Arc<Segment>),
    /// It is mapped.
    Mapped(Mapped),
    /// Over the link.
    Remote,
}

/// A part of a rank that is mapped, and how to wake that rank.
pub(super) struct Mapped {
    pub(super) segment: Arc<Segment>,
    pub(super) link: Arc<dyn Link>,
    /// Where that rank runs, for messages.
    pub(super) host: String,
    /// See `ChannelLayout::bell`.
    pub(super) bell: u64,
}

impl Window {
    /// The way to all parts, which have been announced.
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
                    (Some(segment), Some(link), Some(remote)) => RankPart::Mapped(Mapped {
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

    /// Enters a range of the other ranks' parts into this process's page tables: the first
    /// reduction that reads and writes there would meet page faults, and take twice as long.
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

    /// The bytes of a range of the data, if it lies there.
    pub(super) fn range(&self, what: &str, offset: u64, bytes: u64) -> Result<Range<u64>, Error> {
        let end = offset
            .checked_add(bytes)
            .filter(|end| *end <= self.size.bytes);
        let outside = || {
            Error::Config(format!(
                "{what}: {bytes} bytes at byte {offset} are out of range: {} has {} bytes",
                self.name, self.size.bytes
            ))
        };
        end.map(|end| offset..end).ok_or_else(outside)
    }

    /// Where a cell of the data lies, by its offset in bytes.
    pub(super) fn cell(&self, what: &str, offset: u64) -> Result<u64, Error> {
        self.range(what, offset, CELL_BYTES)?;
        match offset.is_multiple_of(CELL_BYTES) {
            true => Ok(offset),
            false => Err(Error::Config(format!(
                "{what}: byte {offset} of {} is no multiple of 8, as cells are",
                self.name
            ))),
        }
    }

    /// Where a signal lies.
    pub(super) fn signal(&self, what: &str, signal: u32) -> Result<u64, Error> {
        if signal < self.size.signals {
            return Ok(self.size.signals_at() + CELL_BYTES * u64::from(signal));
        }
        Err(Error::Config(format!(
            "{what}: signal {signal} is out of range: {} has {} signals",
            self.name, self.size.signals
        )))
    }

    /// A rank's part, unless that rank has let go of it.
    #[inline]
    pub(super) fn part(&self, what: &str, rank: u32) -> Result<&RankPart, Error> {
        let Some(part) = self.parts.get(rank as usize) else {
            return Err(Error::Config(format!(
                "{what} rank {rank}: {} is of a group of {} ranks",
                self.name,
                self.parts.len()
            )));
        };
        match self.released[rank as usize].load(Ordering::Acquire) {
            false => Ok(part),
            true => Err(self.freed(what, &format!("rank {rank} has freed it"))),
        }
    }

    pub(super) fn freed(&self, what: &str, how: &str) -> Error {
        Error::Config(format!("{what}: {} is gone: {how}", self.name))
    }
}
