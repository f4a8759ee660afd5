//! Channels: the memory that ranks of a group grant each other, how it is laid out, and the control
//! messages between them.

mod connections;
mod layout;
mod message;

pub(crate) use connections::{Channel, Connections, Remote, control_neighbours};
pub(crate) use layout::*;
pub(crate) use message::{ENVELOPE_BYTES, Message, Split};
