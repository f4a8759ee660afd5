//! Strips: parts of a message that are registered while their tiles run. See
//! [Note: Pipelined registration] in `tiles/strips.rs`.

use std::collections::VecDeque;

use weft_transport::{Iovec, TransportKind};

use weft_memory::{Outcome, RegisteredPiece, TemporaryRegistration};

/// The strips of an operation that are registered, or will be.
#[derive(Default, Debug)]
pub(crate) struct Strips {
    /// How many were asked for.
    pub(super) asked: u64,
    /// Those whose last tile has not ended.
    pub(super) strips: VecDeque<Vec<TemporaryRegistration>>,
}

/// Pieces of memory, as far as their strips are registered.
pub(super) enum Named {
    /// As puts name them.
    Registered(Vec<RegisteredPiece>),
    /// They will soon be.
    Waiting,
    /// They will not be.
    Copied,
}

impl Strips {
    /// Pieces that a put over links of some kind is to read.
    pub(super) fn named(&self, kind: TransportKind, pieces: &[Iovec]) -> Named {
        let mut named = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let mut known = self.strips.iter().flatten();
            let found = known.find(|registration| registration.covers(*piece));
            match found.map_or(Outcome::Refused, |found| found.outcome(kind, *piece)) {
                Outcome::Registered(piece) => named.push(piece),
                Outcome::Waiting => return Named::Waiting,
                Outcome::Refused => return Named::Copied,
            }
        }
        Named::Registered(named)
    }
}
