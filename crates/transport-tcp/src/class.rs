//! The two streams of a link, and the tickets of their puts.
#![forbid(unsafe_code)]

use weft_transport::Ticket;

/// Tickets of urgent puts have this bit.
const URGENT: u64 = 1 << 63;
/// Above a put's number, its ticket has the number of the connection.
const CONNECTION_SHIFT: u32 = 56;

/// A link's stream: each keeps its own order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Ordinary,
    Urgent,
}

/// All classes, in the order of their numbers.
pub(crate) const CLASSES: [Class; 2] = [Class::Ordinary, Class::Urgent];

impl Class {
    /// The class of the put with this ticket.
    pub(crate) fn of(ticket: Ticket) -> Class {
        match ticket.0 & URGENT {
            0 => Class::Ordinary,
            _ => Class::Urgent,
        }
    }

    /// The ticket of a put by its number, from 1, among those of this class and connection.
    pub(crate) fn ticket(self, connection: usize, number: u64) -> Ticket {
        let number = number | (connection as u64) << CONNECTION_SHIFT;
        Ticket(match self {
            Class::Ordinary => number,
            Class::Urgent => number | URGENT,
        })
    }
}

/// The number of the connection that sends the put with this ticket.
pub(crate) fn connection_of(ticket: Ticket) -> usize {
    ((ticket.0 & !URGENT) >> CONNECTION_SHIFT) as usize
}
