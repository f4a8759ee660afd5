//! Strips: parts of a message that are registered while their tiles run. See
//! [Note: Pipelined registration] in `tiles/strips.rs`.

use std::collections::VecDeque;

use weft_transport::{Iovec, TransportKind};

use weft_memory::{RegisteredPiece, RegistrationOutcome, TemporaryRegistration};

/// The strips of an operation that are registered, or will be.
#[derive(Default, Debug)]
pub(crate) struct Strips {
    /// The number of strips that were requested.
    pub(super) requested: u64,
    /// The strips whose last tile has not ended.
    pub(super) strips: VecDeque<Vec<TemporaryRegistration>>,
}

/// The registration of pieces of memory.
pub(super) enum PieceRegistration {
    /// The pieces with their keys for puts.
    Registered(Vec<RegisteredPiece>),
    /// They will be registered soon.
    Waiting,
    /// They will not be registered.
    Copied,
}

impl Strips {
    /// The registration of pieces for a put over links of some kind.
    pub(super) fn named(&self, kind: TransportKind, pieces: &[Iovec]) -> PieceRegistration {
        let mut named = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let mut known = self.strips.iter().flatten();
            let found = known.find(|registration| registration.covers(*piece));
            match found.map_or(RegistrationOutcome::Refused, |found| {
                found.outcome(kind, *piece)
            }) {
                RegistrationOutcome::Registered(piece) => named.push(piece),
                RegistrationOutcome::Waiting => return PieceRegistration::Waiting,
                RegistrationOutcome::Refused => return PieceRegistration::Copied,
            }
        }
        PieceRegistration::Registered(named)
    }
}
