//! Unfinished puts of a tile: their sources, and the steps that must wait for them.
//!
//! [Note: Pending puts] A tile continues after a put. It waits where the put's source might be
//! overwritten: before a local step that writes there, before its end, and, unless only this rank
//! can write there, before a signal to a rank other than the put's receiver, as that signal may
//! allow another peer to write. Signals to the receiver need no wait, nor do those that the
//! receiver then sends: they are ordered after the put. No other tile writes where a put of the
//! caller's memory reads: such puts are waited for by the operation's end.
//!
//! A link is asked whether a put is complete only where a step needs that. With the answer the link
//! gives the source back, and one that keeps what it has sent copies then what the peer has not
//! confirmed: the later, the less.

use std::ops::Range;
use std::sync::Arc;

use weft_channel::Connections;
use weft_flight::OpenStage;
use weft_memory::RegisteredMemory;
use weft_schedule::Rank;
use weft_transport::{Iovec, Link, Ticket};

use super::interpret::{Advance, Blocked, GroupFailure};

/// The most puts of ended tiles: more than a line holds at a time, so that a peer that confirms
/// what it has received has confirmed the oldest.
const ENDED_TILES_MAX: usize = 64;

/// The puts of one tile, or of the ended ones, that are not complete.
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
    /// Whether it is the caller's memory, where no other tile writes.
    lasting: bool,
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
    /// Whether it is the caller's memory, where no other tile writes.
    pub(super) lasting: bool,
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
            lasting: source.lasting,
            _registered: source.registered,
            stage,
        });
    }

    /// Removes complete puts whose times are traced.
    pub(super) fn end_traced(&mut self, connections: &Connections) -> Result<(), GroupFailure> {
        let traced = |put: &PendingPut| put.stage.is_some();
        self.first(traced, &mut ask(connections)).map(drop)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds those of an ended tile.
    pub(super) fn append(&mut self, mut ended: Puts) {
        self.0.append(&mut ended.0);
    }

    /// Removes the oldest puts of ended tiles, so that they do not become too many.
    pub(super) fn shorten(&mut self, connections: &Connections) -> Result<(), GroupFailure> {
        let mut is_complete = ask(connections);
        while self.0.len() > ENDED_TILES_MAX && is_complete(&mut self.0[0])? {
            self.0.remove(0);
        }
        Ok(())
    }

    /// Returns what the end of the tile waits for.
    pub(super) fn before_end(&mut self, connections: &Connections) -> Advance {
        self.first(before_end, &mut ask(connections))
    }

    /// Returns what the end of the operation waits for.
    pub(super) fn before_last_end(&mut self, connections: &Connections) -> Advance {
        self.first(|_| true, &mut ask(connections))
    }

    /// Returns what a signal to a rank waits for.
    pub(super) fn before_signal(&mut self, connections: &Connections, to: Rank) -> Advance {
        self.first(before_signal(to), &mut ask(connections))
    }

    /// Returns what a write to these addresses waits for.
    pub(super) fn before_write(
        &mut self,
        connections: &Connections,
        addresses: &Range<usize>,
    ) -> Advance {
        self.first(before_write(addresses), &mut ask(connections))
    }

    /// The first put whose link still reads one of these addresses, as far as it knows without
    /// effort.
    pub(super) fn reader(
        &mut self,
        connections: &Connections,
        addresses: &Range<usize>,
    ) -> Option<(Rank, Ticket)> {
        while let Some(at) = self.0.iter().position(before_write(addresses)) {
            let put = &mut self.0[at];
            if !is_released(connections, (put.to, put.ticket)) {
                return Some((put.to, put.ticket));
            }
            connections.stages.end(put.stage.take());
            self.0.remove(at);
        }
        None
    }

    /// Cancels all puts: their sources are not read any more.
    pub(super) fn cancel(&self, links: &[Option<Arc<dyn Link>>]) {
        for put in &self.0 {
            if let Some(link) = &links[put.to as usize] {
                link.cancel(put.ticket);
            }
        }
    }

    /// Removes such puts while they are complete. Returns the first that is not.
    fn first(
        &mut self,
        such: impl Fn(&PendingPut) -> bool,
        is_complete: &mut dyn FnMut(&mut PendingPut) -> Result<bool, GroupFailure>,
    ) -> Advance {
        while let Some(at) = self.0.iter().position(&such) {
            if !is_complete(&mut self.0[at])? {
                return Ok(Some(Blocked::Link { to: self.0[at].to }));
            }
            self.0.remove(at);
        }
        Ok(None)
    }
}

