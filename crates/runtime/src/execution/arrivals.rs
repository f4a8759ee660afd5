//! State of a tile's redirected arrivals, which links write directly to its output. See
//! [Note: Arrivals] in `program/arrivals.rs`.

use std::sync::Arc;

use weft_schedule::Rank;
use weft_transport::{IovecMut, Link, Redirection, Ticket};

/// The arrivals of one tile that are redirected to its output.
#[derive(Default, Debug)]
pub(crate) struct Arrivals {
    pub(super) redirected: Vec<RedirectedArrival>,
    /// The tile's next instruction at the last check for redirections.
    pub(super) checked_at: Option<usize>,
    /// A put that still reads a place to which an arrival could be redirected.
    pub(super) occupied: Option<(Rank, Ticket)>,
}

#[derive(Debug)]
pub(super) struct RedirectedArrival {
    /// Its number in the program.
    pub(super) number: u32,
    pub(super) from: Rank,
    pub(super) pieces: Vec<RedirectedPiece>,
}

/// A contiguous piece of the output.
#[derive(Debug)]
pub(super) struct RedirectedPiece {
    pub(super) redirection: Redirection,
    /// Its place in the receive buffer, as an offset in the pool.
    pub(super) offset: u64,
    pub(super) into: IovecMut,
}

impl Arrivals {
    /// Ends all redirections: links do not write to the output any more.
    pub(super) fn cancel(&self, links: &[Option<Arc<dyn Link>>]) {
        for arrival in &self.redirected {
            let link = links[arrival.from as usize].as_ref();
            if let Some(redirections) = link.and_then(|link| link.redirections()) {
                let pieces = arrival.pieces.iter();
                pieces.for_each(|piece| drop(redirections.take_back(piece.redirection)));
            }
        }
    }

    pub(super) fn is_redirected(&self, number: u32) -> bool {
        let mut redirected = self.redirected.iter();
        redirected.any(|arrival| arrival.number == number)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<RedirectedArrival> {
        let mut redirected = self.redirected.iter();
        let at = redirected.position(|arrival| arrival.number == number)?;
        Some(self.redirected.swap_remove(at))
    }
}
