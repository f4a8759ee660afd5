//! Unfinished puts of a tile: their sources, and the steps that must wait for them.
//!
//! [Note: Pending puts] A tile continues after a put. It waits where the put's source might be
//! overwritten: before a local step that writes there, before its end, and, unless only this rank
//! can write there, before a signal to a rank other than the put's receiver, as that signal may
//! allow another peer to write. Signals to the receiver need no wait, nor do those that the
//! receiver then sends: they are ordered after the put.

use std::ops::Range;
use std::sync::Arc;

use weft_channel::Connections;
use weft_flight::OpenStage;
use weft_memory::RegisteredMemory;
use weft_schedule::Rank;
use weft_transport::{Iovec, Link, Ticket};

use super::interpret::{Blocked, GroupFailure};

/// The puts of one tile that are not complete.
#[derive(Default, Debug)]
pub(crate) struct Puts(Vec<PendingPut>);

#[derive(Debug)]
struct PendingPut {
    to: Rank,
    ticket: Ticket,
    /// The memory that it reads.
    source: Vec<Iovec>,
    /// Whether only this rank can write there.
    private: bool,
    /// Held as long as the link reads the source.
    _registered: Vec<Arc<RegisteredMemory>>,
    stage: Option<OpenStage>,
}

/// The source of a put.
#[derive(Debug)]
pub(super) struct PutSource {
    pub(super) pieces: Vec<Iovec>,
    /// Whether only this rank can write there.
    pub(super) private: bool,
    /// Its registrations.
    pub(super) registered: Vec<Arc<RegisteredMemory>>,
}

impl Puts {
    pub(super) fn add(
        &mut self,
        (to, ticket): (Rank, Ticket),
        source: PutSource,
        stage: Option<OpenStage>,
    ) {
        self.0.push(PendingPut {
            to,
            ticket,
            source: source.pieces,
            private: source.private,
            _registered: source.registered,
            stage,
        });
    }

    /// Removes completed puts. True if there was one.
    pub(super) fn remove_completed(
        &mut self,
        connections: &Connections,
    ) -> Result<bool, GroupFailure> {
        let before = self.0.len();
        let mut at = 0;
        while let Some(put) = self.0.get(at) {
            let link = connections.links[put.to as usize].as_ref();
            let complete = link.map_or(Ok(true), |link| link.completed(put.ticket));
            match complete.map_err(|error| GroupFailure::Link(put.to, error))? {
                true => connections.stages.end(self.0.remove(at).stage),
                false => at += 1,
            }
        }
        Ok(self.0.len() < before)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns what the end of the tile waits for.
    pub(super) fn before_end(&self) -> Option<Blocked> {
        self.before(|_| true)
    }

    /// Returns what a signal to a rank waits for.
    pub(super) fn before_signal(&self, to: Rank) -> Option<Blocked> {
        self.before(|put| !put.private && put.to != to)
    }

    /// Returns what a write to these addresses waits for.
    pub(super) fn before_write(&self, addresses: &Range<usize>) -> Option<Blocked> {
        let overlaps = |piece: &Iovec| {
            let start = piece.start() as usize;
            start < addresses.end && addresses.start < start + piece.len()
        };
        self.before(|put| put.source.iter().any(overlaps))
    }

    /// Cancels all puts: their sources are not read any more.
    pub(super) fn cancel(&self, links: &[Option<Arc<dyn Link>>]) {
        for put in &self.0 {
            if let Some(link) = &links[put.to as usize] {
                link.cancel(put.ticket);
            }
        }
    }

    fn before(&self, such: impl Fn(&PendingPut) -> bool) -> Option<Blocked> {
        let put = self.0.iter().find(|put| such(put))?;
        Some(Blocked::Link { to: put.to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two puts to rank 1: of bytes 100..200 of private memory, and of 300..400 and 500..600 that
    /// peers can write.
    fn puts() -> Puts {
        let source = |starts: &[usize], private| {
            // SAFETY: nothing reads it here.
            let piece = |start| unsafe { Iovec::new(std::ptr::without_provenance(start), 100) };
            PutSource {
                pieces: starts.iter().copied().map(piece).collect(),
                private,
                registered: Vec::new(),
            }
        };
        let mut puts = Puts::default();
        puts.add((1, Ticket(1)), source(&[100], true), None);
        puts.add((1, Ticket(2)), source(&[300, 500], false), None);
        puts
    }

    #[test]
    fn only_steps_that_overwrite_a_source_wait() {
        let puts = puts();
        for range in [0..100, 200..300, 400..500, 600..1000] {
            assert_eq!(puts.before_write(&range), None, "{range:?}");
        }
        for range in [0..101, 150..160, 199..300, 350..351, 400..501, 0..1000] {
            let blocked = puts.before_write(&range);
            assert_eq!(blocked, Some(Blocked::Link { to: 1 }), "{range:?}");
        }
    }

    #[test]
    fn only_signals_that_let_others_overwrite_a_source_wait() {
        let mut puts = puts();
        assert_eq!(puts.before_signal(1), None);
        assert_eq!(puts.before_signal(2), Some(Blocked::Link { to: 1 }));
        puts.0.pop();
        assert_eq!(puts.before_signal(2), None);
        assert_eq!(puts.before_end(), Some(Blocked::Link { to: 1 }));
    }
}