/// Whether a link does not read the source of a put any more, as far as it knows without effort.
pub(super) fn is_released(connections: &Connections, (to, ticket): (Rank, Ticket)) -> bool {
    let link = connections.links[to as usize].as_ref();
    link.is_none_or(|link| link.released(ticket))
}

/// Asks links whether puts are complete, and ends their stages.
fn ask(
    connections: &Connections,
) -> impl FnMut(&mut PendingPut) -> Result<bool, GroupFailure> + use<'_> {
    |put| {
        let link = connections.links[put.to as usize].as_ref();
        let complete = link.map_or(Ok(true), |link| link.completed(put.ticket));
        let complete = complete.map_err(|error| GroupFailure::Link(put.to, error))?;
        if complete {
            connections.stages.end(put.stage.take());
        }
        Ok(complete)
    }
}

/// The puts that the end of a tile waits for: also those whose times are traced.
fn before_end(put: &PendingPut) -> bool {
    !put.lasting || put.stage.is_some()
}

/// The puts that a signal to a rank waits for.
fn before_signal(to: Rank) -> impl Fn(&PendingPut) -> bool {
    move |put| !put.private && put.to != to
}

/// The puts that a write to these addresses waits for.
fn before_write(addresses: &Range<usize>) -> impl Fn(&PendingPut) -> bool {
    move |put| {
        put.source.iter().any(|piece| {
            let start = piece.start() as usize;
            start < addresses.end && addresses.start < start + piece.len()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two puts to rank 1: of bytes 100..200 of the caller's memory, and of 300..400 and 500..600
    /// that peers can write.
    fn puts() -> Puts {
        let source = |starts: &[usize], private| {
            // SAFETY: nothing reads it here.
            let piece = |start| unsafe { Iovec::new(std::ptr::without_provenance(start), 100) };
            PutSource {
                pieces: starts.iter().copied().map(piece).collect(),
                private,
                lasting: private,
                registered: Vec::new(),
            }
        };
        let mut puts = Puts::default();
        puts.add((1, Ticket(1)), source(&[100], true), None);
        puts.add((1, Ticket(2)), source(&[300, 500], false), None);
        puts
    }

    /// The blocking of such puts, of which those with a ticket in `complete` are complete.
    fn blocked(
        puts: &mut Puts,
        such: impl Fn(&PendingPut) -> bool,
        complete: &[u64],
    ) -> Option<Blocked> {
        let mut is_complete = |put: &mut PendingPut| Ok(complete.contains(&put.ticket.0));
        puts.first(such, &mut is_complete).unwrap()
    }

    #[test]
    fn only_steps_that_overwrite_a_source_wait() {
        let mut puts = puts();
        for range in [0..100, 200..300, 400..500, 600..1000] {
            let blocked = blocked(&mut puts, before_write(&range), &[1, 2]);
            assert_eq!(blocked, None, "{range:?}");
        }
        for range in [0..101, 150..160, 199..300, 350..351, 400..501, 0..1000] {
            let blocked = blocked(&mut puts, before_write(&range), &[]);
            assert_eq!(blocked, Some(Blocked::Link { to: 1 }), "{range:?}");
        }
        assert_eq!(blocked(&mut puts, before_write(&(150..160)), &[1]), None);
        assert!(
            !puts.is_empty(),
            "only the one that was asked about is removed"
        );
    }

    #[test]
    fn puts_of_the_callers_memory_outlast_their_tile() {
        let mut puts = puts();
        let waits = Some(Blocked::Link { to: 1 });
        assert_eq!(blocked(&mut puts, before_end, &[1]), waits);
        assert_eq!(blocked(&mut puts, before_end, &[2]), None);
        let mut of_ended_tiles = Puts::default();
        of_ended_tiles.append(puts);
        assert_eq!(blocked(&mut of_ended_tiles, |_| true, &[]), waits);
        assert_eq!(blocked(&mut of_ended_tiles, |_| true, &[1]), None);
        assert!(of_ended_tiles.is_empty());
    }

    #[test]
    fn only_signals_that_let_others_overwrite_a_source_wait() {
        let mut puts = puts();
        assert_eq!(blocked(&mut puts, before_signal(1), &[]), None);
        let waits = Some(Blocked::Link { to: 1 });
        assert_eq!(blocked(&mut puts, before_signal(2), &[]), waits);
        assert_eq!(blocked(&mut puts, before_signal(2), &[2]), None);
        assert_eq!(blocked(&mut puts, |_| true, &[]), waits);
        assert_eq!(blocked(&mut puts, |_| true, &[1]), None);
        assert!(puts.is_empty());
    }
}
